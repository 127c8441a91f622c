"""Trials as processes of this machine, forked from a server that has their imports loaded.

    driver (LocalExecutor) ── fork server ─┬─ keeper of slot 1 ── process of a trial ── its descendants
                                           └─ keeper of slot 2 ── ...

Everything below the driver belongs to exactly one attempt, and a keeper starts the next one only when nothing of the
one before is left.
"""
