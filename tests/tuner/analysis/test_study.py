"""`results.study`: every trial, with its domains, its values, its curve and its state."""

from __future__ import annotations

import json
import logging
import math
from pathlib import Path
from typing import Any

import msgspec
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

import tuner as tune
from tests.tuner.lab import Lab
from trainables import tagged
from tuner.analysis import ExperimentAnalysis, ResultGrid
from tuner.analysis.study import domain_of, study_of
from tuner.error import SettingError
from tuner.experiment import events as ev
from tuner.search.domains import Categorical, Domain
from tuner.search.optuna import OptunaSearch


def study(lab: Lab, *metrics: str, mode: str = "min", **space: str) -> optuna.Study:
    names = metrics or ("loss",)
    return study_of(lab.state.trials, names, [mode] * len(names), space=space, name="e")


@pytest.mark.parametrize(
    ("domain", "distribution"),
    [
        (tune.uniform(0, 1), FloatDistribution(0, 1)),
        (tune.quniform(0, 1, 0.25), FloatDistribution(0, 1, step=0.25)),
        (tune.loguniform(1e-4, 1), FloatDistribution(1e-4, 1, log=True)),
        (tune.randint(1, 9), IntDistribution(1, 8)),
        (tune.qrandint(2, 8, 2), IntDistribution(2, 8, step=2)),
        (tune.lograndint(1, 9), IntDistribution(1, 8, log=True)),
        (tune.choice(["sgd", None, 3]), CategoricalDistribution(["sgd", None, 3])),
    ],
    ids=str,
)
def test_a_stored_domain_is_its_distribution(lab: Lab, domain: Domain, distribution: Any) -> None:
    for _ in range(3):
        lab.report(lab.trial(x=domain.sample(random_state=1)), loss=1.0)

    made = study(lab, x=domain.describe())

    assert [trial.distributions["x"] for trial in made.trials] == [distribution] * 3
    assert [trial.params["x"] for trial in made.trials] == [trial.config["x"] for trial in lab.state.trials]


@pytest.mark.parametrize(
    ("values", "distribution"),
    [
        ([1.5, 3], FloatDistribution(1.5, 3.0)),
        ([4, 2, 2], IntDistribution(2, 4)),
        (["a", "b", "a"], CategoricalDistribution(["a", "b"])),
        ([True, False], CategoricalDistribution([True, False])),
        ([[1, 2], [3]], CategoricalDistribution(["[1, 2]", "[3]"])),
        ([math.nan, 1.0], CategoricalDistribution(["nan", 1.0])),
    ],
)
@pytest.mark.parametrize(
    "space", [{}, {"x": "sample_from#abc"}, {"x": "randn(0.0, 1.0)"}, {"x": "uniform(50.0, 60.0)"}]
)
def test_what_no_domain_holds_has_the_range_that_was_tried(
    lab: Lab, values: list[Any], distribution: Any, space: dict[str, str]
) -> None:
    for value in values:
        lab.report(lab.trial(x=value), loss=1.0)

    assert {repr(trial.distributions["x"]) for trial in study(lab, **space).trials} == {repr(distribution)}


@pytest.mark.parametrize(
    "text", ["", "constant#3", "os.system('x')", "choice(open('x'))", "uniform(", "__import__('os')"]
)
def test_a_line_that_describes_no_domain_is_none_and_nothing_of_it_runs(text: str) -> None:
    assert domain_of(text) is None


def test_a_grid_is_a_choice() -> None:
    assert domain_of("grid_search([1, 2, 'c'])") == Categorical((1, 2, "c"))


