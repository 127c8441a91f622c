"""CPU seconds of driver and trial per 100 MB checkpoint, beyond `torch.save`.

Trial: CPU time of the whole process over ten saves, less that of its main thread inside `torch.save` (steps between
them sleep, which costs nothing). Driver: CPU time of its process between the first and the last of those results. The
fork server and the keeper only wait in this time.
"""

from __future__ import annotations

from typing import Any

from measuring import main, timed_script

SOURCE = """
import json, os, sys, tempfile, time
import torch
import tuner as tune

class Watch(tune.Callback):
    times = []
    def on_trial_result(self, **info):
        self.times.append(time.process_time())

def train(config):
    torch.set_num_threads(1)
    state = {"weights": torch.rand(25_000_000)}
    inside = 0.0
    for number in range(12):
        if number == 1:  # the first save warmed up
            inside, began = 0.0, time.process_time()
        directory = tempfile.mkdtemp()
        before = time.thread_time()
        torch.save(state, os.path.join(directory, "model.pt"))
        inside += time.thread_time() - before
        tune.report({"loss": 1.0}, checkpoint=tune.Checkpoint.from_directory(directory, move=True))
        time.sleep(0.5)
        if number == 10:
            with open(config["answer"], "w") as file:
                json.dump((time.process_time() - began - inside) / 10, file)

answer = os.path.join(sys.argv[1], "answer.json")
tune.run(train, config={"answer": answer}, storage_path=sys.argv[1], verbose=0, keep_checkpoints_num=2,
         callbacks=[Watch()])
with open(answer) as file:
    trial = json.load(file)
driver = (Watch.times[10] - Watch.times[0]) / 10
print("MARK", json.dumps({"cpu_s": trial + driver, "trial_cpu_s": trial, "driver_cpu_s": driver}))
"""


def _ours() -> dict[str, Any]:
    found: dict[str, Any] = timed_script(SOURCE)[0]
    return found


if __name__ == "__main__":
    main({"ours": _ours})
