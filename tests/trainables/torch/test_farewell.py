from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.timeout(400)]

# Python asks for the interpreter every 30 ms, not every 5: gloo's threads are caught at it in nine of ten such jobs.
SCRIPT = """
import sys
import torch
import torch.distributed as dist
import trainables.torch.ranks

dist.init_process_group("gloo")
sys.setswitchinterval(0.03)
works = [dist.all_reduce(torch.ones(1), async_op=True) for _ in range(20)]
for work in works:
    work.wait()
del work, works
"""


def environment() -> dict[str, str]:
    own = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": str(Path(__file__).parents[3])}
    return {**os.environ, **own}


def test_ranks_that_end_right_after_their_last_step_do_not_abort(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4", script]

    for _ in range(3):
        done = subprocess.run(torchrun, capture_output=True, text=True, timeout=100, env=environment())
        assert done.returncode == 0, done.stderr
