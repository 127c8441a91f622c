"""A class whose setup takes a second: 20 trials of one result, two at a time, with `reuse_actors=True` and without it.

How often `setup` was called, and seconds from the call to the end of the run. `empty`: the same with a setup that does
nothing, and more trials: what is left is the way from one trial to the next, as trials per second between the first and
the last that have ended.
"""

from __future__ import annotations

from typing import Any

from measuring import main, timed_script

SOURCE = """
import json, os, sys, time
{imports}

LOG = os.path.join(sys.argv[1], "setups")
open(LOG, "w").close()
ends = []
class Ends(tune.Callback):
    def on_trial_complete(self, **info):
        ends.append(time.perf_counter())

class Slow(tune.Trainable):
    def setup(self, config):
        with open(LOG, "a") as file:
            file.write("setup\\n")
        time.sleep({setup_s})

    def reset_config(self, config):
        return True

    def step(self):
        return {{"loss": self.config["x"], "done": True}}

    def save_checkpoint(self, directory):
        pass

    def load_checkpoint(self, checkpoint):
        pass

started = time.perf_counter()
tune.run(Slow, config={{"x": tune.uniform(0, 1)}}, num_samples=int(sys.argv[2]), storage_path=sys.argv[1], verbose=0,
         max_concurrent_trials=2, reuse_actors={reuse}, callbacks=[Ends()])
took = time.perf_counter() - started
print("MARK", json.dumps([len(open(LOG).readlines()), took, (len(ends) - 1) / (ends[-1] - ends[0])]))
"""
OURS, RAY = "import tuner as tune", "from ray import tune"


def _measure(imports: str, many: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for reuse, name in ((True, "reused"), (False, "fresh")):
        script = SOURCE.format(imports=imports, setup_s=1.0, reuse=reuse)
        found[f"{name}_setups"], found[f"{name}_s"], _ = timed_script(script, "20")[0]
        script = SOURCE.format(imports=imports, setup_s=0.0, reuse=reuse)
        found[f"empty_{name}_trials_per_s"] = timed_script(script, str(many))[0][2]
    return found


if __name__ == "__main__":
    main({"ours": lambda: _measure(OURS, 300), "ray": lambda: _measure(RAY, 20)})
