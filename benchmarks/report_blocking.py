"""Time blocked in `report(checkpoint=)` relative to the `torch.save` before it: 100 MB and 1 MB, handed over and lent.

One trial on one core; the driver has the other. Between two saves lies a training step that is longer than a publish
(matrix products in one thread). The first save of each kind warms up and is not counted. What is given is the median.
"""

from __future__ import annotations

from typing import Any

from measuring import main, timed_script

SOURCE = """
import json, os, shutil, sys, tempfile, time
import torch
{imports}

def train(config):
    torch.set_num_threads(1)
    left = torch.rand(300, 300)
    found = []
    for megabytes, step_s in ((100, 0.7), (1, 0.08)):
        state = {{"weights": torch.rand(megabytes * 250_000)}}
        for kind in config["kinds"]:
            ratios = []
            for _ in range(config["saves"] + 1):
                ratios.append(save(state, kind))
                until = time.perf_counter() + step_s
                while time.perf_counter() < until:
                    left @ left
            ratios = sorted(ratios[1:])
            found.append([kind, megabytes, ratios[len(ratios) // 2]])
    with open(config["answer"], "w") as file:
        json.dump(found, file)

def written(state, directory):
    started = time.perf_counter()
    torch.save(state, os.path.join(directory, "model.pt"))
    return time.perf_counter() - started

def save(state, kind):
    if kind == "checkpoint_dir":
        save.step = getattr(save, "step", 0) + 1
        with tune.checkpoint_dir(save.step) as directory:
            saved = written(state, directory)
            started = time.perf_counter()
        tune.report(loss=1.0)
        return (time.perf_counter() - started) / saved
    if kind == "move":
        directory = tempfile.mkdtemp()
        saved = written(state, directory)
        started = time.perf_counter()
        tune.report({{"loss": 1.0}}, checkpoint=Checkpoint.from_directory(directory, move=True))
        return (time.perf_counter() - started) / saved
    with tempfile.TemporaryDirectory() as directory:
        saved = written(state, directory)
        started = time.perf_counter()
        tune.report({{"loss": 1.0}}, checkpoint=Checkpoint.from_directory(directory))
        return (time.perf_counter() - started) / saved

answer = os.path.join(sys.argv[1], "answer.json")
tune.run(train, config={{"kinds": sys.argv[3].split(","), "saves": int(sys.argv[2]), "answer": answer}},
         storage_path=sys.argv[1], verbose=0,
         checkpoint_config=CheckpointConfig(num_to_keep=2))
print("MARK", open(answer).read())
"""


def _measure(imports: str, kinds: str, saves: int) -> dict[str, Any]:
    found = timed_script(SOURCE.format(imports=imports), str(saves), kinds)[0]
    return {f"{kind}_{megabytes}MB": ratio for kind, megabytes, ratio in found}


OURS = "import tuner as tune\nfrom tuner import Checkpoint, CheckpointConfig"
RAY = "from ray import tune\nfrom ray.tune import Checkpoint, CheckpointConfig"

if __name__ == "__main__":
    main(
        {
            "ours": lambda: _measure(OURS, "move,checkpoint_dir,lent", 7),
            "ray": lambda: _measure(RAY, "lent", 5),
        }
    )
