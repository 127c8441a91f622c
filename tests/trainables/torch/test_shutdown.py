from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.listings import SCRIPTS
from trainables.torch import shutdown

pytestmark = [pytest.mark.torch, pytest.mark.timeout(400)]

SCRIPT = SCRIPTS / "ends_after_its_last_step.py"


def environment() -> dict[str, str]:
    own = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": str(Path(__file__).parents[3])}
    return {**os.environ, **own}


def test_ranks_that_end_right_after_their_last_step_do_not_abort() -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4", SCRIPT]

    for _ in range(3):
        done = subprocess.run(torchrun, capture_output=True, text=True, timeout=100, env=environment())
        assert done.returncode == 0, done.stderr


def test_a_thread_whose_name_is_cut_inside_a_character_does_not_keep_it_from_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shutdown, "_PATIENCE_S", 60.0)  # this machine may be slow
    over, at_rest = threading.Event(), threading.Event()

    def named(name: bytes, works: int, begun: threading.Event) -> None:
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_bytes(name)
        begun.set()
        for _ in range(works):
            over.wait(0.05)  # with a time limit: it does something
        if works:
            at_rest.set()
        over.wait()

    threads = []
    # The kernel keeps 15 bytes of a name, and takes no heed of characters.
    for name, works in (("Hintergrund-gräber".encode()[:15], 0), (b"pt_gloo_runloop", 10)):
        begun = threading.Event()
        threads.append(threading.Thread(target=named, args=(name, works, begun), daemon=True))
        threads[-1].start()
        assert begun.wait(60)
    try:
        shutdown.wait_for_gloo()
        assert at_rest.is_set()
    finally:
        over.set()
        for thread in threads:
            thread.join(60)
