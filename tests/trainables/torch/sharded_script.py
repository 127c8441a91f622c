"""Forked ranks that save a sharded state, and others, more or fewer, that load it.

    python sharded_script.py DIRECTORY

Prints one line of JSON: what each part found, by rank.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from trainables.errors import CheckpointError, PublishError, RanksError
from trainables.group.merging import merge
from trainables.store import verify
from trainables.torch import AtomicDirectory
from trainables.torch.sharded_state import _background, async_save, load_sharded, save_sharded

ROWS, UNEVEN = torch.arange(40.0).reshape(20, 2), torch.arange(7)
DEAD = 9


class Counter:
    """What has a state of its own."""

    def __init__(self, number: int) -> None:
        self.number = number

    def state_dict(self) -> dict[str, Any]:
        return {"number": self.number}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.number = state["number"]


def state_of(size: int, *, empty: bool = False) -> dict[str, Any]:
    """A state that is spread over so many ranks."""
    mesh = init_device_mesh("cpu", (size,))
    full = torch.zeros_like if empty else torch.clone
    return {
        "model": {
            "rows": distribute_tensor(full(ROWS), mesh, [Shard(0)]),
            "uneven": distribute_tensor(full(UNEVEN), mesh, [Shard(0)]),
            "same": distribute_tensor(full(ROWS), mesh, [Replicate()]),
        },
        "plain": full(torch.tensor([1.5, 2.5])),
        "step": 0 if empty else 3,
        "history": [0, {"loss": full(torch.ones(()))}],
        "counter": Counter(0 if empty else 5),
    }


def values_of(state: dict[str, Any]) -> list[Any]:
    full = [value.full_tensor().tolist() for value in state["model"].values() if isinstance(value, DTensor)]
    loss = state["history"][1]["loss"].item()
    return [*full, state["plain"].tolist(), state["step"], state["history"][0], loss, state["counter"].number]


def spoil(state: dict[str, Any]) -> None:
    """As the next step would."""
    for value in (*state["model"].values(), state["plain"], state["history"][1]["loss"]):
        (value.to_local() if isinstance(value, DTensor) else value).fill_(-1)
    state["step"], state["history"][0], state["counter"].number = -1, -1, -1


def saves(place: Path, rank: int, size: int) -> Any:
    """Each rank into a directory of its own; one of both ways together in one that all see."""
    state = state_of(size)
    save_sharded(state, place / "saved" / str(rank))
    saver = AtomicDirectory(place / "atomic", is_master=rank == 0)
    directory = saver.prepare_checkpoint_directory()
    saving = async_save(state, directory)
    spoil(state)
    saving.wait()
    saver.symlink_latest(directory)
    buffers = [buffer.data_ptr() for buffer in _background._buffers.values()]
    second = state_of(size)
    again = async_save(second, place / "behind" / str(rank))
    spoil(second)
    third = async_save(second, place / "later" / str(rank))  # waits for the one before
    found = [again.done(), [buffer.data_ptr() for buffer in _background._buffers.values()] == buffers]
    third.wait()
    return found


def loads(place: Path, rank: int, size: int) -> Any:
    found = []
    everything = ("whole-saved", "whole-behind", "whole-later", "atomic/AtomicDirectory_checkpoint_0")
    for name in everything if size == 2 else everything[:1]:
        state = state_of(size, empty=True)
        load_sharded(state, place / name)
        found.append(values_of(state))
    return found


def misses(place: Path, rank: int, size: int) -> Any:
    """Rank 1 finds nothing, then not all that it wants."""
    told = []
    for name, wanted in (("nowhere", "step"), ("whole-saved", "unknown")):
        state = {"plain": torch.ones(2), wanted if rank else "step": 0}
        try:
            load_sharded(state, place / (name if rank else "whole-saved"))
        except CheckpointError as error:
            told.append(f"{type(error).__name__}: {error}")
    return told


def fails(place: Path, rank: int, size: int) -> Any:
    """A rank that cannot write, then one that dies."""
    (place / "file").write_text("")
    told = []
    state = {"weights": torch.ones(3), "more": torch.ones(5)}
    try:
        async_save(state, place / ("file" if rank == 1 else "directory")).wait()
    except PublishError as error:
        told.append(str(error))
    async_save(state, place / "directory").wait()  # of the one before it was told
    async_save(state, place / ("file" if rank == 1 else "directory"))
    try:
        async_save(state, place / "directory")
    except PublishError:
        told.append("the one before failed")
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        save_sharded(state, place / "directory")
    except RanksError as error:
        told.append(str(error))
    return told


def ranks(place: Path, size: int, part: Callable[[Path, int, int], Any]) -> list[Any]:
    pids = []
    for rank in range(size):
        pid = os.fork()
        if pid == 0:
            try:
                meet = f"file://{place}/meet-{part.__name__}-{size}"
                dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=size)
                (place / f"result-{rank}.json").write_text(json.dumps(part(place, rank, size)))
            except BaseException as error:
                print(f"rank {rank} of {part.__name__}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
                os._exit(1)
            os._exit(0)
        pids.append(pid)
    ended = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    return [
        json.loads((place / f"result-{rank}.json").read_text()) if status == 0 else status
        for rank, status in enumerate(ended)
    ]


def main() -> None:
    place = Path(sys.argv[1])
    torch.set_num_threads(1)
    found: dict[str, Any] = {"saves": ranks(place, 4, saves)}
    for name in ("saved", "behind", "later"):
        whole, _ = merge([(rank, place / name / str(rank)) for rank in range(4)], place / name, keep_all_ranks=False)
        whole.rename(place / f"whole-{name}")
        found[name] = sorted(os.listdir(place / f"whole-{name}"))
    found["atomic"] = [each.path.name for each in verify.list_checkpoints(place / "atomic")]
    found |= {f"loads {size}": ranks(place, size, loads) for size in (2, 8)}
    found["misses"] = ranks(place, 2, misses)
    found["fails"] = ranks(place, 2, fails)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
