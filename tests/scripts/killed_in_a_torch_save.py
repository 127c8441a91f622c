"""Saves over a file in lives that are killed before each call, and prints what is there then: FILE."""

import os
import signal
import sys

import torch

from trainables.store import fs
from trainables.torch import atomic_torch_save

torch.save(1, "/dev/null")
for call in ("write", "fsync", "rename", "fsync_dir"):
    pid = os.fork()
    if pid == 0:
        setattr(fs, call, lambda *args: os.kill(os.getpid(), signal.SIGKILL))
        atomic_torch_save({"w": torch.ones(1000), "killed": call}, sys.argv[1])
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    print(call, torch.load(sys.argv[1]).get("killed"), len(os.listdir(os.path.dirname(sys.argv[1]))))
