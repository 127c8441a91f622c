"""What a sharded save costs a training, and what loading one costs: `async_save`, `save_sharded` and `load_sharded`.

Stall: one process, a state of 200 MB in 20 tensors, one thread; the time in `async_save` relative to one copy of the
state into memory that is there (the floor), and the time in `torch.save` relative to the same. The first save allocates
the buffers and is not counted; between two saves the one before is waited for. Medians of 9.

Loading: 4 forked ranks save 200 MB, and 1.6 GB, in 20 tensors that are sharded over them; 2 ranks load them, into
tensors that are there, and read the bytes of the same files, each its half, into a buffer that is there and as large.
Both with a warm page cache, in turns; a turn takes as long as the slower rank. Medians of 9.
"""

from __future__ import annotations

from typing import Any

from measuring import main, timed_script

STALL = """
import json, os, shutil, sys, time
import torch
from trainables.torch import async_save

torch.set_num_threads(1)
state = {f"layer{i}": torch.rand(2_500_000) for i in range(20)}
copy = [torch.empty_like(value).fill_(0) for value in state.values()]

def timed(work):
    started = time.perf_counter()
    work()
    return time.perf_counter() - started

def copied():
    for there, value in zip(copy, state.values()):
        there.copy_(value)

ratios, saved = [], []
for number in range(10):
    place = os.path.join(sys.argv[1], str(number))
    floor = min(timed(copied) for _ in range(3))
    started = time.perf_counter()
    saving = async_save(state, place)
    stall = time.perf_counter() - started
    saving.wait()
    whole = timed(lambda: torch.save(state, os.path.join(sys.argv[1], "whole.pt")))
    if number:
        ratios.append(stall / floor)
        saved.append(whole / floor)
    shutil.rmtree(place)
print("MARK", json.dumps({"stall": sorted(ratios)[4], "torch_save": sorted(saved)[4]}))
"""

LOAD = """
import json, os, sys, time
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from trainables.torch import load_sharded, save_sharded

place, rows = os.path.join(sys.argv[1], "saved"), int(sys.argv[2])
torch.set_num_threads(1)

def ranks(size, part):
    pids = []
    for rank in range(size):
        pid = os.fork()
        if pid == 0:
            meet = f"file://{sys.argv[1]}/meet-{size}"
            dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=size)
            mesh = init_device_mesh("cpu", (size,))
            state = {f"layer{i}": distribute_tensor(torch.zeros(rows, 2500), mesh, [Shard(0)]) for i in range(20)}
            part(rank, state)
            dist.barrier()
            os._exit(0)
        pids.append(pid)
    for pid in pids:
        assert os.waitpid(pid, 0)[1] == 0

def saves(rank, state):
    for value in state.values():
        value.to_local().uniform_()
    save_sharded(state, place)

def loads(rank, state):
    mine = sorted(name for name in os.listdir(place) if name.endswith(".distcp"))[2 * rank : 2 * rank + 2]
    buffer = bytearray(sum(os.path.getsize(os.path.join(place, name)) for name in mine))
    memoryview(buffer)[:] = bytes(len(buffer))

    def read():
        view = memoryview(buffer)
        for name in mine:
            with open(os.path.join(place, name), "rb", buffering=0) as file:
                while view and (got := file.readinto(view)):
                    view = view[got:]

    def timed(work):
        dist.barrier()
        started = time.perf_counter()
        work()
        dist.barrier()
        return time.perf_counter() - started

    ratios = []
    for turn in range(10):
        bare = timed(read)
        whole = timed(lambda: load_sharded(state, place))
        if turn:
            ratios.append(whole / bare)
    if rank == 0:
        print("MARK", json.dumps(sorted(ratios)[4]), flush=True)

ranks(4, saves)
ranks(2, loads)
"""


def _ours() -> dict[str, Any]:
    environment = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    stall = timed_script(STALL, environment=environment)[0]
    small, large = (timed_script(LOAD, rows, environment=environment)[0] for rows in ("1000", "8000"))
    return {
        "stall_of_memcpy": stall["stall"],
        "torch_save_of_memcpy": stall["torch_save"],
        "load_of_read": small,
        "load_of_read_1600MB": large,
    }


if __name__ == "__main__":
    main({"ours": _ours})
