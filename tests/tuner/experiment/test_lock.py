"""Ownership (R12): one owner, told apart by looking; what is left of a dead one is ended first."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tuner.experiment.harness import Driver, dead_here, lives, write_record
from tuner.clock import SystemClock, VirtualClock
from tuner.error import OwnedElsewhereError
from tuner.experiment.generations import read_records
from tuner.experiment.lock import claim
from tuner.experiment.ownership import Ownership
from tuner.experiment.paths import ExperimentPaths


def test_generations_are_numbered_and_know_their_parent(paths: ExperimentPaths) -> None:
    first = claim(paths, clock=SystemClock())
    assert (first.generation, first.parent_id) == (1, None)
    first.release()
    first.release()
    second = claim(paths, clock=SystemClock())
    assert second.generation == 2
    assert second.parent_id == first.id
    assert not os.get_inheritable(second.lock_fd)  # an executor hands it to its own, and to nobody else
    second.check()
    second.release()
    assert [record.released for record in read_records(paths)] == [True, True]
    assert sorted(os.listdir(paths.generations)) == ["000001.json", "000002.json", "lock"]


def test_f31_a_second_driver_in_the_same_process_is_refused_by_name(paths: ExperimentPaths) -> None:
    owner = claim(paths, clock=VirtualClock(1_600_000_000.0))
    with pytest.raises(OwnedElsewhereError) as refused:
        claim(paths, clock=SystemClock())
    assert f"pid {os.getpid()} on {socket.gethostname()} since 2020-09-13" in str(refused.value)
    assert len(read_records(paths)) == 1
    owner.check()
    owner.release()


def test_t04_a_stopped_owner_on_this_host_is_not_taken_over(
    paths: ExperimentPaths, driver: Callable[[], Driver]
) -> None:
    first = driver()
    first.order("claim", root=str(paths.root))
    os.kill(first.pid, signal.SIGSTOP)
    os.waitpid(first.pid, os.WUNTRACED)
    for takeover in (False, True):
        with pytest.raises(OwnedElsewhereError, match=f"pid {first.pid} on"):
            claim(paths, clock=SystemClock(), takeover=takeover)
    os.kill(first.pid, signal.SIGCONT)
    assert first.order("check") == {}, "it was left alone and goes on"
    first.kill()
    owner = claim(paths, clock=SystemClock())
    assert owner.generation == 2
    owner.release()


def test_a_killed_owner_that_nobody_collected_yet_is_dead(paths: ExperimentPaths, driver: Callable[[], Driver]) -> None:
    first = driver()
    first.order("claim", root=str(paths.root))
    os.kill(first.pid, signal.SIGKILL)
    os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)  # dead, and a zombie still
    claim(paths, clock=SystemClock()).release()


@pytest.mark.parametrize("rounds", [60, pytest.param(5000, marks=pytest.mark.soak)])
def test_f31_of_two_drivers_in_the_same_instant_one_wins(
    rounds: int, tmp_path: Path, driver: Callable[[], Driver]
) -> None:
    pair = driver(), driver()
    for number in range(rounds):
        for one in pair:
            one.send("claim", root=str(tmp_path / str(number)))
        answers = [one.answer() for one in pair]
        assert sorted("error" in answer for answer in answers) == [False, True], answers
        winner = pair["error" in answers[0]]
        assert next(a for a in answers if "error" in a)["error"].count(f"pid {winner.pid} on") == 1
        assert winner.order("check") == {}
        assert len(read_records(ExperimentPaths(tmp_path / str(number)))) == 1


def test_f31_of_two_drivers_after_a_dead_one_one_wins(tmp_path: Path, driver: Callable[[], Driver]) -> None:
    pair = driver(), driver()
    for number in range(20):
        root = tmp_path / str(number)
        write_record(ExperimentPaths(root), state="held", **dead_here())
        for one in pair:
            one.send("claim", root=str(root))
        answers = [one.answer() for one in pair]
        assert sorted("error" in answer for answer in answers) == [False, True], answers


def test_an_owner_whose_pid_is_somebody_elses_now_is_dead(paths: ExperimentPaths) -> None:
    write_record(paths, **dead_here())
    claim(paths, clock=SystemClock()).release()


class Waiting:
    """Records what is waited and said; time passes only by waiting."""

    def __init__(self) -> None:
        self.clock, self.said = VirtualClock(), []  # type: tuple[VirtualClock, list[str]]
        self.each: Callable[[], None] = lambda: None

    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.each()

    def claim(self, paths: ExperimentPaths, **more: Any) -> Ownership:
        return claim(paths, clock=self.clock, wait=self.wait, say=self.said.append, **more)


@pytest.mark.parametrize("changed", ["host", "boot", "pid_namespace"])
def test_an_owner_that_cannot_be_seen_is_stale_after_sixty_seconds(paths: ExperimentPaths, changed: str) -> None:
    write_record(paths, **(dead_here() | {changed: 5 if changed == "pid_namespace" else "other"}))
    waiting = Waiting()
    owner = waiting.claim(paths)
    assert waiting.clock.monotonic() == pytest.approx(60.0)
    assert len(waiting.said) == 1 and "waiting up to 60 s" in waiting.said[0]
    owner.release()


def test_takeover_does_not_wait_for_an_owner_that_cannot_be_seen(paths: ExperimentPaths) -> None:
    write_record(paths)
    waiting = Waiting()
    waiting.claim(paths, takeover=True).release()
    assert (waiting.clock.monotonic(), waiting.said) == (0.0, [])


def test_a_heartbeat_elsewhere_refuses(paths: ExperimentPaths) -> None:
    write_record(paths, beat=3)
    waiting = Waiting()
    waiting.each = lambda: write_record(paths, beat=3 + (waiting.clock.monotonic() > 50))
    with pytest.raises(OwnedElsewhereError, match="pid 7 on elsewhere"):
        waiting.claim(paths)


def test_an_owner_elsewhere_that_ends_meanwhile_is_waited_for_no_longer(paths: ExperimentPaths) -> None:
    write_record(paths)
    waiting = Waiting()
    waiting.each = lambda: write_record(paths, state="released")
    waiting.claim(paths).release()
    assert waiting.clock.monotonic() == 1.0


def test_a_copy_of_a_live_experiment_may_be_claimed_and_the_original_goes_on(
    paths: ExperimentPaths, tmp_path: Path, driver: Callable[[], Driver]
) -> None:
    first = driver()
    first.order("claim", root=str(paths.root))
    trial = first.start(recorded=True, lock=True)
    shutil.copytree(paths.root, tmp_path / "copy")
    copied = claim(ExperimentPaths(tmp_path / "copy"), clock=SystemClock())
    assert copied.generation == 2
    assert lives(trial) and first.order("check") == {}
    paths.root.rename(tmp_path / "moved")
    with pytest.raises(OwnedElsewhereError):
        claim(ExperimentPaths(tmp_path / "moved"), clock=SystemClock())
    copied.release()


def test_the_owner_itself_may_claim_a_copy_of_its_directory_and_not_the_directory(
    paths: ExperimentPaths, tmp_path: Path
) -> None:
    """As a notebook does that restores the copy of a run of its own."""
    owner = claim(paths, clock=SystemClock())
    shutil.copytree(paths.root, tmp_path / "copy")
    copied = claim(ExperimentPaths(tmp_path / "copy"), clock=SystemClock())
    assert copied.generation == 2
    for root in (paths.root, tmp_path / "copy"):
        with pytest.raises(OwnedElsewhereError):
            claim(ExperimentPaths(root), clock=SystemClock())
    owner.check()
    owner.release()
    copied.release()


def test_f49_without_locks_and_hard_links_one_wins_still(
    paths: ExperimentPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    monkeypatch.setattr(os, "link", refuse)
    owner = claim(paths, clock=SystemClock())
    with pytest.raises(OwnedElsewhereError):
        claim(paths, clock=SystemClock())
    owner.release()
    again = claim(paths, clock=SystemClock())
    assert again.generation == 2
    again.release()


def test_t12_a_clock_that_jumps_changes_nothing_about_owners(paths: ExperimentPaths) -> None:
    year = 365 * 86400.0
    for number, start in enumerate([2e9, 2e9 - 86400.0, 2e9 + year, 1.0], start=1):
        owner = claim(paths, clock=VirtualClock(start))
        assert owner.generation == number
        with pytest.raises(OwnedElsewhereError):
            claim(paths, clock=VirtualClock(start + year))
        owner.check()
        owner.release()


def test_a_record_that_was_torn_is_passed_over(paths: ExperimentPaths) -> None:
    paths.generations.mkdir(parents=True)
    paths.generation(1).write_bytes(b"")
    owner = Waiting().claim(paths)
    assert (owner.generation, owner.parent_id) == (2, None)
    owner.release()


def test_a_number_is_new_also_when_only_the_journal_remembers(paths: ExperimentPaths) -> None:
    paths.journal.mkdir(parents=True)
    paths.segment(5, 1).touch()
    owner = claim(paths, clock=SystemClock())
    assert owner.generation == 6
    owner.release()
