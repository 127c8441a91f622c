"""The driver's side of trials on other hosts: which hosts there are, what runs on them, and what lies on their disks.

Whoever starts their agents gives a `handle.AgentHandle` for each; nothing here knows what that is.
"""
