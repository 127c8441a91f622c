"""Forked ranks of one gloo group, for what several processes do together.

    python ranks_script.py DIRECTORY WORLD_SIZE PART

Every rank writes `result-<rank>.json` into the directory.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch.distributed as dist

from trainables.errors import InvalidSettingError, RanksError
from trainables.store import verify
from trainables.torch import AtomicDirectory, MetricsTracker

STEPS = 200
DYING = 2


def save(saver: AtomicDirectory, rank: int, *, forced: bool = False) -> str:
    directory = saver.prepare_checkpoint_directory(force_save=forced)
    Path(directory, f"rank_{rank}.pt").write_text(str(rank))
    saver.symlink_latest(directory)
    return directory


def many(place: Path, rank: int) -> dict[str, Any]:
    """200 saves with one kept; then a rank is killed in the middle of a save."""
    output = place / "out"
    saver = AtomicDirectory(output, is_master=rank == 1, keep_last=1, timeout_s=600)
    wrong = []
    for _ in range(STEPS):
        directory = save(saver, rank)
        if rank == 1:
            there = [each.path.name for each in verify.scan(output).complete]
            if there != [os.path.basename(directory)]:
                wrong.append(f"{directory}: {there}")
    latest = saver.latest_checkpoint()
    try:
        directory = saver.prepare_checkpoint_directory()
        if rank == DYING:
            os.kill(os.getpid(), signal.SIGKILL)
        saver.symlink_latest(directory)
        wrong.append("a rank is gone, and nobody noticed")
        told = ""
    except RanksError as error:
        told = str(error)
    return {"wrong": wrong, "latest": latest, "told": told}


def agree(place: Path, rank: int) -> dict[str, Any]:
    """Who decides on milestones, what of a master's failure the others learn, sums of unlike names."""
    found: dict[str, Any] = {}
    for strategy in ("sync_any", "sync_all"):
        saver = AtomicDirectory(place / strategy, is_master=rank == 0, strategy=strategy)
        found[strategy] = [os.path.basename(save(saver, rank, forced=rank < votes)) for votes in (0, 1, 2)]
    alone = AtomicDirectory(place / "async", is_master=True, strategy="async")
    found["async"] = [os.path.basename(save(alone, rank)) for _ in range(1 + rank)]
    for name, arguments in {
        "masters": {"is_master": True},
        "nobody": {"is_master": False},
        "keep_last": {"is_master": rank == 0, "keep_last": 1 + rank},
    }.items():
        try:
            AtomicDirectory(place / "refused", **arguments)
        except InvalidSettingError as error:
            found[name] = str(error)
    saver = AtomicDirectory(place / "failing", is_master=rank == 0)
    directory = saver.prepare_checkpoint_directory()
    if rank == 0:
        os.symlink(os.path.join(directory, "nowhere"), os.path.join(directory, "dangling"))
    try:
        saver.symlink_latest(directory)
    except Exception as error:
        found["failing"] = [type(error).__name__, str(error)]
    save(saver, rank)
    metrics = MetricsTracker().update({"all": 1 + rank, f"only_{rank}": 0.1}).reduce()
    metrics.reset_local().update({"all": 2.0**-40 + rank}).reduce()
    found["agg"] = metrics.agg
    dist.barrier()
    return found


def main() -> None:
    place, size, part = Path(sys.argv[1]), int(sys.argv[2]), {"many": many, "agree": agree}[sys.argv[3]]
    pids = []
    for rank in range(size):
        pid = os.fork()
        if pid == 0:
            try:
                dist.init_process_group("gloo", init_method=f"file://{place}/meet", rank=rank, world_size=size)
                (place / f"result-{rank}.json").write_text(json.dumps(part(place, rank)))
            except BaseException as error:
                print(f"rank {rank}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
                os._exit(1)
            os._exit(0)
        pids.append(pid)
    print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]))


if __name__ == "__main__":
    main()
