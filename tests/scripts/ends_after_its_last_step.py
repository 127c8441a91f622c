"""Ends right after collective calls."""

import sys

import torch
import torch.distributed as dist

import trainables.torch.ranks  # noqa: F401  # waits for gloo at the end

dist.init_process_group("gloo")
# Python asks for the interpreter every 30 ms, not every 5: gloo's threads are caught at it in nine of ten such jobs.
sys.setswitchinterval(0.03)
works = [dist.all_reduce(torch.ones(1), async_op=True) for _ in range(20)]
for work in works:
    work.wait()
del work, works
