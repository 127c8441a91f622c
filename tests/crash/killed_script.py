"""The script that `test_real_kills.py` runs and kills: `python killed_script.py STORAGE [PLACE]`, again and again.

With a PLACE copies go there.

CRASH in its environment names a point at which somebody is killed: {"where": "driver" or "trial", "victim": ...} and
either {"call": n}, the n-th call of a primitive of `trainables.store.fs` in that process, or {"fact": kind, "nth": n},
the n-th fact of that kind when it has just been written. It happens once per CRASH.

PACE in its environment, [bytes, seconds], says how often the journal is compacted and small files go to the PLACE.
"""

from __future__ import annotations

import functools
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import tuner as tune
from trainables.store import fs, verify
from tuner.experiment import journal_writer

EPOCHS = 6
TRIALS = 4
SEED = 11
PRIMITIVES = (
    "mkdir", "rename", "link", "unlink", "rmdir", "open_append", "create", "write", "fsync", "fdatasync", "fsync_file",
    "fsync_dir", "truncate", "copy_file",
)  # fmt: skip
DRIVER = "CRASH_DRIVER"


def value_of(x: float, epoch: int) -> float:
    return random.Random(f"{x}:{epoch}").random()


# --- being killed -------------------------------------------------------------------------------------------


def children(parent: int) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and int(Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()[1]) == parent:
                found.append(int(name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def copies(pid: int) -> bool:
    """Whether it is the process that copies to the place."""
    try:
        return b"trainables.transfer.agent" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


def kill(victim: str) -> None:
    """SIGKILL them: the driver, its uploader, its fork server, that one's keepers, their trials, or all at once."""
    driver = int(os.environ[DRIVER])
    uploaders = [child for child in children(driver) if copies(child)]
    servers = [child for child in children(driver) if child not in uploaders]
    keepers = [keeper for server in servers for keeper in children(server)]
    trials = [trial for keeper in keepers for trial in children(keeper)]
    some = {"driver": [driver], "uploader": uploaders, "server": servers, "keepers": keepers, "trial": trials[:1]}
    everybody = some.get(victim, [*trials, *keepers, *servers, *uploaders, driver])
    for pid in sorted(everybody, key=lambda pid: pid == os.getpid()):  # oneself last
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue  # it died with another one


class Fault:
    """Counts calls in this process until the point is reached."""

    def __init__(self, point: dict[str, Any], once: Path) -> None:
        self.point, self.once, self.seen = point, once, 0

    def happen(self) -> None:
        try:
            os.close(os.open(self.once, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        kill(self.point["victim"])

    def wrap(self, name: str, real: Any) -> Any:
        @functools.wraps(real)
        def counted(*args: Any, **more: Any) -> Any:
            result = real(*args, **more)
            fact = self.point.get("fact")
            if fact is None:
                self.seen += 1
            elif name == "write":
                self.seen += bytes(args[1]).count(b'"kind":"%b"' % fact.encode())
            if self.seen >= self.point.get("nth", self.point.get("call")):
                self.happen()
            return result

        return counted


def arm(where: str, storage: Path) -> None:
    point = json.loads(os.environ.get("CRASH", "null"))
    if point is not None and point["where"] == where:
        fault = Fault(point, storage / f"once-{point['id']}")
        for name in PRIMITIVES:
            setattr(fs, name, fault.wrap(name, getattr(fs, name)))


# --- what is run --------------------------------------------------------------------------------------------


def tell(storage: Path, **what: Any) -> None:
    fd = os.open(storage / "told", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.write(fd, json.dumps(what).encode() + b"\n")
    os.close(fd)


def train(config: dict[str, Any]) -> None:
    storage = Path(config["storage"])
    arm("trial", storage)
    trial = tune.get_trial_id()
    checkpoint = tune.get_checkpoint()
    found = verify.list_checkpoints(Path(tune.get_trial_dir() or ""))
    start = checkpoint.to_dict()["epoch"] if checkpoint else 0
    tell(storage, kind="start", trial=trial, epoch=start, newest=found[-1].ref.iteration if found else 0)
    if config["x"] < 0.5:  # it leaves the process group, and outlives whoever does not look after it
        subprocess.Popen(["sleep", "600"], start_new_session=True, stdin=subprocess.DEVNULL)
    for epoch in range(start + 1, EPOCHS + 1):
        time.sleep(0.005)  # the training
        state = tune.Checkpoint.from_dict({"epoch": epoch, "weights": bytes(20_000)})
        tune.report({"v": value_of(config["x"], epoch)}, checkpoint=state)
        tell(storage, kind="report", trial=trial, epoch=epoch)


def main(storage: Path, place: Path | None = None) -> None:
    os.environ[DRIVER] = str(os.getpid())
    arm("driver", storage)
    journal_writer.COMPACT_BYTES, period_s = json.loads(os.environ.get("PACE", "[1048576, 300]"))
    tune.run(
        train,
        name="e",
        config={"x": tune.uniform(0, 1), "storage": str(storage)},
        num_samples=TRIALS,
        keep_checkpoints_num=2,
        checkpoint_score_attr="max-v",
        max_failures=3,
        resume="AUTO",
        seed=SEED,
        storage_path=storage,
        sync_config=tune.SyncConfig(upload_dir=place, sync_period=period_s),
        resources_per_trial={"cpu": 0.5},
        verbose=0,
    )


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
