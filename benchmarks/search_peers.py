"""Syne Tune's and Optuna's methods on the surrogate, on the same virtual time as ours.

Syne Tune runs its own `Tuner` loop on its own simulator. Its defaults cost virtual time that ours does not: it looks
for results every five seconds, each start and stop takes 0.05 s, and its own computing counts. Here it wakes at the
moment of an event, nothing of this costs anything, and neither do our own suggestions. Optuna is asked and told in a
loop of a few lines, as a user of several processes has it.
"""

from __future__ import annotations

import contextlib
import heapq
import io
import itertools
import logging
import os
import random
import tempfile
import time
from collections.abc import Callable
from operator import itemgetter
from typing import Any

import numpy as np
import optuna
from lcbench import EPOCHS, METRIC, Surrogate
from search_methods import REDUCTION, Run
from search_runs import MEMORY, Incumbent, Model, Score, Searched, model_of, references, same_configs
from syne_tune import Tuner, config_space
from syne_tune.backend.simulator_backend.simulator_backend import SimulatorBackend, SimulatorConfig
from syne_tune.backend.trial_status import Status
from syne_tune.optimizer import baselines
from syne_tune.tuner_callback import TunerCallback

EPOCH, ELAPSED = "training_iteration", "elapsed_time"
INSTANTLY = SimulatorConfig(0.0, 0.0, 0.0, 0.0, 0.0)


def syne_space(surrogate: Surrogate) -> dict[str, Any]:
    """The search space in Syne Tune's domains."""
    found = {}
    for name, bounds in surrogate.space.items():
        if bounds.whole:
            make = config_space.lograndint if bounds.log else config_space.randint
            found[name] = make(int(bounds.lower), int(bounds.upper))
        else:
            found[name] = (config_space.loguniform if bounds.log else config_space.uniform)(bounds.lower, bounds.upper)
    return found


class _Backend(SimulatorBackend):
    """Syne Tune's simulator, whose trials are looked up."""

    def __init__(self, results_of: Callable[[dict[str, Any]], list[dict[str, Any]]]) -> None:
        super().__init__(entry_point=__file__, elapsed_time_attr=ELAPSED, simulator_config=INSTANTLY)
        self._results_of = results_of

    def _advance_by_outside_time(self) -> None:
        """What the tuner computes costs no virtual time."""

    def _run_job_and_collect_results(self, trial_id: int, config: Any = None) -> tuple[str, list[dict[str, Any]]]:
        return Status.completed, self._results_of(config or self._trial_dict[trial_id].config)

    def advance_to_next_event(self) -> None:
        self.time_keeper.advance_to(self._simulator_state.event_heap[0][0])


class _Watch(TunerCallback):
    def __init__(self, incumbent: Incumbent, backend: _Backend, score: Score) -> None:
        self._incumbent, self._backend, self._score = incumbent, backend, score
        self.trials = 0

    def on_tuning_start(self, tuner: Any) -> None:
        self._backend.time_keeper.start_of_time()

    def on_tuning_sleep(self, sleep_time: float) -> None:
        self._backend.advance_to_next_event()

    def on_start_trial(self, trial: Any) -> None:
        self.trials += 1

    def on_trial_result(self, trial: Any, status: str, result: dict[str, Any], decision: str) -> None:
        self._incumbent.saw(result["st_tuner_time"], self._score(result))


def syne(
    make: Callable[..., Any],
    *,
    same: bool = False,
    model_of: Callable[[Surrogate, str], Model] = model_of,
    scorer: Callable[[str], Score] = lambda dataset: itemgetter(METRIC),
) -> Run:
    """The run of a scheduler of Syne Tune's, made from a space and a seed.

    Args:
        same: with the configs that our methods of that name get as well.
        model_of: what a trial reports, and when.
        scorer: from a data set to what makes a result the number that is measured.
    """

    def run(surrogate: Surrogate, dataset: str, seed: int, workers: int) -> Searched:
        random.seed(seed)
        np.random.seed(seed)  # its random search draws from it
        horizon_s = references()[dataset].horizon_s
        incumbent, model = Incumbent(horizon_s), model_of(surrogate, dataset)

        def results_of(config: dict[str, Any]) -> list[dict[str, Any]]:
            steps, results = zip(*model(config), strict=True)
            ends = itertools.accumulate(steps)
            return [
                {**one, ELAPSED: at, EPOCH: epoch} for epoch, (at, one) in enumerate(zip(ends, results, strict=True), 1)
            ]

        given = {"points_to_evaluate": same_configs(surrogate, seed)} if same else {}
        backend = _Backend(results_of)
        watch = _Watch(incumbent, backend, scorer(dataset))
        began = time.process_time()
        with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
            os.environ["SYNETUNE_FOLDER"] = folder
            with contextlib.redirect_stdout(io.StringIO()):
                Tuner(
                    trial_backend=backend,
                    scheduler=make(syne_space(surrogate), seed, **given),
                    stop_criterion=lambda status: backend.time_keeper.time() > horizon_s,
                    n_workers=workers,
                    sleep_time=0,
                    callbacks=[watch],
                    save_tuner=False,
                    print_update_interval=1e9,
                    tuner_name="search",
                ).run()
        return Searched(incumbent.improvements, watch.trials, incumbent.epochs, time.process_time() - began)

    return run


