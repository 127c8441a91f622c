"""In a cgroup of its own, runs a trial that takes more memory than that may have: STORAGE CGROUP."""

import os
import sys

import tuner as tune

storage, group = sys.argv[1:]
with open(os.path.join(group, "cgroup.procs"), "w") as file:
    file.write(str(os.getpid()))


def takes_all(config):
    taken = []
    while True:
        taken.append(bytearray(os.urandom(1024) * 4096))


tune.run(takes_all, name="e", storage_path=storage, raise_on_failed_trial=False)
