"""Start of a training in two processes: from `python script.py` to the end of its first step, of a small DDP model.

Beside Ray Train, and beside plain torchrun, which starts the interpreter and imports torch once more for each process.
"""

from __future__ import annotations

import time
from typing import Any

from measuring import main, median, timed_script

LOOP = """
def train_func(config):
    model = prepare_model(torch.nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.nn.functional.cross_entropy(model(torch.randn(32, 64)), torch.zeros(32, dtype=torch.long)).backward()
    optimizer.step()
    if rank() == 0:
        with open(os.path.join(config["place"], "first_step"), "w") as file:
            file.write(str(time.time()))
    train.report({"x": 1.0})
"""
TRAINER = (
    """
import os, sys, time
import torch
{imports}
"""
    + LOOP.replace("{", "{{").replace("}", "}}")
    + """
def rank():
    return train.get_context().get_world_rank()

if __name__ == "__main__":
    TorchTrainer(
        train_func,
        train_loop_config={{"place": sys.argv[1]}},
        scaling_config=ScalingConfig(num_workers=2, resources_per_worker={{"CPU": 0.5}}),
        run_config=RunConfig(storage_path=sys.argv[1]{quiet}),
    ).fit()
    print("MARK", open(os.path.join(sys.argv[1], "first_step")).read())
"""
)
OURS = TRAINER.format(
    imports="import trainables as train\nfrom trainables import RunConfig, ScalingConfig\n"
    "from trainables.torch import TorchTrainer, prepare_model",
    quiet=", verbose=0",
)
RAY = TRAINER.format(
    imports="from ray import train\nfrom ray.train import RunConfig, ScalingConfig\n"
    "from ray.train.torch import TorchTrainer, prepare_model",
    quiet="",
)
TORCHRUN = (
    """
import os, sys, time
if "RANK" not in os.environ:
    import subprocess
    run = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--rdzv-backend=c10d",
           "--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1"]
    subprocess.run([*run, *sys.argv], check=True)
    print("MARK", open(os.path.join(sys.argv[1], "first_step")).read())
    sys.exit()
import torch
import torch.distributed
prepare_model = torch.nn.parallel.DistributedDataParallel
class train:
    report = print
def rank():
    return torch.distributed.get_rank()
"""
    + LOOP
    + """
torch.distributed.init_process_group("gloo")
train_func({"place": sys.argv[1]})
torch.distributed.destroy_process_group()
"""
)


def _measure(source: str, times: int) -> float:
    found = []
    for _ in range(times):
        began = time.time()
        found.append(timed_script(source, environment={"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"})[0] - began)
    return median(found)


def _ours() -> dict[str, Any]:
    first, plain = _measure(OURS, 3), _measure(TORCHRUN, 3)
    return {"first_step_s": first, "torchrun_s": plain, "of_torchrun": first / plain}


if __name__ == "__main__":
    main({"ours": _ours, "ray": lambda: {"first_step_s": _measure(RAY, 1)}})
