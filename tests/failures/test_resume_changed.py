"""A resume with other settings than the experiment was started with: one line per difference, and what it means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import optuna
import pytest

import tuner as tune
from tuner.driver.fact_log import FactLog
from tuner.experiment import driver_log
from tuner.experiment.paths import ExperimentPaths
from tuner.schedulers import ASHAScheduler, FIFOScheduler
from tuner.search import BasicVariantGenerator, ConcurrencyLimiter
from tuner.search.optuna import OptunaSearch


def train(config):
    for n in range(1, 5):
        tune.report({"loss": config["x"] / n, "acc": n * config["x"], "n": n})


def run(path, **settings):
    return tune.run(
        train,
        storage_path=path,
        **{
            "name": "e",
            "executor": "inline",
            "verbose": 1,
            "seed": 1,
            "config": {"x": tune.uniform(1, 2), "c": 7},
            "metric": "loss",
            "mode": "min",
            **settings,
        },
    )


def notices(capsys):
    """The lines that say what is another now."""
    return [line for line in capsys.readouterr().out.splitlines() if ": was " in line or " was " in line]


@pytest.mark.parametrize(
    ("change", "lines"),
    [
        ({}, []),
        ({"metric": "acc"}, ["metric: was 'loss', now 'acc', which is used from here on"]),
        ({"mode": "max"}, ["mode: was 'min', now 'max', which is used from here on"]),
        (
            {"scheduler": ASHAScheduler(max_t=4)},
            ["scheduler: was FIFOScheduler(), now AsyncHyperBandScheduler(max_t=4), which is used from here on"],
        ),
        (
            {"search_alg": "optuna"},
            ["searcher: was BasicVariantGenerator(), now OptunaSearch(), which is used from here on"],
        ),
        (
            {"search_alg": ConcurrencyLimiter(BasicVariantGenerator(), 2)},
            [
                "searcher: was BasicVariantGenerator(), now "
                "ConcurrencyLimiter(searcher=BasicVariantGenerator(max_concurrent=2), max_concurrent=2), "
                "which is used from here on"
            ],
        ),
        ({"stop": {"n": 3}}, ["stop: was None, now {'n': 3}, which is used from here on"]),
        (
            {"config": {"x": tune.uniform(1, 2), "c": 8}},
            ["the constant at 'c' was 7 and is 8: new trials get it, the others keep theirs"],
        ),
        (
            {"metric": "acc", "mode": "max", "stop": {"n": 2}},
            [
                "metric: was 'loss', now 'acc', which is used from here on",
                "mode: was 'min', now 'max', which is used from here on",
                "stop: was None, now {'n': 2}, which is used from here on",
            ],
        ),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_f25_each_difference_is_one_line_once(tmp_path, capsys, change, lines):
    run(tmp_path)
    capsys.readouterr()
    run(tmp_path, num_samples=2, resume=True, **change)
    assert [text.strip() for text in notices(capsys)] == lines
    run(tmp_path, num_samples=2, resume=True, **change)
    assert notices(capsys) == []


def test_f25_a_used_scheduler_or_searcher_is_no_difference(tmp_path, capsys):
    scheduler, searcher = ASHAScheduler(max_t=9), BasicVariantGenerator()
    run(tmp_path, scheduler=scheduler, search_alg=searcher)
    capsys.readouterr()
    run(tmp_path, scheduler=scheduler, search_alg=BasicVariantGenerator(), num_samples=2, resume=True)
    assert notices(capsys) == []


def test_f25_a_restored_tuner_without_new_settings_has_no_differences(tmp_path, capsys):
    run(tmp_path, scheduler=ASHAScheduler(max_t=3), stop={"n": 3}, search_alg="random")
    capsys.readouterr()
    tune.Tuner.restore(tmp_path / "e", train).fit()
    assert notices(capsys) == []


CHANGES: dict[str, Callable[[], dict[str, Any]]] = {
    "another searcher": lambda: {"search_alg": "optuna"},
    "a wrapped searcher": lambda: {"search_alg": ConcurrencyLimiter(BasicVariantGenerator(), 1)},
    "another scheduler": lambda: {"scheduler": ASHAScheduler(max_t=4, reduction_factor=2)},
    "another metric": lambda: {"metric": "acc", "mode": "max", "scheduler": ASHAScheduler(max_t=4, reduction_factor=2)},
    "a stopper of another kind": lambda: {"stop": tune.stopper.MaximumIterationStopper(2)},
    "no stopper": lambda: {"stop": None},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("snapshot", [True, False], ids=["from a snapshot", "from the facts"])
def test_d12_another_plug_in_is_told_of_the_trials_there_are_and_runs_exactly_the_missing(
    tmp_path, monkeypatch, change, snapshot
):
    with monkeypatch.context() as patch:
        patch.setattr(FactLog, "should_compact", lambda self: snapshot)
        first = run(tmp_path, num_samples=3, stop={"n": 3}, verbose=0)
    assert bool(list((tmp_path / "e" / "journal").glob("snapshot-*"))) is snapshot
    again = run(tmp_path, num_samples=5, resume=True, verbose=0, **{"stop": {"n": 4}, **change()})
    assert [trial.trial_id for trial in again.trials][:3] == [trial.trial_id for trial in first.trials]
    assert [trial.config for trial in again.trials][:3] == [trial.config for trial in first.trials]
    assert len(again.trials) == 5 and len({trial.config["x"] for trial in again.trials}) == 5
    assert {trial.status for trial in again.trials} == {"TERMINATED"}


def test_d12_a_study_that_goes_by_another_metric_learns_it_from_the_trials_there_are(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(FactLog, "should_compact", lambda self: True)
        run(tmp_path, num_samples=4, search_alg="optuna", verbose=0)
    searcher = OptunaSearch()
    run(tmp_path, num_samples=5, search_alg=searcher, metric="acc", mode="max", resume=True, verbose=0)
    study = searcher._ready()
    assert study.direction is optuna.study.StudyDirection.MAXIMIZE
    assert [trial.value for trial in study.trials] == [trial.params["x"] * 4 for trial in study.trials]


def test_d12_a_scheduler_that_is_another_now_knows_how_the_trials_ended(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(FactLog, "should_compact", lambda self: True)
        first = run(tmp_path, num_samples=3, scheduler=FIFOScheduler(), verbose=0)
    scheduler = ASHAScheduler(max_t=4, reduction_factor=2)
    run(tmp_path, num_samples=3, scheduler=scheduler, resume=True, verbose=0)
    (ladder,) = scheduler.get_state()["recorded"]
    assert ladder[4] == {trial.trial_id: -trial.last_result["loss"] for trial in first.trials}


def edited(factor):
    names = {"__name__": __name__, "tune": tune}
    exec(f"def train(config):\n    tune.report({{'loss': {factor}, 'acc': 1, 'n': 4}})\n", names)
    return names["train"]


def again(path, capsys, factor, **settings):
    """What a run says of the code, and whether anything was left."""
    capsys.readouterr()
    how = {"storage_path": path, "name": "e", "resume": "AUTO", "executor": "inline", "verbose": 1, **settings}
    tune.run(edited(factor), **how)
    lines = capsys.readouterr().out.splitlines()
    return [line for line in lines if line.startswith(("the code of", "nothing left"))]


def test_results_of_older_code_are_never_shown_without_a_word(tmp_path, capsys):
    assert again(tmp_path, capsys, 1, num_samples=2) == []
    (left,) = again(tmp_path, capsys, 1, num_samples=2)
    assert left.startswith("nothing left to run: 2 trials had ended before; a larger num_samples")
    assert [line.is_warning for line in driver_log.read(ExperimentPaths(tmp_path / "e"))] == [False]
    for _ in range(2):  # until it runs
        changed, left = again(tmp_path, capsys, 2, num_samples=2)
        assert changed.startswith("the code of 'train' has changed")
        assert "with the older code of 'train'" in left and "overwrite=True" in left
    (changed,) = again(tmp_path, capsys, 2, num_samples=3)
    assert changed.startswith("the code of 'train' has changed")
    (left,) = again(tmp_path, capsys, 2, num_samples=3)
    assert "older" not in left


def test_a_trial_that_failed_is_named_where_nothing_was_left(tmp_path, capsys):
    again(tmp_path, capsys, "no_such_name", raise_on_failed_trial=False)
    (left,) = again(tmp_path, capsys, "no_such_name", raise_on_failed_trial=False)
    assert '(1 failed: resume="AUTO+ERRORED" continues it)' in left
    (changed,) = again(tmp_path, capsys, 1, resume="AUTO+ERRORED")
    assert changed.startswith("the code of 'train' has changed")
