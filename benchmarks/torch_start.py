"""Start of the second and later trials of a trainable that imports torch, to its first line.

One trial at a time: from the moment the driver sees a trial complete to the first line of the next one's function.
"""

from __future__ import annotations

from typing import Any

from measuring import main, median, timed_script

SOURCE = """
import json, sys, time
import torch
{imports}

ends, firsts = [], []
class Watch(tune.Callback):
    def on_trial_complete(self, **info):
        ends.append(time.time())
    def on_trial_result(self, iteration, trials, trial, result, **info):
        firsts.append(result["first_line"])

def train(config):
    first_line = time.time()
    tune.report({{"first_line": first_line, "x": float(torch.ones(2).sum())}})

tune.run(train, num_samples=int(sys.argv[2]), storage_path=sys.argv[1], verbose=0, max_concurrent_trials=1,
         callbacks=[Watch()])
print("MARK", json.dumps([after - end for end, after in zip(ends, firsts[1:])]))
"""


def _measure(imports: str, count: int) -> dict[str, Any]:
    return {"next_start_s": median(timed_script(SOURCE.format(imports=imports), str(count))[0])}


if __name__ == "__main__":
    main(
        {
            "ours": lambda: _measure("import tuner as tune", 20),
            "ray": lambda: _measure("from ray import tune", 5),
        }
    )
