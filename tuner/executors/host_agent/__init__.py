"""What runs on a machine for a driver on another one: a local executor, and the store of its disk. Whoever starts it.

    Agent ── Runner (a thread) ── LocalExecutor ── fork server, keepers, trials
          └─ operations on the files of its disk, and on a replica's place

It hears of its driver over one TCP connection (`protocol` says what), and ends everything when it hears nothing.
"""
