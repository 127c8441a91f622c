"""HyperBand's pause of one trial and resume of another: from the end of a step to the next trial's first step.

One trial at a time, so that whoever reaches a rung is saved and ended, and another one is started, restored and takes
its step in between; the state is a number. `torch`: the same with a trainable that imports torch. Medians, over all
pairs of consecutive steps of two trials of which the second goes on from a checkpoint.
"""

from __future__ import annotations

from typing import Any

from measuring import main, timed_script

SOURCE = """
import json, sys, time
{imports}

class Curve(tune.Trainable):
    def setup(self, config):
        self.score, self.restored = 0.0, False

    def step(self):
        entered, restored = time.time(), self.restored
        self.restored = False
        self.score += self.config["speed"]
        return {{"score": self.score, "entered": entered, "restored": restored, "left": time.time()}}

    def save_checkpoint(self, directory):
        return {{"score": self.score}}

    def load_checkpoint(self, checkpoint):
        self.score, self.restored = checkpoint["score"], True

    def reset_config(self, config):
        self.config = config
        return True

class Steps(tune.Callback):
    seen = []
    def on_trial_result(self, trial, result, **info):
        self.seen.append((trial.trial_id, result["entered"], result["left"], result["restored"]))

tune.run(Curve, config={{"speed": tune.uniform(0.1, 1)}}, num_samples=int(sys.argv[2]), metric="score", mode="max",
         scheduler=HyperBandScheduler(max_t=9, reduction_factor=3), stop={{"training_iteration": 9}},
         max_concurrent_trials=1, storage_path=sys.argv[1], verbose=0, callbacks=[Steps()])
gaps = [after[1] - before[2] for before, after in zip(Steps.seen, Steps.seen[1:]) if after[3] and after[0] != before[0]]
print("MARK", json.dumps([sorted(gaps)[len(gaps) // 2], len(gaps)]))
"""
OURS = "import tuner as tune\nfrom tuner.schedulers import HyperBandScheduler"


def _measure(imports: str, count: int) -> dict[str, Any]:
    found = {}
    for name, before in (("", ""), ("torch_", "import torch\n")):
        gap, pairs = timed_script(SOURCE.format(imports=before + imports), str(count))[0]
        found |= {f"{name}pause_resume_s": gap, f"{name}pairs": pairs}
    return found


if __name__ == "__main__":
    main(
        {
            "ours": lambda: _measure(OURS, 51),
        }
    )
