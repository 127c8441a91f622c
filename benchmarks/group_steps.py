"""What `TorchTrainer` costs a step of training in two processes, of the same loop under plain torchrun.

DDP over gloo, one thread per rank, 5 to 10 ms a step on a free core, 600 steps; the trainer's ranks report after every
50. Of each block of 50 steps with its report, rank 0's time and CPU time, and the share of the time that was spent in
`report`; the medians of the blocks but the first two, of runs that take turns. On a machine that others use CPU time
and the share say more than the clock.
"""

from __future__ import annotations

from typing import Any

from measuring import main, median, timed_script

PAIRS = 3
LOOP = """
def train_func(config):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    nn = torch.nn
    model = nn.Sequential(nn.Linear(784, 384), nn.ReLU(), nn.Linear(384, 384), nn.ReLU(), nn.Linear(384, 10))
    model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images, labels = torch.randn(128, 784), torch.randint(0, 10, (128,))
    blocks = []
    for block in range(12):
        began, cpu = time.perf_counter(), time.process_time()
        for step in range(50):
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        metrics, stepped = {"loss": loss.item()}, time.perf_counter()
        report(metrics)
        ended = time.perf_counter()
        blocks.append(((ended - began) / 50, (time.process_time() - cpu) / 50, (ended - stepped) / (ended - began)))
    if torch.distributed.get_rank() == 0:
        found = [sorted(numbers)[len(blocks) // 2 - 1] for numbers in zip(*blocks[2:])]
        with open(os.path.join(config["place"], "answer.json"), "w") as file:
            json.dump(found, file)
"""
ANSWER = 'print("MARK", open(os.path.join(sys.argv[1], "answer.json")).read())\n'
OURS = f"""
import json, os, sys, time
import torch
from trainables import RunConfig, ScalingConfig, report
from trainables.torch import TorchTrainer
{LOOP}
if __name__ == "__main__":
    TorchTrainer(
        train_func,
        train_loop_config={{"place": sys.argv[1]}},
        scaling_config=ScalingConfig(num_workers=2, resources_per_worker={{"CPU": 0.5}}),
        run_config=RunConfig(storage_path=sys.argv[1], verbose=0),
    ).fit()
    {ANSWER}
"""
TORCHRUN = f"""
import json, os, sys, time
if "RANK" not in os.environ:
    import subprocess
    run = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--rdzv-backend=c10d",
           "--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1"]
    subprocess.run([*run, *sys.argv], check=True)
    {ANSWER}
    sys.exit()
import torch
import torch.distributed
def report(metrics):
    pass
{LOOP}
torch.distributed.init_process_group("gloo")
train_func({{"place": sys.argv[1]}})
torch.distributed.destroy_process_group()
"""


def _ours() -> dict[str, Any]:
    environment = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    trainer, plain = [], []
    for _ in range(PAIRS):
        trainer.append(timed_script(OURS, environment=environment)[0])
        plain.append(timed_script(TORCHRUN, environment=environment)[0])
    ours, bare = ([median(numbers) for numbers in zip(*runs, strict=True)] for runs in (trainer, plain))
    return {
        "step_ms": ours[0] * 1000,
        "step_of_torchrun": ours[0] / bare[0],
        "step_cpu_ms": ours[1] * 1000,
        "step_cpu_of_torchrun": ours[1] / bare[1],
        "in_report": ours[2],
    }


if __name__ == "__main__":
    main({"ours": _ours})
