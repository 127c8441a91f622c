"""Limits on processes and threads: at whichever thread or process the system says no, it is said, and nothing hangs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
USER = 54321
"""A user who runs nothing else: his limit counts what a test starts."""
ENOUGH = 40
"""So many processes and threads none of these runs needs."""
HANGS_S = 90.0
NAMED = r"(pids\.max of the cgroup \S+|RLIMIT_NPROC \(ulimit -u\)) is \d+, and .*\d+ processes and threads"

SCRIPT = """
    import sys
    import trainables as train
    import tuner as tune
    from pathlib import Path
    from trainables.data_parallel_trainer import DataParallelTrainer

    place, kind = sys.argv[1:]

    def saves(config):
        for step in range(3):
            with tune.checkpoint_dir(step=step) as directory:
                Path(directory, "state").write_text(str(step))
            tune.report({"loss": step})

    class Saves(tune.Trainable):
        def step(self):
            return {"loss": 1, "done": self.iteration >= 2}

        def save_checkpoint(self, directory):
            Path(directory, "state").write_text("state")

    def saves_in_ranks(config):
        for step in range(3):
            train.report({"loss": step}, checkpoint=train.Checkpoint.from_dict({"step": step}))

    how = {"num_samples": 2, "keep_checkpoints_num": 1, "storage_path": place, "name": "e", "verbose": 2}
    if kind == "class":
        tune.run(Saves, checkpoint_config=train.CheckpointConfig(checkpoint_frequency=1), **how)
    elif kind == "replica":
        tune.run(saves, sync_config=tune.SyncConfig(upload_dir=place + "/copies", sync_timeout=20), **how)
    elif kind == "group":
        config = train.RunConfig(name="e", storage_path=place)
        scaling = train.ScalingConfig(num_workers=2)
        DataParallelTrainer(saves_in_ranks, scaling_config=scaling, run_config=config).fit()
    else:
        tune.run(saves, **how)
"""


@dataclass(frozen=True)
class Ended:
    """A run under a limit: how it ended, and what it said."""

    status: int
    said: str
    trials: str
    """What trials wrote about their ends."""

    def check(self) -> None:
        """It went well, or says which limit is reached."""
        if self.status:
            assert re.search(NAMED, self.said + self.trials, re.DOTALL), self.said
            assert "cannot join thread" not in self.said + self.trials


def command(script: Path, place: Path, kind: str) -> list[str]:
    return [sys.executable, "-W", "error", str(script), str(place), kind]


def run(command: list[str], place: Path, **how: object) -> Ended:
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONFAULTHANDLER": "1"},
        **how,
    )
    try:
        said, _ = process.communicate(timeout=HANGS_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"it hangs: {process.communicate()[0]}") from None
    errors = "".join(file.read_text() for file in place.glob("e/*/error.txt"))
    return Ended(process.returncode, said, errors)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    tmp_path.chmod(0o755)
    file = tmp_path / "script.py"
    file.write_text(textwrap.dedent(SCRIPT))
    return file


def cgroups() -> Path | None:
    """Where a group that limits processes can be made."""
    if os.access(top := Path("/sys/fs/cgroup/pids"), os.W_OK):
        return top
    own = Path("/sys/fs/cgroup", Path("/proc/self/cgroup").read_text().rpartition("::")[2].strip().lstrip("/"))
    for group in (own, *own.parents):
        control = group / "cgroup.subtree_control"
        if os.access(control, os.W_OK) and "pids" in control.read_text().split():
            return group
    return None


@contextmanager
def cgroup(limit: int) -> Iterator[Path]:
    """A group of at most so many processes and threads. None is left in it at the end."""
    top = cgroups()
    if top is None:
        pytest.skip("no cgroup that limits processes can be made here")
    group = top / f"tune-test-{os.getpid()}-{limit}"
    group.mkdir()
    try:
        (group / "pids.max").write_text(str(limit))
        yield group
        deadline = time.monotonic() + 10
        while (left := (group / "cgroup.procs").read_text().split()) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not left, "processes are left"
    finally:
        for pid in (group / "cgroup.procs").read_text().split():
            os.kill(int(pid), 9)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            try:
                group.rmdir()
                break
            except OSError:  # those that were killed are still ending
                time.sleep(0.01)


def in_cgroup(script: Path, kind: str, limit: int) -> Ended:
    place = script.parent / f"{kind}-{limit}"
    place.mkdir()
    with cgroup(limit) as group:
        return run(
            command(script, place, kind),
            place,
            preexec_fn=lambda: (group / "cgroup.procs").write_text(str(os.getpid())),
        )


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["function", "class", "replica", "group"])
def test_every_thread_and_process_that_cannot_be_started_is_named_with_the_limit(script, kind):
    """Each limit is hit at another thread or process; the first run that has enough ends well."""
    for limit in range(2, ENOUGH):
        ended = in_cgroup(script, kind, limit)
        ended.check()
        if not ended.status:
            assert limit > 5
            return
    raise AssertionError(f"it does not end well with {limit} either: {ended.said}")


@pytest.mark.parametrize(("kind", "limit"), [("function", 3), ("function", 8), ("replica", 7), ("group", 8)])
def test_a_thread_or_process_that_cannot_be_started_is_named_with_the_limit(script, kind, limit):
    ended = in_cgroup(script, kind, limit)
    ended.check()
    assert ended.status


def test_a_users_limit_is_named_and_the_trial_does_not_wait_for_a_thread_that_never_started(script):
    """As with `ulimit -u`: too few for the threads that save."""
    if os.getuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("it takes root and setpriv to run as a user who runs nothing else")
    may_read = "-all,+dac_override"  # the interpreter may lie where only root looks
    user = ["setpriv", "--reuid", str(USER), "--regid", str(USER), "--clear-groups"]
    user += ["--inh-caps", may_read, "--ambient-caps", "+dac_override", "--bounding-set", may_read]
    for limit in (9, 10):
        place = script.parent / f"user-{limit}"
        place.mkdir()
        os.chown(place, USER, USER)
        ended = run([*user, "prlimit", f"--nproc={limit}:{limit}", *command(script, place, "function")], place)
        ended.check()
        if ended.status:
            assert f"RLIMIT_NPROC (ulimit -u) is {limit}, and user {USER} has" in ended.said + ended.trials