def _asha(kind: Any, *, same: bool = False) -> Run:
    def make(space: dict[str, Any], seed: int, **given: Any) -> Any:
        settings = {"time_attr": EPOCH, "max_t": EPOCHS, "reduction_factor": REDUCTION, **given}
        return kind(space, metric=METRIC, do_minimize=False, random_seed=seed, **settings)

    return syne(make, same=same)


def _whole(kind: Any) -> Run:
    """Without early stopping."""
    return syne(lambda space, seed: kind(space, metric=METRIC, do_minimize=False, random_seed=seed))


def _random(space: dict[str, Any], seed: int, **given: Any) -> Any:
    return baselines.RandomSearch(space, metrics=[METRIC], do_minimize=False, random_seed=seed, **given)


def by_optuna(make: Callable[[int], tuple[Any, Any]]) -> Run:
    """The run of a sampler and a pruner of Optuna, made from a seed."""

    def run(surrogate: Surrogate, dataset: str, seed: int, workers: int) -> Searched:
        horizon_s = references()[dataset].horizon_s
        incumbent = Incumbent(horizon_s)
        began = time.process_time()
        sampler, pruner = make(seed)
        study = optuna.create_study(direction="maximize", study_name="search", sampler=sampler, pruner=pruner)
        heap: list[tuple[float, int, int, float, Any, Any]] = []

        def start(now: float) -> None:
            trial = study.ask()
            config = {name: _suggested(trial, name, bounds) for name, bounds in surrogate.space.items()}
            curve = surrogate.curves(dataset, [config])[0]
            heapq.heappush(heap, (now + curve.seconds[0], trial.number, 1, now, trial, curve))

        for _ in range(workers):
            start(0.0)
        while heap[0][0] <= horizon_s:
            now, number, epoch, begun, trial, curve = heapq.heappop(heap)
            accuracy = curve.accuracy[epoch - 1]
            incumbent.saw(now, accuracy)
            trial.report(accuracy, epoch)
            if epoch == EPOCHS:
                study.tell(trial, accuracy)
                start(now)
            elif trial.should_prune():
                study.tell(trial, state=optuna.trial.TrialState.PRUNED)
                start(now)
            else:
                heapq.heappush(heap, (begun + curve.seconds[epoch], number, epoch + 1, begun, trial, curve))
        trials = len(study.get_trials(deepcopy=False))
        return Searched(incumbent.improvements, trials, incumbent.epochs, time.process_time() - began)

    return run


def _suggested(trial: Any, name: str, bounds: Any) -> float:
    if bounds.whole:
        return int(trial.suggest_int(name, int(bounds.lower), int(bounds.upper), log=bounds.log))
    return float(trial.suggest_float(name, bounds.lower, bounds.upper, log=bounds.log))


def _tpe(seed: int) -> Any:
    return optuna.samplers.TPESampler(seed=seed)


def _halving() -> Any:
    return optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=REDUCTION)


def _bands() -> Any:
    return optuna.pruners.HyperbandPruner(min_resource=1, max_resource=EPOCHS, reduction_factor=REDUCTION)


PEERS: dict[str, Run] = {
    "syne-random": syne(_random),
    "syne-asha": _asha(baselines.ASHA),
    "syne-random-same": syne(_random, same=True),
    "syne-asha-same": _asha(baselines.ASHA, same=True),
    "syne-bohb": _asha(baselines.BOHB),
    "syne-asha-cqr": _asha(baselines.ASHACQR),
    "syne-asha-bore": _asha(baselines.ASHABORE),
    "syne-cqr": _whole(baselines.CQR),
    "optuna-tpe": by_optuna(lambda seed: (_tpe(seed), optuna.pruners.NopPruner())),
    "optuna-tpe-median": by_optuna(lambda seed: (_tpe(seed), optuna.pruners.MedianPruner())),
    "optuna-tpe-halving": by_optuna(lambda seed: (_tpe(seed), _halving())),
    "optuna-tpe-hyperband": by_optuna(lambda seed: (_tpe(seed), _bands())),
}

logging.getLogger("syne_tune").setLevel(logging.ERROR)
optuna.logging.set_verbosity(optuna.logging.WARNING)