def test_each_status_is_a_state_of_optunas(lab: Lab) -> None:
    done, nan, nothing, failed, running, paused = (lab.trial(x=float(number)) for number in range(6))
    for trial, value in ((done, 0.5), (nan, math.nan), (failed, 0.1), (running, 0.2), (paused, 0.3)):
        lab.report(trial, loss=value)
    for trial in (done, nan, nothing):
        lab.end(trial)
    lab.end(failed, ev.ErrorInfo("RuntimeError", "no"))
    lab.save(paused)
    lab.state.apply(ev.AttemptEnded(paused.trial_id, 1, "paused"))
    waiting = msgspec.Raw(tagged.dumps({"x": 6.0}))
    lab.state.apply(ev.TrialCreated("w", 6, waiting, waiting, "", "w", "w"))

    made = study(lab).trials

    states = [TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL, TrialState.FAIL]
    assert [trial.state for trial in made] == [*states, TrialState.RUNNING, TrialState.RUNNING, TrialState.WAITING]
    assert [trial.number for trial in made] == list(range(7))
    assert [trial.user_attrs["trial_id"] for trial in made] == [trial.trial_id for trial in lab.state.trials]
    assert made[0].values == [0.5]
    assert study(lab).best_trial.number == 0


def test_t03_the_curve_has_each_iteration_once(lab: Lab) -> None:
    trial = lab.trial(x=1.0)
    for loss in (5.0, 4.0, 3.0):
        lab.report(trial, loss=loss)
    lab.rollback(trial, 1)
    for loss in (2.0, 1.0):
        lab.report(trial, loss=loss)
    lab.end(trial)

    (made,) = study(lab).trials

    assert made.intermediate_values == {1: 5.0, 2: 2.0, 3: 1.0}
    assert made.value == 1.0


def test_several_objectives_have_several_values_and_a_front(lab: Lab) -> None:
    for loss, size in ((1.0, 5.0), (2.0, 2.0), (3.0, 4.0)):
        trial = lab.trial(x=loss)
        lab.report(trial, loss=loss, size=size)
        lab.end(trial)

    made = study(lab, "loss", "size")

    assert [trial.values for trial in made.trials] == [[1.0, 5.0], [2.0, 2.0], [3.0, 4.0]]
    assert [trial.number for trial in made.best_trials] == [0, 1]


def test_a_run_gives_its_study_live_and_from_its_path(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def train(config: dict[str, Any]) -> None:
        for step in range(2):
            tune.report({"loss": config["lr"] + config["net"]["width"] - step})

    space = {"lr": tune.loguniform(1e-3, 1), "net": {"width": tune.choice([8, 16])}, "steps": 3}
    live = tune.run(
        train,
        config=space,
        num_samples=4,
        metric="loss",
        mode="min",
        name="run",
        storage_path=str(tmp_path),
        executor="inline",
        verbose=0,
    )
    optuna_said: list[str] = []
    optuna.logging.get_logger("optuna").addHandler(handler := logging.Handler())
    handler.emit = lambda record: optuna_said.append(record.getMessage())  # type: ignore[method-assign]
    try:
        for results in (live, ResultGrid(live), ExperimentAnalysis(tmp_path / "run")):
            made = results.study
            assert made.study_name == "run"
            assert made.best_params == live.best_trial.evaluated_params
            assert made.best_trial.distributions == {
                "lr": FloatDistribution(1e-3, 1, log=True),
                "net/width": CategoricalDistribution([8, 16]),
            }
            assert made.ask(dict(made.best_trial.distributions)).number == 4
    finally:
        optuna.logging.get_logger("optuna").removeHandler(handler)
    assert not optuna_said


def test_the_metric_of_the_searcher_is_the_studys_too(tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        tune.report({"loss": config["lr"]})

    live = tune.run(
        train,
        config={"lr": tune.uniform(0, 1)},
        num_samples=3,
        search_alg=OptunaSearch(metric="loss", mode="min"),
        name="run",
        storage_path=str(tmp_path),
        executor="inline",
        verbose=0,
    )
    least = min(trial.last_result["loss"] for trial in live.trials)
    for results in (live, ExperimentAnalysis(tmp_path / "run")):
        assert results.study.best_value == least
        assert results.best_result["loss"] == least


def test_without_a_metric_a_study_says_what_it_needs(lab: Lab) -> None:
    lab.report(lab.trial(x=1.0), loss=1.0)
    lab.state.root.joinpath("experiment.json").write_text(json.dumps({"format": 1}))

    with pytest.raises(SettingError, match="give metric= and mode="):
        _ = lab.analysis(None, None).study
