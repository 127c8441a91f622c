"""One simulated search: a method of ours on a data set of the surrogate, with a seed and so many workers.

It is `tune.run`'s ordinary loop on `SimulatedExecutor`: only the training is looked up instead of done.
"""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from lcbench import EPOCHS, METRIC, Surrogate

import tuner as tune
from tuner.executors import SimulatedExecutor

TRAININGS = 40
"""A search lasts as long as so many full trainings of average length take ..."""
WORKERS = 4
"""... on so many workers. With more of them it lasts as long, and trains more."""
SAME = 2_000
"""More configs than any search of 4 workers tries."""
MEMORY = Path("/dev/shm")
REFERENCE = Path(__file__).with_name("search_reference.json")

Improvement = tuple[float, float]
"""(virtual seconds from the start, the best accuracy so far)."""


Place = tuple[float, float]
"""A point of two objectives, both to be made large, none below 0."""

Model = Callable[[dict[str, Any]], Iterator[tuple[float, dict[str, float]]]]
Score = Callable[[Mapping[str, Any]], float]
"""Makes a result the number that is measured; higher is better."""


class Reference(NamedTuple):
    """Where a data set's regret begins and ends: `search_reference.py` makes them."""

    median: float
    """The accuracy (the best of the 52 epochs') that half of the random configs do not reach: regret 1."""
    best: float
    """The best one known: regret 0."""
    training_s: float
    """How long a full training takes, the mean of random configs."""
    least_epoch_s: float
    """Mean seconds an epoch of the quickest config known: 1 where hypervolume is measured."""
    most_epoch_s: float
    """Those that one of ten random configs is slower than: 0 there."""
    volume: float
    """The hypervolume of the best front known, of the places that `place` gives."""

    @property
    def horizon_s(self) -> float:
        """The virtual time of a search."""
        return TRAININGS / WORKERS * self.training_s

    def regret(self, accuracy: float) -> float:
        """The share of the way from the median to the best that is left; 1 at most."""
        return min(1.0, (self.best - accuracy) / (self.best - self.median))

    def place(self, accuracy: float, epoch_s: float) -> Place:
        """Both objectives from 0, the reference point of a hypervolume, to 1, the best known; the seconds by their
        logarithm.
        """
        quick = math.log(self.most_epoch_s / epoch_s) / math.log(self.most_epoch_s / self.least_epoch_s)
        return 1 - self.regret(accuracy), max(0.0, quick)


@cache
def references() -> dict[str, Reference]:
    """Of all data sets."""
    return {dataset: Reference(**found) for dataset, found in json.loads(REFERENCE.read_text("utf-8")).items()}


class Searched(NamedTuple):
    """What one search found."""

    improvements: list[Improvement]
    trials: int
    epochs: int
    cpu_s: float
    """CPU seconds of this process."""


class Incumbent:
    """The best accuracy so far and when it came."""

    def __init__(self, horizon_s: float) -> None:
        self.improvements: list[Improvement] = []
        self.epochs = 0
        self._horizon_s = horizon_s

    def saw(self, seconds: float, accuracy: float) -> None:
        if seconds > self._horizon_s:
            return
        self.epochs += 1
        if not self.improvements or accuracy > self.improvements[-1][1]:
            self.improvements.append((seconds, accuracy))


def domains(surrogate: Surrogate) -> dict[str, Any]:
    """The search space in our domains; the largest whole number is in it."""
    found: dict[str, Any] = {}
    for name, bounds in surrogate.space.items():
        if bounds.whole:
            make: Callable[[int, int], Any] = tune.lograndint if bounds.log else tune.randint
            found[name] = make(int(bounds.lower), int(bounds.upper) + 1)
        else:
            found[name] = (tune.loguniform if bounds.log else tune.uniform)(bounds.lower, bounds.upper)
    return found


def same_configs(surrogate: Surrogate, seed: int) -> list[dict[str, Any]]:
    """Random configs that the methods called `-same` try one after the other, in ours and in Syne Tune: what differs
    then is what the schedulers decide.
    """
    rows = surrogate.random_values(SAME, seed).tolist()
    kinds = [int if bounds.whole else float for bounds in surrogate.space.values()]
    return [{name: kind(value) for name, kind, value in zip(surrogate.space, kinds, row, strict=True)} for row in rows]


def model_of(surrogate: Surrogate, dataset: str) -> Model:
    """What SimulatedExecutor asks: a config's results and the seconds between them."""

    def model(config: dict[str, Any]) -> Iterator[tuple[float, dict[str, float]]]:
        curve = surrogate.curves(dataset, [config])[0]
        before = 0.0
        for seconds, accuracy in zip(curve.seconds, curve.accuracy, strict=True):
            yield seconds - before, {METRIC: accuracy}
            before = seconds

    return model


class _Watch(tune.Callback):
    changes_results = False

    def __init__(self, incumbent: Incumbent, clock: Any, score: Score) -> None:
        self._incumbent, self._clock, self._score, self.trials = incumbent, clock, score, 0

    def on_trial_start(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        self.trials += 1

    def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **info: Any) -> None:
        self._incumbent.saw(self._clock.monotonic(), self._score(result))


def search(
    surrogate: Surrogate,
    dataset: str,
    plugins: Mapping[str, Any],
    *,
    seed: int,
    workers: int = WORKERS,
    horizon_s: float | None = None,
    model: Model | None = None,
    score: Score = itemgetter(METRIC),
) -> Searched:
    """Run one search.

    Args:
        plugins: `search_alg`, `scheduler`, `metric` and `mode`, as `tune.run` takes them, all may be left out; `save`,
            what `SimulatedExecutor` takes.
        horizon_s: virtual seconds; None: the data set's.
        model: stands for the surrogate's, e.g. one that notes what it is asked.
        score: what the improvements are of.
    """
    horizon_s = references()[dataset].horizon_s if horizon_s is None else horizon_s
    settings = {"metric": METRIC, "mode": "max", **plugins}
    saving = {"save": settings.pop("save")} if "save" in settings else {}
    executor = SimulatedExecutor(model or model_of(surrogate, dataset), slots=workers, directories=False, **saving)
    incumbent = Incumbent(horizon_s)
    watch = _Watch(incumbent, executor.clock, score)
    began = time.process_time()
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as directory:
        tune.run(
            _train,
            name="search",
            config=domains(surrogate),
            num_samples=-1,
            stop={"training_iteration": EPOCHS},
            time_budget_s=horizon_s,
            storage_path=directory,
            seed=seed,
            verbose=0,
            callbacks=[watch],
            executor=executor,
            raise_on_failed_trial=True,
            **settings,
        )
    return Searched(incumbent.improvements, watch.trials, incumbent.epochs, time.process_time() - began)


def _train(config: dict[str, Any]) -> None:
    """Stands for the training; nobody calls it."""
