"""What saving costs and interruptions undo with checkpoint_frequency="auto", of the same with the best fixed frequency.

Simulated: four trials at once, on a virtual clock, whose attempts are cut off after exponentially distributed times
with means from 2 minutes to 8 hours; saves of 0.2 to 20 s, steps of 1 to 30 s. The time that was not training that
counts, divided by that of whichever of seven fixed frequencies around the best one is best in hindsight.
`killed_of_best`: a class whose steps and saves sleep, in a real run, which kills itself (SIGKILL) after seeded numbers
of steps, 100 on the average; the time that was not a first training of a step, of that with the best of three.
"""

from __future__ import annotations

import heapq
import json
import math
import random
from collections.abc import Iterator
from typing import Any

from measuring import main, median, timed_script

from trainables.job import SavePace
from trainables.runtime.cadence import SaveCadence

SLOTS = 4
AROUND = (0.45, 0.65, 0.85, 1, 1.2, 1.5, 2)
CASES = [
    (mean_s, save_s, step_s)
    for mean_s in (120.0, 600.0, 3600.0, 28800.0)
    for save_s, step_s in ((0.2, 1.0), (1.0, 5.0), (5.0, 5.0), (20.0, 30.0))
]


class Standing:
    """A clock that moves when it is told to."""

    def __init__(self, now: float) -> None:
        self.now = now

    def time(self) -> float:
        return self.now

    monotonic = time


def wasted(mean_s: float, save_s: float, step_s: float, *, span_s: float, seed: int, every: int | None = None) -> float:
    """The share of the time of four trials that was not training that counts.

    Args:
        mean_s: mean time between two interruptions of one trial.
        span_s: how long all go on.
        every: save every so many steps; None: when it pays.
    """
    draws = random.Random(seed)
    lives = [_lives(mean_s, seed * 100 + slot) for slot in range(SLOTS)]
    begins = [(0.0, slot) for slot in range(SLOTS)]
    over: list[tuple[float, float]] = []
    useful, last_save_s = 0.0, None
    while begins:
        began, slot = heapq.heappop(begins)
        if began >= span_s:
            continue
        ends = min(began + next(lives[slot]), span_s)
        trained_s = sum(min(end, began) - start for start, end in over)
        pace = SavePace(trained_s, sum(end <= began for _, end in over), last_save_s)
        kept, last_save_s = _attempt(pace, began, ends, save_s, step_s, draws, every, whole=ends == span_s)
        useful += kept
        over.append((began, ends))
        heapq.heappush(begins, (ends, slot))
    return 1 - useful / sum(end - start for start, end in over)


def _lives(mean_s: float, seed: int) -> Iterator[float]:
    draws = random.Random(seed)
    while True:
        yield draws.expovariate(1 / mean_s)


def _attempt(
    pace: SavePace,
    began: float,
    ends: float,
    save_s: float,
    step_s: float,
    draws: random.Random,
    every: int | None,
    *,
    whole: bool,
) -> tuple[float, float | None]:
    """Seconds of training that an attempt leaves behind, and what its last save took."""
    clock, trained, kept, steps, last_save_s = Standing(began), 0.0, 0.0, 0, pace.save_s
    cadence = SaveCadence(pace, clock)
    while True:
        step = step_s * draws.uniform(0.8, 1.2)
        if clock.now + step > ends:
            return (trained if whole else kept), last_save_s
        clock.now, trained, steps = clock.now + step, trained + step, steps + 1
        cadence.step_done()
        due = cadence.due() if every is None else steps % every == 0
        cadence.reported(saved=False)
        if due:
            save = save_s * draws.uniform(0.8, 1.2)
            if clock.now + save > ends:
                return (trained if whole else kept), last_save_s
            clock.now, kept, last_save_s = clock.now + save, trained, save
            cadence.saved()


def of_best(mean_s: float, save_s: float, step_s: float, *, span_s: float, seeds: int) -> float:
    """What is wasted, of what the best fixed frequency wastes."""
    steps = math.sqrt(2 * save_s * mean_s) / step_s
    frequencies: list[int | None] = [*sorted({max(1, round(steps * factor)) for factor in AROUND})]
    means = [
        sum(wasted(mean_s, save_s, step_s, span_s=span_s, seed=seed, every=every) for seed in range(seeds))
        for every in [None, *frequencies]
    ]
    return means[0] / min(means[1:])


KILLED = """
import json, os, random, signal, statistics, sys, time
import tuner as tune

STEPS, STEP_S, SAVE_S, LOG = 8000, 0.005, 0.03, os.path.join(sys.argv[1], "log")
frequency = json.loads(sys.argv[2])

class Trains(tune.Trainable):
    def setup(self, config):
        self.steps, self.done, lives, self.until = 0, 0, random.Random(7), 0
        if os.path.exists(LOG):
            with open(LOG) as file:
                self.done = sum(len(json.loads(line)) for line in file)
        while self.until <= self.done:
            self.until += max(1, int(lives.expovariate(1 / 100)))
        self.ends = []

    def step(self):
        time.sleep(STEP_S)
        self.steps += 1
        self.ends.append(time.perf_counter())
        killed = self.done + len(self.ends) == self.until
        if killed or self.steps == STEPS:
            with open(LOG, "a") as file:
                file.write(json.dumps(self.ends) + chr(10))
        if killed:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"done": self.steps == STEPS}

    def save_checkpoint(self, directory):
        time.sleep(SAVE_S)
        with open(os.path.join(directory, "step"), "w") as file:
            file.write(str(self.steps))

    def load_checkpoint(self, checkpoint):
        with open(os.path.join(checkpoint, "step")) as file:
            self.steps = int(file.read())

tune.run(
    Trains, storage_path=sys.argv[1], verbose=0, max_failures=-1, checkpoint_freq=frequency, keep_checkpoints_num=1
)
with open(LOG) as file:
    lives = [json.loads(line) for line in file]
usual = statistics.median(after - before for life in lives for before, after in zip(life, life[1:]))
print("MARK", json.dumps(sum(life[-1] - life[0] + usual for life in lives) - STEPS * usual))
"""


def _killed() -> float:
    seconds = {every: timed_script(KILLED, json.dumps(every))[0] for every in ("auto", 20, 35, 60)}
    return float(seconds.pop("auto") / min(seconds.values()))


def _measure() -> dict[str, Any]:
    ratios = [of_best(*case, span_s=min(max(30 * case[0], 4 * 3600), 48 * 3600), seeds=6) for case in CASES]
    return {"of_best": max(ratios), "of_best_median": median(ratios), "killed_of_best": _killed()}


if __name__ == "__main__":
    main({"ours": _measure})
