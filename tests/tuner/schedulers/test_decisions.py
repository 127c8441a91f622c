"""ASHA and HyperBand decide as the papers' traces do, and as Syne Tune's on the same curves."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tuner.executors import SimulatedExecutor, SimulatedSave
from tuner.schedulers import ASHAScheduler, Decision, HyperBandForBOHB
from tuner.testing import TrialStub

STORED = json.loads((Path(__file__).parents[2] / "data" / "asha_decisions.json").read_text("utf-8"))
"""What Syne Tune decided: `benchmarks/decision_trace.py` writes it anew."""


@pytest.mark.parametrize("trace", STORED["traces"], ids=lambda trace: str(trace["dataset"]))
def test_asha_decides_as_syne_tunes_but_of_the_first_who_is_not_among_the_best(trace: dict[str, Any]) -> None:
    """At a rung where n have been, the trial itself counted, both let the best floor(n / factor) go on, and stop
    whoever is two places behind them or more. The next one always goes on at Syne Tune; here, as at Ray Tune, where its
    result is not below the interpolated percentile of those before it.
    """
    factor, max_t = trace["settings"]["reduction_factor"], trace["settings"]["max_t"]
    scheduler = ASHAScheduler(metric="accuracy", mode="max", **trace["settings"])
    trials: dict[int, TrialStub] = {}
    before: dict[int, list[float]] = defaultdict(list)
    alike = 0
    for number, epoch, accuracy, their_stop in trace["results"]:
        if number not in trials:
            trials[number] = TrialStub(str(number))
            scheduler.on_trial_add(trials[number])
        result = {"training_iteration": epoch, "accuracy": accuracy}
        stop = scheduler.on_trial_result(trials[number], result) == Decision.STOP
        better, count = sum(other > accuracy for other in before[epoch]), len(before[epoch]) + 1
        before[epoch].append(accuracy)
        if count == 1 or epoch == max_t or better != math.floor(count / factor):
            assert stop == bool(their_stop), (number, epoch)
        assert stop >= their_stop, "it is never laxer"
        alike += stop == their_stop
    assert alike >= 0.94 * len(trace["results"]) > 80


class Watch(tune.Callback):
    changes_results = False

    def __init__(self) -> None:
        self.begun: list[int] = []
        """Whose way to a rung of factor 3 began, one after the other."""
        self.reached: Counter[int] = Counter()

    def on_trial_result(self, trial: Any, result: dict[str, Any], **info: Any) -> None:
        self.reached[result["training_iteration"]] += 1
        if result["training_iteration"] in (1, 2, 4):
            self.begun.append(trial.config["x"])


def simulated(scheduler: Any, orders: list[list[int]], epochs: int, slots: int, path: Path) -> Watch:
    """Configs from 1 on, whose loss is their place in the order of their epoch; a pause costs nothing.

    Args:
        orders: of the first epoch, of the second one, ...; the last one holds for all that follow.
    """

    def curve(config: dict[str, Any]) -> list[tuple[float, dict[str, float]]]:
        by_epoch = orders + orders[-1:] * (epochs - len(orders))
        return [(1.0, {"loss": order.index(config["x"])}) for order in by_epoch]

    watch = Watch()
    tune.run(
        lambda config: None,
        config={"x": tune.grid_search(list(range(1, len(orders[0]) + 1)))},
        metric="loss",
        mode="min",
        scheduler=scheduler,
        storage_path=path,
        verbose=0,
        callbacks=[watch],
        executor=SimulatedExecutor(
            curve,
            slots=slots,
            save=lambda config: SimulatedSave(),
            directories=False,
        ),
    )
    return watch


def test_promotions_come_in_the_order_of_the_papers_figure(tmp_path: Path) -> None:
    """Li et al. 2020, figure 2: nine configs, r = 1, R = 9, factor 3, one worker; 1, 6 and 8 are promoted, then 8."""
    scheduler = ASHAScheduler(max_t=9, reduction_factor=3, type="promotion")
    orders = [[1, 6, 8, 2, 3, 4, 5, 7, 9], [8, 1, 6, 2, 3, 4, 5, 7, 9]]
    watch = simulated(scheduler, orders, 9, 1, tmp_path)
    assert watch.begun == [1, 2, 3, 1, 4, 5, 6, 6, 7, 8, 9, 8, 8]


def test_hyperbands_largest_bracket_is_halved_as_in_the_papers_table(tmp_path: Path) -> None:
    """Li et al. 2018, table 1, s = 4: 81 configs for 1 unit, 27 for 3, 9 for 9, 3 for 27, 1 for 81."""
    order = [1 + 37 * number % 81 for number in range(81)]
    scheduler = HyperBandForBOHB(max_t=81, reduction_factor=3)
    watch = simulated(scheduler, [order], 81, 4, tmp_path)
    assert [watch.reached[rung] for rung in (1, 3, 9, 27, 81)] == [81, 27, 9, 3, 1]
    assert [watch.reached[rung + 1] for rung in (1, 3, 9, 27)] == [27, 9, 3, 1]
