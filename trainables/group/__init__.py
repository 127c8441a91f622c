"""A trial of several processes: a leader, which is the trial's own process, and members, its ranks.

The leader starts the ranks, gathers what they report, merges what they save, and is what the driver sees: one trial.
Nothing here knows torch; a `Backend` says how ranks are started and what they set up.
"""
