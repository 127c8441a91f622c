"""What a copy in S3 costs a run: steps of training, time blocked in a save, results per second, the driver's CPU.

Each is given as with a replica relative to without, both in fresh processes that take turns; medians of the pairs. The
server is s3_sink.py. The trial has one core, and driver, uploader and server the other.

- steps: the digits job of examples/ (batches of 32), a checkpoint for every epoch, relative to the same without any
  checkpoint, and to the same with checkpoints and without a replica (`of_saving`). `cpu` is the trial's CPU time per
  step, all of its threads: on a machine that others use it says more than the clock.
- blocked: median time in `report(checkpoint=)` of 10 MB handed over, a step of 0.2 s between two saves.
- results: of two trials that do nothing but report, and the CPU time of the driver for each of them.
"""

from __future__ import annotations

import json
import os
from typing import Any

from measuring import main, median, s3, sink, timed_script

PAIRS = 3
SHARED = """
import json, os, sys, tempfile, time
{imports}

os.sched_setaffinity(0, {{1 % os.cpu_count()}})  # what the run starts inherits it; the trial moves away
given = json.loads(sys.argv[2])
answer = os.path.join(sys.argv[1], "answer.json")

def alone():
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), {{0}})

def tell(found):
    with open(given["answer"], "w") as file:
        json.dump(found, file)

given["answer"] = answer
"""
STEPS = (
    SHARED
    + """
import torch
from torch import nn

def train(config):
    import sklearn.datasets
    alone()
    torch.set_num_threads(1)
    images, labels = sklearn.datasets.load_digits(return_X_y=True)
    images, labels = torch.tensor(images / 16, dtype=torch.float32).reshape(-1, 1, 8, 8), torch.tensor(labels)
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Dropout(0.1), nn.Linear(1024, 10),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    steps, began = 0, None
    for epoch in range(given["epochs"] + 2):
        if epoch == 2:
            steps, began, cpu = 0, time.perf_counter(), time.process_time()
        for rows in torch.randperm(1078).split(32):
            loss = nn.functional.cross_entropy(model(images[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
        with torch.no_grad():
            accuracy = (model(images[1078:]).argmax(1) == labels[1078:]).float().mean().item()
        if not given["saves"]:
            tune.report({{"accuracy": accuracy}})
            continue
        with tempfile.TemporaryDirectory() as directory:
            saved = {{"model": model.state_dict(), "optimizer": optimizer.state_dict()}}
            torch.save(saved, os.path.join(directory, "model.pt"))
            tune.report({{"accuracy": accuracy}}, checkpoint=tune.Checkpoint.from_directory(directory))
    tell([steps / (time.perf_counter() - began), (time.process_time() - cpu) / steps])

{run}
print("MARK", open(answer).read())
"""
)
BLOCKED = (
    SHARED
    + """
def train(config):
    alone()
    content, times = os.urandom(10_000_000), []
    for number in range(given["saves"]):
        directory = tempfile.mkdtemp()
        with open(os.path.join(directory, "model.bin"), "wb") as file:
            file.write(content[number:])
        began = time.perf_counter()
        tune.report({{"loss": 1.0}}, checkpoint=tune.Checkpoint.from_directory(directory, move=True))
        times.append(time.perf_counter() - began)
        until = time.perf_counter() + 0.2
        while time.perf_counter() < until:
            pass
    tell(sorted(times[2:])[len(times[2:]) // 2])

{run}
print("MARK", open(answer).read())
"""
)
RESULTS = (
    SHARED
    + """
class Count(tune.Callback):
    times = []
    def on_trial_result(self, result, **info):
        self.times.append((result["began"], time.time(), time.process_time()))

def train(config):
    began = time.time()
    for step in range(given["count"]):
        tune.report({{"loss": 1 / (step + 1), "step": step, "began": began}})

{run}
times = Count.times
rate = len(times) / (times[-1][1] - min(began for began, _, _ in times))
print("MARK", json.dumps([rate, (times[-1][2] - times[0][2]) / (len(times) - 1)]))
"""
)
OURS = "import tuner as tune"
RUN = """
tune.run(train, storage_path=sys.argv[1], verbose=0, num_samples={trials}, keep_checkpoints_num=2, {more}
         sync_config=tune.SyncConfig(upload_dir=given["to"]) if given["to"] else None)
"""
RAY = "from ray import tune"
RAY_RUN = """
from ray.tune import CheckpointConfig
config = CheckpointConfig(num_to_keep=2)
try:
    tune.run(train, storage_path=given["to"] or sys.argv[1], verbose=0, checkpoint_config=config)
except ValueError as error:
    if "No experiment snapshot" not in str(error):  # Ray reads its state back at the end; the server gives nothing
        raise
"""


def _once(source: str, port: int, **given: Any) -> Any:
    return timed_script(source, json.dumps(given), environment=s3(port))[0]


def _steps(imports: str, run: str, to: str) -> dict[str, Any]:
    source = STEPS.format(imports=imports, run=run)
    found: dict[str, list[list[float]]] = {"none": [], "saving": [], "replica": []}
    with _served() as port:
        target = to.format(port=port)
        for _ in range(PAIRS):
            found["none"].append(_once(source, port, epochs=25, saves=False, to=None))
            found["saving"].append(_once(source, port, epochs=25, saves=True, to=None))
            found["replica"].append(_once(source, port, epochs=25, saves=True, to=target))

    def relative(kind: str, to: str, figure: int) -> float:
        return median([a[figure] / b[figure] for a, b in zip(found[kind], found[to], strict=True)])

    return {
        "steps_of_none": relative("replica", "none", 0),
        "steps_of_saving": relative("replica", "saving", 0),
        "steps_cpu_of_none": relative("replica", "none", 1),
        "steps_cpu_of_saving": relative("replica", "saving", 1),
        "steps_per_s": median([rate for rate, _ in found["replica"]]),
        "steps_cpu_ms": median([cpu for _, cpu in found["replica"]]) * 1e3,
    }


def _served() -> Any:
    os.sched_setaffinity(0, {1 % (os.cpu_count() or 1)})
    return sink()


def _paired(source: str, **given: Any) -> tuple[list[Any], list[Any]]:
    """The answers with a replica, and without."""
    there, here = [], []
    with _served() as port:
        for _ in range(PAIRS):
            there.append(_once(source, port, to="s3://bench/cost", **given))
            here.append(_once(source, port, to=None, **given))
    return there, here


def _ours() -> dict[str, Any]:
    found = _steps(OURS, RUN.format(trials=1, more=""), "s3://bench/cost")
    there, here = _paired(BLOCKED.format(imports=OURS, run=RUN.format(trials=1, more="")), saves=22)
    found |= {
        "blocked_of_none": median([a / b for a, b in zip(there, here, strict=True)]),
        "blocked_ms": median(there) * 1e3,
    }
    source = RESULTS.format(imports=OURS, run=RUN.format(trials=2, more="callbacks=[Count()],"))
    there, here = _paired(source, count=10_000)
    found |= {
        "results_of_none": median([a[0] / b[0] for a, b in zip(there, here, strict=True)]),
        "results_cpu_of_none": median([a[1] / b[1] for a, b in zip(there, here, strict=True)]),
    }
    return found


def _ray() -> dict[str, Any]:
    return _steps(RAY, RAY_RUN, "s3://bench/cost?scheme=http&endpoint_override=127.0.0.1:{port}")


if __name__ == "__main__":
    main({"ours": _ours, "ray": _ray})
