"""A lock says whether the process lives that runs an attempt."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

from tuner.experiment.holding import hold, is_held, wait_until_free


def test_it_is_held_until_its_process_ends(tmp_path: Path) -> None:
    assert not is_held(tmp_path)
    out, into = os.pipe()
    if (pid := os.fork()) == 0:
        hold(tmp_path)
        os.write(into, b"x")
        signal.pause()
    os.read(out, 1)
    assert is_held(tmp_path)
    waits = threading.Thread(target=wait_until_free, args=(tmp_path,))
    waits.start()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    waits.join(60)
    assert not waits.is_alive() and not is_held(tmp_path)


def test_who_comes_while_another_is_dying_holds_it_from_then_on(tmp_path: Path) -> None:
    dying = hold(tmp_path)
    quitter, waits_first = held_later(tmp_path)
    mine, waits = held_later(tmp_path)
    os.close(quitter)  # gives up before it is its turn
    os.close(dying)
    waits.join(60)
    assert not waits.is_alive() and is_held(tmp_path)
    os.close(mine)
    waits_first.join(60)  # its turn may be the last
    assert not waits_first.is_alive() and not is_held(tmp_path)


def held_later(directory: Path) -> tuple[int, threading.Thread]:
    """Hold what another holds: the descriptor, and the thread that waits."""
    before = threading.enumerate()
    held = hold(directory)
    (waits,) = [each for each in threading.enumerate() if each.name == "hold-trial" and each not in before]
    return held, waits


def test_who_lets_go_does_and_a_directory_that_is_gone_is_nobodys(tmp_path: Path) -> None:
    held = hold(tmp_path)
    assert is_held(tmp_path)
    os.close(held)
    assert not is_held(tmp_path)
    wait_until_free(tmp_path)
    gone = tmp_path / "gone"
    assert hold(gone) == -1 and not is_held(gone)
    wait_until_free(gone)
