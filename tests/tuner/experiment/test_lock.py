"""Ownership (R12): one owner, told apart by looking; what is left of a dead one is ended first."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tuner.clock import SystemClock, VirtualClock
from tuner.error import OwnedElsewhereError
from tuner.experiment import lock
from tuner.experiment.generations import GenerationRecord, read_records
from tuner.experiment.lock import claim
from tuner.experiment.ownership import Ownership, beating
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.processes import OWNER_VARIABLE, Identity, Processes

DRIVER = """
import json, os, subprocess, sys
from pathlib import Path
from tuner.clock import SystemClock
from tuner.error import OwnedElsewhereError
from tuner.experiment.lock import claim
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.processes import OWNER_VARIABLE, Processes

children = []
for line in sys.stdin:
    order = json.loads(line)
    try:
        if order["do"] == "claim":
            owner = claim(ExperimentPaths(Path(order["root"])), clock=SystemClock())
            answer = {"generation": owner.generation, "id": owner.id}
        elif order["do"] == "start":
            marked = {**os.environ, OWNER_VARIABLE: owner.id}
            child = subprocess.Popen(
                ["sleep", "600"], env=marked if order["marked"] else {}, start_new_session=True,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
                pass_fds=[owner.lock_fd] if order["lock"] else [],
            )
            children.append(child)
            start = Processes().start_time(child.pid)
            if order["recorded"]:
                owner.record_processes([(child.pid, start + order.get("off", 0))])
            answer = {"pid": child.pid}
        elif order["do"] == "check":
            owner.check()
            answer = {}
        elif order["do"] == "release":
            owner.release()
            answer = {}
    except OwnedElsewhereError as error:
        answer = {"error": str(error)}
    print(json.dumps(answer), flush=True)
"""


class Driver:
    """A real process that owns experiments on orders."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", DRIVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.pid = self.process.pid
        self.left: list[int] = []

    def send(self, do: str, **order: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **order}) + "\n")

    def answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def order(self, do: str, **order: Any) -> Any:
        self.send(do, **order)
        return self.answer()

    def start(self, *, marked: bool = True, recorded: bool = False, lock: bool = False, off: int = 0) -> int:
        pid = int(self.order("start", marked=marked, recorded=recorded, lock=lock, off=off)["pid"])
        self.left.append(pid)
        return pid

    def kill(self) -> None:
        """kill -9, and the zombie is collected."""
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.kill()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()
        for pid in self.left:
            if b"sleep" in Path(f"/proc/{pid}/cmdline").read_bytes() if Path(f"/proc/{pid}").exists() else b"":
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def driver() -> Iterator[Callable[[], Driver]]:
    drivers: list[Driver] = []

    def make() -> Driver:
        drivers.append(Driver())
        return drivers[-1]

    yield make
    for made in drivers:
        made.close()


@pytest.fixture
def paths(tmp_path: Path) -> ExperimentPaths:
    return ExperimentPaths(tmp_path / "exp")


def lives(pid: int) -> bool:
    return Processes().start_time(pid) is not None


def write_record(paths: ExperimentPaths, number: int = 1, *, beat: int = 0, state: str = "held", **owner: Any) -> None:
    """A record as another host's driver would have left it."""
    identity = Identity(**{"host": "elsewhere", "boot": "b", "pid_namespace": 1, "pid": 7, "start": 9} | owner)
    paths.generations.mkdir(parents=True, exist_ok=True)
    record = GenerationRecord(number, f"id-{number}", identity, 0.0, state=state, heartbeat=beat)
    paths.generation(number).write_bytes(msgspec.json.encode(record))


def test_generations_are_numbered_and_know_their_parent(paths: ExperimentPaths) -> None:
    first = claim(paths, clock=SystemClock())
    assert (first.generation, first.parent) == (1, None)
    first.release()
    first.release()
    second = claim(paths, clock=SystemClock())
    assert second.generation == 2
    assert second.parent == lock.Parent(1, first.id)
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


def test_what_a_dead_owner_left_running_is_ended_before_the_claim_returns(
    paths: ExperimentPaths, driver: Callable[[], Driver]
) -> None:
    first, bystander = driver(), driver()
    first.order("claim", root=str(paths.root))
    bystander.order("claim", root=str(paths.root.parent / "other"))
    marked, recorded = first.start(lock=True), first.start(marked=False, recorded=True, lock=True)
    reused = first.start(marked=False, recorded=True, off=-1)  # that pid, but not that process
    others = bystander.start()
    first.kill()
    owner = claim(paths, clock=SystemClock())
    assert not lives(marked) and not lives(recorded)
    assert lives(reused), "never by a bare pid"
    assert lives(others), "another experiment's"
    owner.release()


def test_one_that_holds_the_lock_and_cannot_be_told_is_named(
    paths: ExperimentPaths, driver: Callable[[], Driver]
) -> None:
    first = driver()
    first.order("claim", root=str(paths.root))
    nameless = first.start(marked=False, lock=True)
    first.kill()
    with pytest.raises(OwnedElsewhereError, match=rf"{nameless} \(sleep 600\)"):
        claim(paths, clock=SystemClock())
    fd = os.pidfd_open(nameless)
    os.kill(nameless, signal.SIGKILL)
    signal_end(fd)
    owner = claim(paths, clock=SystemClock())
    assert owner.generation == 2, "a refused claim leaves no number behind"
    owner.release()


def signal_end(fd: int) -> None:
    import select

    poller = select.poll()
    poller.register(fd, select.POLLIN)
    poller.poll()
    os.close(fd)


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


