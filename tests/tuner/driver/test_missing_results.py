"""A trial that ends without a report, or without the metric, is one without a result; several end the run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tests.tuner.driver.harness import DriverHarness, plugin_set
from trainables import wire
from tuner.error import MetricMissingError, TrialsFailedError
from tuner.search import Searcher

ALL = {"i": tune.grid_search([0, 1, 2, 3])}


def run(trainable: Callable[..., Any], path: Path, **settings: Any) -> tune.ExperimentAnalysis:
    given: dict[str, Any] = {
        "name": "e",
        "executor": "inline",
        "verbose": 0,
        "config": ALL,
        "metric": "loss",
        "mode": "min",
    }
    return tune.run(trainable, storage_path=path, **{**given, **settings})


def lacking(*lacking: int, what: str) -> Callable[[dict[str, Any]], None]:
    """Trials of which these report nothing, or something else."""

    def train(config: dict[str, Any]) -> None:
        if config["i"] not in lacking:
            tune.report({"loss": config["i"]})
        elif what == "metric":
            tune.report({"something": config["i"]})

    return train


@pytest.mark.parametrize("which", [0, 1, 3])
@pytest.mark.parametrize("what", ["report", "metric"])
def test_a_single_trial_without_a_result_is_left_out_whenever_it_ends(what: str, which: int, tmp_path: Path) -> None:
    analysis = run(lacking(which, what=what), tmp_path)
    assert {trial.status for trial in analysis.trials} == {"TERMINATED"}
    assert [trial.last_result.get("loss") for trial in analysis.trials] == [None if i == which else i for i in range(4)]


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("report", "_00001 returned and has reported nothing, like 1 other trial, so that"),
        ("metric", "_00001, which has ended, nor of 1 other trial that ended; reported were: something"),
    ],
)
def test_two_that_end_first_end_a_run_of_one_at_a_time_and_run_again(what: str, said: str, tmp_path: Path) -> None:
    ran: list[int] = []

    def train(config: dict[str, Any]) -> None:
        ran.append(config["i"])
        lacking(0, 1, 2, 3, what=what)(config)

    def mended(config: dict[str, Any]) -> None:
        ran.append(config["i"])
        tune.report({"loss": config["i"]})

    mended.__name__ = "train"
    with pytest.raises(MetricMissingError, match=said):
        run(train, tmp_path)
    assert ran == [0, 1]
    assert not any(trial.is_finished() for trial in tune.ExperimentAnalysis(tmp_path / "e").trials)
    analysis = run(mended, tmp_path, resume="AUTO")
    assert sorted(ran[2:]) == [0, 1, 2, 3]
    assert [trial.last_result["loss"] for trial in analysis.trials] == [0, 1, 2, 3]


@pytest.mark.parametrize("what", ["report", "metric"])
def test_two_that_end_after_one_with_a_result_are_left_out(what: str, tmp_path: Path) -> None:
    analysis = run(lacking(1, 2, 3, what=what), tmp_path)
    assert [trial.last_result.get("loss") for trial in analysis.trials] == [0, None, None, None]


def test_as_many_as_run_at_once_end_the_run(tmp_path: Path) -> None:
    plugins = plugin_set(num_samples=9)
    harness = DriverHarness(tmp_path / "e", plugins, slots=3, needs_reports=True).turn()
    for index in range(2):
        harness.exit(harness.trial(index), wire.Finished())
        assert harness.trial(index).status == "TERMINATED"
    with pytest.raises(MetricMissingError, match="reported nothing, like 2 other trials"):
        harness.exit(harness.trial(2), wire.Finished())
    assert [harness.trial(index).status for index in range(3)] == ["PENDING", "PENDING", "RUNNING"]


class OneConfig(Searcher):
    """A searcher that ends by itself, before it is known how many trials there are."""

    def __init__(self) -> None:
        super().__init__("loss", "min")
        self.left = 1

    def suggest(self, trial_id: str) -> Any:
        self.left -= 1
        return Searcher.FINISHED if self.left < 0 else {"i": 0}

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        pass


@pytest.mark.parametrize("what", ["report", "metric"])
def test_a_run_that_turns_out_to_have_no_trial_left_ends_with_it(what: str, tmp_path: Path) -> None:
    with pytest.raises(MetricMissingError, match="_00000"):
        run(lacking(0, what=what), tmp_path, search_alg=OneConfig(), num_samples=-1, config={})
    (trial,) = tune.ExperimentAnalysis(tmp_path / "e").trials
    assert not trial.is_finished()


@pytest.mark.parametrize("which", [0, 1])
def test_the_error_of_another_trial_is_not_hidden(which: int, tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        if config["i"] == which:
            raise ValueError("broken")

    with pytest.raises(TrialsFailedError, match="broken"):
        run(train, tmp_path, config={"i": tune.grid_search([0, 1])})
