"""Trials on the nodes of a Ray cluster.

    driver (RayExecutor) ── agent of node A (an actor) ── LocalExecutor ── fork server, keepers, trials
                         └─ agent of node B ...

Ray says which nodes there are, leases slots (placement groups), and starts an agent on each node. What an agent does is
in `tuner.executors.host_agent`, and the driver's side of it in `tuner.executors.remote`.
"""
