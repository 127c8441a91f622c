"""Trainables of the tests about checkpoints, disks and paths, and the faults that are put into them."""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tests.soak import counts
from trainables.store import verify


def restored() -> int:
    """Where a function trainable continues: the count that its checkpoint holds, 0 without one."""
    checkpoint = tune.get_checkpoint()
    if checkpoint is None:
        return 0
    with checkpoint.as_directory() as directory:
        return int(Path(directory, "count").read_text())


def save(count: int) -> None:
    """Save the count, handed over, with the next report."""
    with tune.checkpoint_dir() as directory:
        Path(directory, "count").write_text(str(count))


def first_time(name: str) -> bool:
    """True once per experiment, whatever dies: a file beside the experiment remembers."""
    marker = Path(tune.get_trial_dir()).parent / f".{name}-{tune.get_trial_id()}"
    with contextlib.suppress(FileExistsError):
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        return True
    return False


def die() -> None:
    """As the kernel ends a process that took too much memory."""
    os.kill(os.getpid(), signal.SIGKILL)


def count_up(config: dict[str, Any]) -> None:
    """Counts to n; saves every `every`-th time; dies once at `die_at`, before it reports; `more` come unsaved."""
    for count in range(restored() + 1, config["n"] + 1):
        if count == config.get("die_at") and first_time("died"):
            tune.get_checkpoint()  # which waits for the save before it
            die()
        if count % config.get("every", 1) == 0:
            save(count)
        tune.report(score=float(count), loss=-float(count))
    for _ in range(config.get("more", 0)):
        tune.report(score=0.0, loss=0.0)


def report_scores(config: dict[str, Any]) -> None:
    """Reports the given scores one after another, each with a checkpoint; MISSING leaves the metric out."""
    for count, score in list(enumerate(config["scores"], 1))[restored() :]:
        save(count)
        tune.report({"other": count} if score == "MISSING" else {"score": score, "other": count})


class Counter(tune.Trainable):
    """The class form of `count_up`."""

    def setup(self, config: dict[str, Any]) -> None:
        self.count = 0

    def step(self) -> dict[str, Any]:
        self.count += 1
        if self.count == self.config.get("die_at") and first_time_of(self, "died"):
            die()
        return {"count": self.count, "score": float(self.count), "done": self.count >= self.config.get("n", 10**9)}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"count": self.count}

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.count = checkpoint["count"]


def first_time_of(trainable: tune.Trainable, name: str) -> bool:
    marker = Path(trainable.logdir).parent / f".{name}-{trainable.trial_id}"
    with contextlib.suppress(FileExistsError):
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        return True
    return False


def die_at(point: str) -> None:
    """Arm this process: it is killed -9 at the first call of an operation of the store or the line to the driver.

    `point` is "before fs.rename", "after fs.rename", "before wire.post", ...
    """
    from trainables.socket_link import SocketLink
    from trainables.store import fs

    when, _, name = point.partition(" ")
    owner: Any = {"fs": fs, "wire": SocketLink}[name.partition(".")[0]]
    attribute = name.partition(".")[2]
    real = getattr(owner, attribute)

    def deadly(*arguments: Any, **more: Any) -> Any:
        if when == "after":
            real(*arguments, **more)
        die()

    setattr(owner, attribute, deadly)


class Crash(tune.Callback):
    """Kills the driver, as the kernel would, when a trial has reported so many results."""

    changes_results = False

    def __init__(self, at: int, *, hook: str = "on_trial_result", trials: int = 1) -> None:
        self.at, self.hook, self.left = at, hook, trials

    def __reduce__(self) -> Any:
        """A restore takes callbacks over: it is not to kill the next driver too."""
        return tune.Callback, ()

    def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **info: Any) -> None:
        if self.hook == "on_trial_result" and result["training_iteration"] == self.at:
            self._one()

    def on_checkpoint(self, iteration: int, trials: Any, trial: Any, checkpoint: Any, **info: Any) -> None:
        if self.hook == "on_checkpoint" and checkpoint.iteration == self.at:
            self._one()

    def _one(self) -> None:
        self.left -= 1
        if self.left == 0:
            die()


def killed_at(at: int, trainable: Any, *, hook: str = "on_trial_result", trials: int = 1, **settings: Any) -> None:
    """Run in a process of its own, whose driver is killed -9 at that point."""
    status = in_child(lambda: run(trainable, callbacks=[Crash(at, hook=hook, trials=trials)], **settings))
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, f"it was not killed: {status}"
    wait_for_its_processes(Path(settings["path"], settings.get("name", "e")))


def killed_at_fact(number: int, action: Callable[[], object], *, of: bytes = b"", written: bool | None = None) -> bool:
    """Act in a process of its own that is killed -9 with the n-th fact that it journals; False: it ended before.

    After an even one, or if it is to be `written`, the journal is written out first, so that what the fact is about is
    known and not done. `of`: only facts with that in them count.
    """
    from tuner.experiment.journal import JournalWriter

    real = JournalWriter.append
    left = number
    flushed = number % 2 == 0 if written is None else written

    def deadly(journal: JournalWriter, body: bytes, **more: Any) -> int:
        nonlocal left
        seq = real(journal, body, **more)
        left -= of in body
        if left == 0:
            if flushed:
                journal.flush()
            die()
        return seq

    return _killed(action, JournalWriter, "append", deadly)


