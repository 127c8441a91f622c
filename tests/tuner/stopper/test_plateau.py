"""Plateaus of a trial and of the experiment."""

from __future__ import annotations

import math

import pytest

from tests.tuner.stopper.harness import results_until_stop
from tuner.error import SettingError
from tuner.stopper import (
    ExperimentPlateauStopper,
    TrialPlateauStopper,
)
from tuner.stopper.plateau import deviation


def test_a_plateau_of_a_trial() -> None:
    stopper = TrialPlateauStopper("loss", std=0.01, num_results=3, grace_period=2)
    assert results_until_stop(stopper, loss=lambda i: max(5 - i, 1)) == 6  # 1, 1, 1 at iterations 4, 5, 6


def test_a_plateau_waits_for_the_grace_period_and_the_threshold() -> None:
    flat = {"loss": lambda i: 1.0}
    assert results_until_stop(TrialPlateauStopper("loss", num_results=2, grace_period=7), **flat) == 7
    assert results_until_stop(TrialPlateauStopper("loss", metric_threshold=0.0, mode="min"), **flat) == 101
    assert results_until_stop(TrialPlateauStopper("loss", metric_threshold=1.0, mode="min"), **flat) == 4
    assert results_until_stop(TrialPlateauStopper("loss", metric_threshold=2.0, mode="max"), **flat) == 101


def test_a_plateau_is_not_made_of_gaps_or_nan() -> None:
    seldom = TrialPlateauStopper("loss", num_results=2, grace_period=1)
    assert [bool(seldom("t", {"loss": 1.0} if i % 3 == 0 else {})) for i in range(5)] == [
        False,
        False,
        False,
        True,
        False,
    ]
    broken = TrialPlateauStopper("loss", num_results=2, grace_period=1)
    assert not any(broken("t", {"loss": math.nan}) for _ in range(5))


def test_a_plateau_of_the_experiment() -> None:
    stopper = ExperimentPlateauStopper("acc", top=3, mode="max", patience=2)
    asked = [stopper(f"t{i}", {"acc": acc}) for i, acc in enumerate([0.1, 0.9, 0.9, math.nan, 0.9, 0.2])]
    assert asked == [False, False, False, False, False, True]  # the best three are equal from the fifth on
    assert stopper.stop_all()


def test_the_deviation_is_that_of_numpy() -> None:
    import numpy as np

    values = [1.0, 2.5, -3.0, 7.25]
    assert deviation(values) == pytest.approx(float(np.std(values)))


@pytest.mark.parametrize("kind", [TrialPlateauStopper, ExperimentPlateauStopper])
def test_several_metrics_are_refused_with_what_to_give_instead(kind: type) -> None:
    with pytest.raises(
        SettingError, match=rf"{kind.__name__}: metric=\['loss', 'size'\] .* stop=\[...\] takes a stopper for"
    ):
        kind(["loss", "size"])
