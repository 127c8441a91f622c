"""What a trial is compared by: its last result, the best of all, or a mean."""

from __future__ import annotations

import itertools
import math
import random
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tuner.analysis.harness import run_trials
from tests.tuner.lab import Lab
from tuner.analysis import ResultGrid, scopes
from tuner.callback import CallbackList
from tuner.error import SettingError
from tuner.experiment import events as ev

SCOPES = ["last", "all", "avg", "last-2-avg", "last-5-avg", "last-10-avg"]


def by_pandas(history: list[Any], mode: str, scope: str) -> float:
    """What a person would compute by hand."""
    values = pd.Series(history, dtype=float)
    if scope == "all":
        return float(values.min() if mode == "min" else values.max())
    if scope == "avg":
        return float(values.mean())
    if scope == "last":
        return float(values.iloc[-1])
    return float(values.tail(int(scope.split("-")[1])).mean())


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("metric", ["loss", "eval/loss"])
@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("scope", SCOPES)
def test_each_scope_is_what_pandas_says(lab: Any, scope: str, mode: str, metric: str, ended: bool) -> None:
    draw = random.Random(7)
    histories: list[list[float]] = [
        [draw.choice([draw.gauss(0, 1), math.nan]) for _ in range(draw.randint(1, 14))] for _ in range(12)
    ]
    for history in histories:
        trial = lab.trial(lr=0.1)
        for value in history:
            lab.report(trial, **({"loss": value} if metric == "loss" else {"eval": {"loss": value}}))
        if ended:
            lab.end(trial)

    for trial, history in zip(lab.state.trials, histories, strict=True):
        found, wanted = scopes.score(trial, metric, mode, scope), by_pandas(history, mode, scope)
        assert found == pytest.approx(wanted, nan_ok=True)

    wanted_scores = [by_pandas(history, mode, scope) for history in histories]
    finite = [value for value in wanted_scores if math.isfinite(value)]
    best = lab.analysis().get_best_trial(metric, mode, scope)
    assert wanted_scores[best.index] == (min if mode == "min" else max)(finite)


@pytest.mark.parametrize("scope", ["all", "last", "avg"])
@pytest.mark.parametrize("mode", ["min", "max"])
def test_f06_nan_is_never_best_in_any_order(tmp_path: Path, mode: str, scope: str) -> None:
    values = [math.nan, 1.0, math.inf, -math.inf, 3.0, None]
    for number, order in enumerate(itertools.permutations(values)):
        if number % 24:
            continue
        lab = Lab(tmp_path / str(number))
        trials = run_trials(lab, *([value] for value in order))
        scored = dict(zip(order, trials, strict=True))

        finite = lab.analysis().get_best_trial("loss", mode, scope, filter_nan_and_inf=True)
        infinite = lab.analysis().get_best_trial("loss", mode, scope)
        result = ResultGrid(lab.analysis()).get_best_result("loss", mode, scope)

        assert finite is scored[1.0 if mode == "min" else 3.0]
        assert infinite is scored[-math.inf if mode == "min" else math.inf]
        assert result.path == infinite.path
        assert lab.analysis().get_best_trial("loss", mode, scope, filter_nan_and_inf=False) is infinite


def test_only_nan_is_best_only_when_asked_for(lab: Any, caplog: pytest.LogCaptureFixture) -> None:
    (trial,) = run_trials(lab, [math.nan])

    assert lab.analysis().get_best_trial() is None
    assert "NaN" in caplog.text or "no trial has reported a number" in caplog.text
    assert lab.analysis().get_best_trial(filter_nan_and_inf=False) is trial


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("mode", ["min", "max"])
def test_of_equal_trials_the_earlier_is_best(lab: Any, mode: str, scope: str) -> None:
    run_trials(lab, [2.0], [1.0], [1.0], [2.0])

    assert lab.analysis().get_best_trial("loss", mode, scope).index == (1 if mode == "min" else 0)


@pytest.mark.parametrize("scope", ["last", "all", "avg", "last-5-avg"])
def test_f11_a_metric_that_is_not_in_every_result_still_counts(lab: Any, scope: str) -> None:
    run_trials(lab, [None, 0.5, None], [None, None], [0.9, None, None])

    assert lab.analysis().get_best_trial("loss", "min", scope).index == 0


@pytest.mark.parametrize("scope", ["best", "last-0-avg", "last-avg", "LAST", ""])
def test_an_unknown_scope_is_refused(lab: Any, scope: str) -> None:
    with pytest.raises(SettingError, match="last-5-avg"):
        lab.analysis().get_best_trial(scope=scope)


def test_training_iteration_is_a_metric_too(lab: Any) -> None:
    run_trials(lab, [1.0], [1.0, 1.0, 1.0], [1.0, 1.0])

    assert lab.analysis().get_best_trial("training_iteration", "max", "all").index == 1


def test_the_best_of_10000_trials_reads_no_history(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.callbacks = CallbackList([])
    trial = lab.trial(lr=0.1)
    raw = trial.raw_config
    for index in range(1, 10_000):
        name = f"cd_{index:05d}"
        lab.state.apply(ev.TrialCreated(name, index, raw, raw, "", f"train_{name}", f"train_{name}"))
        metrics = msgspec.Raw(b'{"loss":%d,"training_iteration":1}' % (index * 7919 % 10_007))
        lab.state.apply(ev.ResultReported(name, 1, 1, metrics))
        lab.state.apply(ev.TrialEnded(name, "TERMINATED", 0.0))
    monkeypatch.setattr(scopes, "read_history", lambda path: pytest.fail("a history was read"))
    analysis = lab.analysis()
    for scope in ("all", "last", "avg"):
        assert analysis.get_best_trial(scope=scope) is not None

    assert analysis.get_best_trial("never reported", "min", "all") is None


NUMBERS = st.sampled_from([0.0, 1.0, 2.0, math.inf, math.nan])


@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=10), st.booleans())
def test_the_front_is_whom_nobody_beats(
    tmp_path_factory: pytest.TempPathFactory, points: list[tuple[float, float]], higher: bool
) -> None:
    lab = Lab(tmp_path_factory.mktemp("front") / "experiment")
    for loss, score in points:
        lab.report(lab.trial(lr=0.1), loss=loss, score=score)
    sign = -1 if higher else 1
    signed = {n: (a, sign * b) for n, (a, b) in enumerate(points) if not math.isnan(a) and not math.isnan(b)}
    beaten = {
        n for n, (a, b) in signed.items() if any(c <= a and d <= b and (c, d) != (a, b) for c, d in signed.values())
    }
    found = scopes.front(lab.state.trials, ["loss", "score"], ["min", "max" if higher else "min"])
    assert [trial.index for trial in found] == sorted(set(signed) - beaten)
