"""Four ranks under torch's elastic launcher that save; in each life of theirs one is killed at another place.

    python -m tests.trainables.torch.killed_ranks DIRECTORY STRATEGY KEEP_LAST SHARE

A life builds an AtomicDirectory, looks whether what it finds is right, and saves twice. One rank is killed before one
of its calls to the disk: in the start, or in the second save, as the master (which publishes and deletes) or as another
rank. Then all of them are started again. SHARE: how many of these places are taken, drawn from a seed; 0: all.
Prints one line of JSON: how many places there are, how many were taken, what was wrong.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import secrets
import signal
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, launch_agent

from tests.trainables.torch.kill_points import Calls
from trainables.errors import CheckpointError
from trainables.store import verify
from trainables.torch import AtomicDirectory, atomic_torch_save

SIZE, NAME = 4, "run"
PLAN, WRONG = "plan.json", "wrong"


class Life:
    """One rank's, from a start to the next kill."""

    def __init__(self, number: int, place: Path, strategy: str, keep: int) -> None:
        self.place, self.output, self.strategy, self.keep = place, place / "out", strategy, keep
        self.number, self.rank = number, dist.get_rank()
        self.master = self.number % SIZE
        self.step = 0
        self.calls = Calls()

    def first(self, share: int) -> None:
        """Count the places, say which are to be taken, and die."""
        saver = self.start()
        began = self.calls.count()
        self.save(saver)
        self.save(saver)  # the first one had nothing to delete
        self.calls.count()
        self.save(saver)
        counts: list[Any] = [None] * SIZE
        dist.all_gather_object(counts, (began, self.calls.count()))
        if self.rank == 0:
            found = [("start", 0, call) for call in range(1, counts[self.master][0] + 1)]
            for victim in (0, 1):
                calls = counts[(self.master + victim) % SIZE][1]
                found += [("save", victim, call) for call in range(1, calls + 1)]
            taken = random.Random(6).sample(found, share) if share else found
            (self.place / PLAN).write_text(json.dumps({"points": len(found), "taken": taken}))
        dist.barrier()
        os.kill(os.getpid(), signal.SIGKILL)

    def next(self) -> None:
        """Return when all places of the plan were taken."""
        taken = json.loads((self.place / PLAN).read_text())["taken"]
        self.look()
        if self.number > len(taken):
            self.start()
            return
        phase, victim, call = taken[self.number - 1]
        if victim:  # each of the others in turn
            victim = 1 + self.number // SIZE % (SIZE - 1)
        dying = self.rank == (self.master + victim) % SIZE
        if phase == "start" and dying:
            self.calls.kill_before(call)
        saver = self.start()
        self.save(saver)
        self.nothing_else_lies_there()
        self.calls.kill_before(call if phase == "save" and dying else 0)
        self.save(saver)
        if phase == "save":
            self.wrong(f"nobody was killed: {phase}, {victim}, {call}")
        os.kill(os.getpid(), signal.SIGKILL)  # a start had less to do than the one that was counted

    # --- what a life does -------------------------------------------------------------------------------------

    def start(self) -> AtomicDirectory:
        saver = AtomicDirectory(self.output, self.rank == self.master, NAME, self.keep, self.strategy)
        latest = saver.latest_checkpoint()
        if latest is not None:
            steps = [torch.load(Path(latest, f"rank_{rank}.pt"))["step"] for rank in range(SIZE)]
            self.step = steps[self.rank]
            if len(set(steps)) > 1:
                self.wrong(f"{latest} is of several steps: {steps}")
            if self.rank == self.master and os.readlink(self.output / saver.symlink_name) != latest:
                self.wrong("the link does not lead to the latest")
        done = max((int(path.read_text()) for path in self.place.glob("done-*")), default=0)
        if self.step < done:
            self.wrong(f"step {done} was saved, and step {self.step} is what was found")
        return saver

    def save(self, saver: AtomicDirectory) -> None:
        directory = saver.prepare_checkpoint_directory()
        atomic_torch_save({"step": self.step + 1}, Path(directory, f"rank_{self.rank}.pt"))
        saver.symlink_latest(directory)
        self.step += 1
        (self.place / f"done-{self.rank}").write_text(str(self.step))

    # --- what must hold ---------------------------------------------------------------------------------------

    def look(self) -> None:
        """As the kill has left it, before anybody mends."""
        if self.rank == 0:
            try:
                link = os.readlink(self.output / f"{NAME}.latest_checkpoint")
                verify.check(Path(link))
                for published in verify.list_checkpoints(self.output):
                    verify.check(published.path)
            except (CheckpointError, OSError) as error:
                self.wrong(f"after the kill: {error}")
        dist.barrier()

    def nothing_else_lies_there(self) -> None:
        dist.barrier()
        if self.rank == self.master:
            ours = {f"{NAME}.latest_checkpoint", f"{NAME}.latest_checkpoint.name", f".{NAME}.saving", f".{NAME}.owner"}
            names = sorted(set(os.listdir(self.output)) - ours)
            if len(names) > self.keep or any(name.startswith(".") for name in names):
                self.wrong(f"leftovers: {names}")
            for name in names:
                files = sorted(os.listdir(self.output / name))
                if files != [".manifest.json", *(f"rank_{rank}.pt" for rank in range(SIZE))]:
                    self.wrong(f"{name} holds {files}")
        dist.barrier()

    def wrong(self, what: str) -> None:
        with open(self.place / WRONG, "a") as file:
            file.write(f"life {self.number}, rank {self.rank}: {what}\n")


def live(all_forked: Any, number: int, place: Path, strategy: str, keep: int, share: int) -> None:
    all_forked.wait()  # who is forked while the launcher's store looks up another one can have a lock for ever
    for caught in (signal.SIGTERM, signal.SIGINT):
        signal.signal(caught, signal.SIG_DFL)  # the launcher's handlers came along with the fork
    dist.init_process_group("gloo")
    life = Life(number, place, strategy, keep)
    if number == 0:
        life.first(share)
    else:
        life.next()
    dist.barrier()


def launched(*arguments: Any) -> bool:
    """Whether all ranks returned. Each life has a launcher of its own, as when a job is started again: one that
    restarts them hands them the store of the life before, where gloo finds the addresses of dead ranks, and waits."""
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=SIZE,
        run_id=secrets.token_hex(8),
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        local_addr="127.0.0.1",
        max_restarts=0,
        monitor_interval=0.01,
        start_method="fork",
    )
    try:
        launch_agent(config, live, [multiprocessing.get_context("fork").Barrier(SIZE), *arguments])
    except ChildFailedError:
        return False
    return True


def main() -> None:
    place, strategy, keep, share = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    lives = 0
    while not launched(lives, place, strategy, keep, share):
        lives += 1
    plan = json.loads((place / PLAN).read_text())
    wrong = (place / WRONG).read_text().splitlines() if (place / WRONG).exists() else []
    if lives != len(plan["taken"]) + 1:
        wrong.append(f"{lives} lives, not one for each place and one more")
    print(json.dumps({"points": plan["points"], "taken": len(plan["taken"]), "wrong": wrong}))


if __name__ == "__main__":
    main()