def killed_at_order(number: int, action: Callable[[], object]) -> bool:
    """As `killed_at_fact`, when a scheduler orders something for the n-th time: journaled is why, and not what."""
    from tuner.driver.plugins.directives import Directives
    from tuner.experiment.journal import JournalWriter

    real, append = Directives.collect, JournalWriter.append
    left = number
    journals: list[JournalWriter] = []

    def noted(journal: JournalWriter, body: bytes, **more: Any) -> int:
        journals[:] = [journal]
        return append(journal, body, **more)

    def deadly(directives: Directives) -> bool:
        nonlocal left
        ordered = real(directives)
        left -= ordered and bool(journals)  # none yet: a resume that is told what was
        if ordered and left == 0:
            journals[0].flush()
            die()
        return ordered

    def armed() -> object:
        JournalWriter.append = noted  # type: ignore[method-assign]
        return action()

    return _killed(armed, Directives, "collect", deadly)


def _killed(action: Callable[[], object], owner: type, method: str, deadly: Callable[..., Any]) -> bool:
    def armed() -> None:
        setattr(owner, method, deadly)
        action()

    status = in_child(armed)
    assert status == 0 or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL), f"it failed: {status}"
    counts.count("kills of driver", int(status != 0))
    return status != 0


def wait_for_its_processes(root: Path) -> None:
    """Return when nothing of a killed driver runs any more: all that it started holds the experiment's lock."""
    with open(root / "generations" / "lock") as lock, contextlib.suppress(OSError):  # a test may have taken locks away
        fcntl.flock(lock, fcntl.LOCK_EX)


def in_child(action: Callable[[], object]) -> int:
    """Fork, act, and return the wait status."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        try:
            action()
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1]


def run(trainable: Any, path: Path, name: str = "e", **settings: Any) -> tune.ExperimentAnalysis:
    """`tune.run` with real trial processes, silent."""
    return tune.run(trainable, **{"storage_path": path, "name": name, "verbose": 0, **settings})


def kept(trial: Any) -> list[str]:
    """The checkpoints on disk, by their names."""
    return [published.path.name for published in verify.list_checkpoints(Path(trial.path))]


def iterations(trial: Any) -> list[int]:
    """The iterations of the checkpoints on disk, oldest save first; every one is hashed."""
    found = verify.list_checkpoints(Path(trial.path))
    for published in found:
        verify.check(published.path)
    return [published.ref.iteration for published in found]


def directories(trial: Any) -> list[str]:
    """Every directory in a trial's own, hidden ones too."""
    return sorted(entry.name for entry in os.scandir(trial.path) if entry.is_dir())


def rows(trial: Any) -> list[dict[str, Any]]:
    """The rows of result.json."""
    return [json.loads(line) for line in Path(trial.path, "result.json").read_text().splitlines()]


def facts(root: Path, *kinds: str) -> list[dict[str, Any]]:
    """The facts of the journal, of those kinds, in order; also those that are packed, as `zcat` has them."""
    journal = Path(root, "journal")
    files = [gzip.decompress(pack.read_bytes()) for pack in sorted(journal.glob("history/*.gz"))]
    files += [segment.read_bytes() for segment in sorted(journal.glob("*.jsonl"))]
    found: dict[int, dict[str, Any]] = {}
    for line in (line for file in files for line in file.splitlines()):
        try:
            told = json.loads(line)
        except ValueError:
            continue  # a torn line
        if "n" in told and (not kinds or told["f"]["kind"] in kinds):
            found[told["n"]] = told["f"]
    return [found[number] for number in sorted(found)]


def warned(caplog: Any, text: str) -> list[str]:
    """The warnings that hold a text."""
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING and text in r.getMessage()]


@contextlib.contextmanager
def volume(path: Path, size: str) -> Iterator[Path]:
    """A small filesystem of its own, mounted at `path`. Skips the test where root may not mount, as in a container."""
    path.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
    mounted = subprocess.run(command, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"no filesystem can be mounted here: {mounted.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def fill(place: Path, leave: int = 0) -> Path:
    """Fill the filesystem of `place` but for so many bytes; returns the file that does it."""
    ballast = place / f"ballast-{os.getpid()}"
    fd = os.open(ballast, os.O_WRONLY | os.O_CREAT)
    try:
        status = os.statvfs(place)
        free = status.f_bavail * status.f_frsize - leave
        step = max(free, 0)
        at = 0
        while step >= 512:
            try:
                os.posix_fallocate(fd, at, step)
                at += step
            except OSError:
                step //= 2
    finally:
        os.close(fd)
    return ballast