def dead_here() -> dict[str, Any]:
    """An owner of this pid namespace that lives no more."""
    me = Processes().me()
    return {"host": me.host, "boot": me.boot, "pid_namespace": me.pid_namespace, "pid": me.pid, "start": me.start - 1}


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


def test_a_stale_owner_finds_out_who_took_over(paths: ExperimentPaths) -> None:
    write_record(paths, **dead_here())
    stale = claim(paths, clock=SystemClock())
    stale.check()
    write_record(paths, 3, host="newhost")
    for call in (stale.check, stale.heartbeat):
        with pytest.raises(OwnedElsewhereError, match="taken over by generation 3: pid 7 on newhost"):
            call()
    stale.release()


def test_an_owner_finds_out_that_its_directory_is_gone(paths: ExperimentPaths) -> None:
    owner = claim(paths, clock=SystemClock())
    shutil.rmtree(paths.root)
    with pytest.raises(OwnedElsewhereError, match="removed or replaced"):
        owner.check()
    owner.release()


def test_a_directory_that_cannot_be_looked_at_just_now_is_not_called_gone(paths: ExperimentPaths) -> None:
    owner = claim(paths, clock=SystemClock())
    moved = paths.generations.with_name("moved")
    paths.generations.rename(moved)
    paths.generations.symlink_to(paths.generations.name)  # every look fails, and not for want of a name
    owner.check()
    paths.generations.unlink()
    moved.rename(paths.generations)
    owner.check()
    paths.generations.rename(moved)
    paths.generations.touch()
    with pytest.raises(OwnedElsewhereError, match="removed or replaced"):
        owner.check()
    paths.generations.unlink()
    owner.release()


def test_the_heartbeat_counts_in_place(paths: ExperimentPaths) -> None:
    owner = claim(paths, clock=SystemClock())
    before = os.stat(paths.generation(1))
    for _ in range(12):
        owner.heartbeat()
    (record,) = read_records(paths)
    assert (record.heartbeat, record.released, record.id) == (12, False, owner.id)
    after = os.stat(paths.generation(1))
    assert (after.st_ino, after.st_size) == (before.st_ino, before.st_size)
    owner.release()
    assert read_records(paths)[0].released


def test_f49_a_sign_of_life_that_cannot_be_written_ends_nothing(
    paths: ExperimentPaths, caplog: pytest.LogCaptureFixture
) -> None:
    owner = claim(paths, clock=SystemClock())
    moved = paths.generations.with_name("moved")
    for _ in range(2):
        paths.generations.rename(moved)
        paths.generations.symlink_to(paths.generations.name)  # it is there, and cannot be written to
        owner.heartbeat()
        owner.heartbeat()
        paths.generations.unlink()
        moved.rename(paths.generations)
        owner.heartbeat()
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2 and all("no sign of life could be written (Too many levels" in line for line in said), said
    assert read_records(paths)[0].heartbeat == 6
    caplog.clear()
    paths.generations.rename(moved)
    paths.generations.symlink_to(paths.generations.name)
    owner.release()
    (line,) = [record.getMessage() for record in caplog.records]
    assert "not released" in line


def test_an_owner_that_is_busy_gives_signs_of_life(paths: ExperimentPaths) -> None:
    owner = claim(paths, clock=SystemClock())
    with beating(owner, every_s=0.01):
        deadline = time.monotonic() + 30
        while read_records(paths)[0].heartbeat < 3:
            assert time.monotonic() < deadline
    beats = read_records(paths)[0].heartbeat
    with pytest.raises(OwnedElsewhereError, match="taken over"), beating(owner, every_s=0.01):
        paths.generation(2).touch()
        while "heartbeat" in {thread.name for thread in threading.enumerate()}:
            assert time.monotonic() < deadline
    assert read_records(paths)[0].heartbeat == beats
    owner.release()


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
    assert (owner.generation, owner.parent) == (2, None)
    owner.release()


def test_a_number_is_new_also_when_only_the_journal_remembers(paths: ExperimentPaths) -> None:
    paths.journal.mkdir(parents=True)
    paths.segment(5, 1).touch()
    owner = claim(paths, clock=SystemClock())
    assert owner.generation == 6
    owner.release()


def test_a_torn_line_of_recorded_processes_names_nobody(paths: ExperimentPaths) -> None:
    write_record(paths, **dead_here())
    paths.processes(1).write_text(f"{os.getpid()} 1\n{os.getpid()}")
    claim(paths, clock=SystemClock()).release()


def test_the_claimant_and_its_ancestors_are_spared(
    paths: ExperimentPaths, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A run started inside a trial of the dead owner must not end itself."""
    write_record(paths, **dead_here())
    code = (
        "import sys; from pathlib import Path; from tuner.clock import SystemClock\n"
        "from tuner.experiment.lock import claim; from tuner.experiment.paths import ExperimentPaths\n"
        f"print(claim(ExperimentPaths(Path({str(paths.root)!r})), clock=SystemClock()).generation)"
    )
    shell = f'{sys.executable} -c "$CODE"; true'
    environment = {**os.environ, OWNER_VARIABLE: "id-1", "CODE": code}
    run = subprocess.run(["sh", "-c", shell], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "2", run.stderr


def test_the_check_costs_next_to_nothing(paths: ExperimentPaths) -> None:
    owner = claim(paths, clock=SystemClock())
    start = time.process_time()
    for _ in range(1000):
        owner.check()
    assert time.process_time() - start < 0.2  # measured 0.005
    owner.release()
