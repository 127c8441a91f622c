"""Trials in jobs of Slurm: no cluster of anybody's has to be started first.

    driver (SlurmExecutor) ── agent of a job, on node A ── LocalExecutor ── fork server, keepers, trials
                           └─ agent of another one, on node B ...

The driver submits jobs while trials wait; the agent that a job starts on each of its nodes connects to it. The driver
counts what each has. What an agent does is in `tuner.executors.host_agent`, and the driver's side of it in
`tuner.executors.remote`.
"""
