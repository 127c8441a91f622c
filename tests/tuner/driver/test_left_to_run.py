"""What a resume finds, said in its first line, and what ended the driver before it."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tuner.cli import main
from tuner.error import MetricMissingError
from tuner.experiment import driver_log, existing
from tuner.experiment.paths import ExperimentPaths
from tuner.schedulers import ASHAScheduler


def trains(config: dict[str, Any]) -> None:
    for n in (1, 2):
        tune.report({"n": n, "x": config["n"]}, checkpoint=tune.Checkpoint.from_dict({"n": n}))


class Fails(tune.Callback):
    """The driver ends at a result of the third trial.

    Args:
        at: which one.
    """

    def __init__(self, at: int) -> None:
        self.at = at

    def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: Any, **info: Any) -> None:
        if trial.config["n"] == 2 and result["n"] == self.at:
            raise ValueError(f"no {'x' * 300}\nand no more")


def run(place: Path, **settings: Any) -> tune.ExperimentAnalysis:
    given = {"name": "e", "storage_path": place, "executor": "inline", "max_concurrent_trials": 1}
    return tune.run(trains, config={"n": tune.grid_search([0, 1, 2, 3])}, **given | settings)


@pytest.mark.parametrize(("at", "found"), [(1, "1 begins again, 1 is new"), (2, "1 goes on, 1 is new")])
def test_the_error_that_ended_a_driver_is_kept_and_a_resume_says_what_it_found(
    at: int, found: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "e")
    with pytest.raises(Exception, match="no xxx"):
        run(tmp_path, callbacks=[Fails(at)])
    capsys.readouterr()
    assert main(["show", path]) == 0
    head = capsys.readouterr().out.splitlines()
    assert "the driver failed: " in head[1] and "no xxx" in head[1] and head[1].endswith("xx…")
    assert not any("and no more" in line or "1 warning" in line for line in head)
    assert main(["show", path, "--warnings"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert " CRITICAL " in line and line.endswith("xxx")

    run(tmp_path, resume="AUTO", verbose=1)
    assert f"resuming from {tmp_path / 'e'}: 2 of 4 trials had ended, {found}\n" in capsys.readouterr().out
    assert main(["show", path]) == 0
    assert "finished; 4 trials (4 done)" in capsys.readouterr().out, "what ended an earlier driver is history"


def test_a_metric_that_is_missing_is_what_a_finished_look_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(MetricMissingError):
        run(tmp_path, metric="xx", mode="min")
    capsys.readouterr()
    assert main(["show", str(tmp_path / "e")]) == 0
    assert "the driver failed: metric='xx' is not in" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("settings", "best", "warns"),
    [
        ({"metric": "x"}, 3, True),
        ({"metric": "x", "mode": "max"}, 3, False),
        ({"metric": "x", "scheduler": ASHAScheduler(metric="x", mode="min", grace_period=9)}, 0, False),
        ({}, None, False),
    ],
)
def test_a_mode_that_nobody_gave_is_spoken_of(
    settings: dict[str, Any],
    best: int | None,
    warns: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(existing, "_default", existing.Existing.ERROR)
    again = copy.deepcopy(settings)
    analysis = run(tmp_path, verbose=1, **settings)
    said = 'mode="max" is taken for metric=\'x\'; give mode="min" where lower is better'
    assert capsys.readouterr().out.count(said) == warns
    assert [line.text for line in driver_log.read(ExperimentPaths(tmp_path / "e"))] == [said] * warns
    assert best is None or analysis.best_config == {"n": best}

    monkeypatch.setattr(existing, "_default", existing.Existing.ASIDE)
    run(tmp_path, verbose=1, overwrite=True, **again)
    assert said not in capsys.readouterr().out, "Ray does not speak of it"
