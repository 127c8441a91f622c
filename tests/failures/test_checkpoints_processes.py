"""No process of a trial outlives its trial, and the next one starts only then (F35, T05)."""

from __future__ import annotations

import os
import select
import signal
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from checkpoint_faults import die, first_time, run

import tuner as tune

HELD = 8_000_000
GONE_WITHIN_S = 10.0


def family(file):
    """Four grandchildren that hold memory: plain, ignoring SIGTERM, in a session of its own, and both, forked twice."""
    for stubborn, session in ((False, False), (True, False), (False, True), (True, True)):
        reader, writer = os.pipe()
        if os.fork() == 0:
            if session:
                os.setsid()
                if os.fork():
                    os._exit(0)
            if stubborn:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            held = bytearray(HELD)
            with open(file, "a") as pids:
                pids.write(f"{os.getpid()}\n")
            os.write(writer, held[:1])
            while True:
                signal.pause()
        os.read(reader, 1)  # it is there, and noted
        os.close(reader)
        os.close(writer)


def alive(file):
    if not os.path.exists(file):
        return []
    return [pid for pid in map(int, Path(file).read_text().split()) if lives(pid)]


def lives(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def has_family(config):
    """Looks who is left of the trials before it, starts a family, and ends in its way."""
    left = alive(config["pids"])
    tune.report(left=left)
    if config["how"] == "last" or not first_time("family"):
        return
    family(config["pids"])
    if config["how"] == "raise":
        raise RuntimeError("crashed")
    if config["how"] == "kill":
        die()
    if config["how"] == "exit":
        os._exit(3)
    if config["how"] == "server":
        os.kill(parent_of(os.getppid()), signal.SIGKILL)  # the parent is the keeper, its parent the fork server
    if config["how"] in ("timeout", "server"):
        signal.pause()
    tune.report(left=[], stop=int(config["how"] == "stop"))


ENDS = ["return", "stop", "raise", "kill", "exit", "timeout", "last"]


@pytest.mark.parametrize("how", ENDS[:-1])
def test_f35_t05_a_family_ends_with_its_trial_and_before_the_next_begins(tmp_path, how):
    pids = str(tmp_path / "pids")
    analysis = run(
        has_family,
        tmp_path,
        config={"pids": pids, "how": tune.grid_search([how, "last"])},
        max_concurrent_trials=1,
        trial_timeout_s=6.0 if how == "timeout" else None,
        stop={"stop": 1},
        raise_on_failed_trial=False,
    )
    first, last = analysis.trials
    assert len(Path(pids).read_text().split()) == 4
    assert last.last_result["left"] == []
    assert alive(pids) == []
    assert first.status == ("TERMINATED" if how in ("return", "stop") else "ERROR")


def test_t05_a_killed_fork_server_takes_the_family_with_it_and_the_trial_starts_again(tmp_path):
    pids = str(tmp_path / "pids")
    (trial,) = run(has_family, tmp_path, config={"pids": pids, "how": "server"}).trials
    assert trial.attempt == 2 and trial.status == "TERMINATED"
    assert trial.last_result["left"] == []
    assert alive(pids) == []


def stopped_and_killed(config):
    """Told to stop after three results, it takes its fork server with it before anybody hears that it has gone."""
    checkpoint = tune.get_checkpoint()
    start = checkpoint.to_dict()["n"] if checkpoint else 0
    for n in range(start + 1, 9):
        with open(config["log"], "a") as log:
            log.write(f"{n} ")
        try:
            tune.report({"n": n}, checkpoint=tune.Checkpoint.from_dict({"n": n}) if n in config["saves"] else None)
        finally:
            if n == 3 and first_time("killed"):
                tune.get_checkpoint()  # which waits for the save before it
                os.kill(parent_of(os.getppid()), signal.SIGKILL)
                signal.pause()


@pytest.mark.parametrize("saves", [[1], [1, 3]], ids=["nothing to save", "saved"])
def test_r10_a_trial_that_was_told_to_stop_never_trains_on_when_its_fork_server_is_killed(tmp_path, saves):
    config = {"log": str(tmp_path / "log"), "saves": saves}
    (trial,) = run(stopped_and_killed, tmp_path, config=config, stop={"training_iteration": 3}).trials
    assert (trial.status, trial.iteration, trial.attempt) == ("TERMINATED", 3, 1)
    assert (tmp_path / "log").read_text() == "1 2 3 "


def waits(config):
    family(config["pids"])
    with open(config["ready"], "w") as ready:
        ready.write(".")
    signal.pause()


def test_f35_t05_a_killed_driver_takes_everything_with_it(tmp_path):
    pids, ready = tmp_path / "pids", tmp_path / "ready"
    os.mkfifo(ready)
    driver = os.fork()
    if driver == 0:
        try:
            run(waits, tmp_path, config={"pids": str(pids), "ready": str(ready)})
        finally:
            os._exit(0)
    try:
        with open(ready) as told:
            told.read()
        watched = {os.pidfd_open(int(pid)): int(pid) for pid in pids.read_text().split()}
    finally:
        os.kill(driver, signal.SIGKILL)
        os.waitpid(driver, 0)
    assert len(watched) == 4
    poll = select.poll()
    for fd in watched:
        poll.register(fd, select.POLLIN)
    while watched:
        ended = poll.poll(GONE_WITHIN_S * 1000)
        assert ended, f"still there: {sorted(watched.values())}"
        for fd, _ in ended:
            poll.unregister(fd)
            os.close(fd)
            del watched[fd]
