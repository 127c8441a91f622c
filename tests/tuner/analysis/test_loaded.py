"""An experiment that is loaded from a directory, and its results as tables."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tests.tuner.analysis.harness import run_trials
from tuner.analysis import ExperimentAnalysis, ResultGrid
from tuner.analysis.loaded import LoadedExperiment, config_of, last_result
from tuner.error import ExperimentNotFoundError, SettingError
from tuner.experiment import events as ev
from tuner.experiment.outcome import ended_because, outcome
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.reason import Reason, ReasonKind
from tuner.experiment.state import ExperimentState


def test_frames_hold_every_result_flat(lab: Any) -> None:
    trial = lab.trial(model={"lr": 0.1})
    lab.report(trial, eval={"auc": 0.5})
    lab.report(trial, eval={"auc": 0.7})
    lab.report(trial, eval={"auc": 0.6})
    analysis = lab.analysis()

    assert list(analysis.trial_dataframes[trial.path]["eval/auc"]) == [0.5, 0.7, 0.6]
    (last,) = analysis.dataframe().to_dict("records")
    (best,) = analysis.dataframe("eval/auc", "max").to_dict("records")
    assert (last["eval/auc"], last["config/model/lr"], last["logdir"]) == (0.6, 0.1, trial.path)
    assert (best["eval/auc"], best["training_iteration"]) == (0.7, 2)


def test_t03_frames_have_one_row_per_iteration_after_a_rollback(lab: Any) -> None:
    (trial,) = run_trials(lab, [float(n) for n in range(45)], ended=False)
    lab.rollback(trial, 40)
    lab.start(trial)
    for number in range(40, 50):
        lab.report(trial, loss=-float(number))
    frame = lab.analysis().trial_dataframes[trial.path]

    assert list(frame["training_iteration"]) == list(range(1, 51))
    assert frame["loss"].iloc[40] == -40.0


def test_a_path_without_an_experiment_says_so(tmp_path: Path) -> None:
    with pytest.raises(ExperimentNotFoundError, match="nothing"):
        ExperimentAnalysis(tmp_path / "nothing")
    with pytest.raises(ExperimentNotFoundError, match="nothing"):
        ResultGrid(tmp_path / "nothing")


def test_a_bare_name_is_found_here_and_under_the_default_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune.run(lambda config: {"loss": 1.0}, name="experiment", storage_path=tmp_path, executor="inline", verbose=0)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("TUNE_RESULT_DIR", str(tmp_path))

    for opened in (ExperimentAnalysis("experiment"), tune.open_experiment("experiment")):
        assert opened.experiment_path == str(tmp_path / "experiment") and len(opened.trials) == 1
    base = re.escape(str(tmp_path))
    with pytest.raises(ExperimentNotFoundError, match=f"at {base}/work/experimen nor at {base}/experimen(?m:$)"):
        tune.open_experiment("experimen")


def test_pandas_comes_only_with_a_frame() -> None:
    code = "import sys; import tuner.analysis, tuner.progress, tuner.logger; sys.exit('pandas' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_state_is_loaded_from_a_path(lab: Any) -> None:
    """With a journal on disk, as a later process finds it."""
    journal = pytest.importorskip("tuner.experiment.journal", reason="being written")
    from tuner.clock import VirtualClock
    from tuner.experiment.paths import ExperimentPaths

    run_trials(lab, [0.5, 0.2], [0.4])
    paths = ExperimentPaths(lab.state.root)
    paths.experiment_json.write_text('{"format": 1, "metric": "loss", "mode": "min", "num_to_keep": 1}')
    paths.generations.mkdir()
    paths.journal.mkdir()
    paths.generation(1).write_text('{"generation": 1, "id": "a"}')
    writer = journal.JournalWriter(paths, 1, next_seq=1, clock=VirtualClock(), sync="inline")
    writer.append(ev.encode(ev.GenerationStarted(1)))
    for trial in lab.state.trials:
        raw = trial.raw_config
        facts: list[Any] = [
            ev.TrialCreated(trial.trial_id, trial.index, raw, raw, "", trial.name, trial.dirname),
            ev.ResultReported(trial.trial_id, 1, 1, trial.raw_result),
            ev.TrialEnded(trial.trial_id, "TERMINATED", 0.0),
        ]
        for fact in facts:
            writer.append(ev.encode(fact))
    writer.flush()
    writer.close()

    moved = lab.state.root.rename(lab.state.root.with_name("moved"))
    for where in (moved, str(moved), moved.as_uri(), moved / "experiment.json"):
        analysis = ExperimentAnalysis(where)
        assert analysis.best_config == {"lr": 0.1}
        assert analysis.best_result["loss"] == 0.2
        assert list(analysis.best_dataframe["loss"]) == [0.5, 0.2]
        assert analysis.best_logdir.startswith(str(moved))
        assert ResultGrid(analysis).get_best_result().metrics["loss"] == 0.2


# --- tables and settings


def test_an_experiment_without_trials_has_empty_tables(lab: Any) -> None:
    analysis = lab.analysis()
    assert (analysis.results, analysis.trial_dataframes, analysis.get_all_configs()) == ({}, {}, {})
    assert len(analysis.results_df) == len(analysis.dataframe()) == 0
    assert analysis.stats() == {"start_time": None, "timestamp": None, "end_time": None, "trials": {}}


def test_a_trial_that_reported_nothing_has_a_config_and_no_row(lab: Any) -> None:
    trial = lab.trial(lr=0.1)
    (other,) = run_trials(lab, [0.5])
    analysis = lab.analysis()
    assert analysis.results[trial.trial_id] == {}
    assert list(analysis.dataframe()["logdir"]) == [other.path]
    assert analysis.get_all_configs()[trial.path] == {"lr": 0.1}
    assert list(analysis.results_df.index) == [trial.trial_id, other.trial_id]


def test_histories_are_read_once_until_they_are_asked_for_anew(lab: Any) -> None:
    (trial,) = run_trials(lab, [0.5], ended=False)
    analysis = lab.analysis()
    first = analysis.trial_dataframes
    lab.report(trial, loss=0.4)
    assert analysis.trial_dataframes is first and len(first[trial.path]) == 1
    assert len(analysis.fetch_trial_dataframes()[trial.path]) == 2


@pytest.mark.parametrize(("mode", "value"), [("min", 0.1), ("max", 0.9)])
def test_the_row_of_the_best_value_is_one_with_a_number(lab: Any, mode: str, value: float) -> None:
    run_trials(lab, [math.nan, 0.9, 0.1, None, 0.5])
    run_trials(lab, [None, None])
    best = lab.analysis().dataframe("loss", mode)
    assert best["loss"].iloc[0] == value
    assert best["training_iteration"].iloc[1] == 2, "the last one, where none has a number"
    assert lab.analysis().dataframe("loss")["training_iteration"].tolist() == [5, 2], "without a mode the last row"
    with pytest.raises(SettingError, match="mode"):
        lab.analysis().dataframe("loss", "least")


@pytest.mark.parametrize(
    ("given", "settings", "goal"),
    [
        ({"metric": "a", "mode": "max"}, {"metric": "b", "mode": "min"}, ("a", "max")),
        ({"metric": None, "mode": None}, {"metric": "b", "mode": "min"}, ("b", "min")),
        ({"metric": None, "mode": None}, {"searches_for": {"metric": "c", "mode": "max"}}, ("c", "max")),
        ({"metric": "a", "mode": None}, {"searches_for": {"metric": "c", "mode": "max"}}, ("a", None)),
        ({"metric": ["a"], "mode": ["min"]}, {}, ("a", "min")),
        ({"metric": ["a", "b"], "mode": ["min", "max"]}, {}, (None, None)),
        ({"metric": None, "mode": None}, {}, (None, None)),
    ],
)
def test_what_is_best_is_what_was_given_or_the_runs_or_its_searchers(
    lab: Any, given: dict[str, Any], settings: dict[str, Any], goal: tuple[Any, Any]
) -> None:
    analysis = ExperimentAnalysis(lab.state.root, trials=[], settings=settings, **given)
    assert (analysis.default_metric, analysis.default_mode) == goal
    assert analysis.runner_data() == settings


def test_rays_names_of_metric_and_mode_are_taken(lab: Any) -> None:
    analysis = ExperimentAnalysis(
        lab.state.root, trials=[], settings={"metric": "b"}, default_metric="a", default_mode="max"
    )
    assert (analysis.default_metric, analysis.default_mode) == ("a", "max")


def test_times_are_of_the_first_start_and_the_last_end(lab: Any) -> None:
    first, second = run_trials(lab, [0.5], [0.4], ended=False)
    assert lab.analysis().stats()["end_time"] is None
    lab.end(second)
    stats = lab.analysis().stats()
    assert stats["trials"] == {"RUNNING": 1, "TERMINATED": 1}
    assert (stats["start_time"], stats["end_time"]) == (first.started_at, second.ended_at)


def test_a_config_is_read_without_unpickling_what_is_in_it(lab: Any) -> None:
    trial = lab.trial(shape=(1, 2), lr=0.1)
    assert config_of(trial) == {"shape": (1, 2), "lr": 0.1}
    assert last_result(trial) == {}
    lab.report(trial, loss=1)
    assert last_result(trial)["config"] == {"shape": (1, 2), "lr": 0.1}
    assert "config" not in trial.last_result


def test_files_of_the_experiment_name_it_too(lab: Any) -> None:
    run_trials(lab, [0.5])
    paths = ExperimentPaths(lab.state.root)
    paths.experiment_json.write_text('{"format": 2}')
    trials = lab.state.trials
    for given in (paths.experiment_json, str(paths.root), paths.root.as_uri(), f"{paths.root}/"):
        assert LoadedExperiment(given, trials=trials).experiment_path == str(paths.root)


def test_frames_and_results_say_why_a_trial_ended(lab: Any) -> None:
    run_trials(lab, [0.5], [0.4], [0.3], ended=False)
    stopped, failed, running = lab.state.trials
    why = Reason(ReasonKind.CRITERION, "MaximumIterationStopper", 1, "loss", 0.5, cut=0.6)
    lab.facts.apply(ev.TrialEnded(stopped.trial_id, "TERMINATED", 1.0, reason=why))
    lab.end(failed, ev.ErrorInfo("ValueError", "no\nmore of it"))
    analysis = lab.analysis()
    wanted = ["stop: loss 0.5 <= 0.6", "failed: ValueError: no", None]

    assert [result.end_reason for result in ResultGrid(analysis)] == wanted
    for made in (analysis.dataframe(), analysis.results_df):
        assert list(made["end_reason"].dropna()) == wanted[:2]
    assert "end_reason='stop: loss 0.5 <= 0.6'" in repr(ResultGrid(analysis)[0])
    lab.report(running, loss=0.2, end_reason="mine")
    assert list(analysis.results_df["end_reason"]) == [*wanted[:2], "mine"], "a metric of that name"


@pytest.mark.parametrize(
    ("why", "said"),
    [
        ("interrupted", "stopped by you"), ("budget", "time budget spent"), ("preempted", "stopped by SIGTERM"),
        ("fail_fast", "stopped by fail_fast"), ("failed", "the driver failed"), ("finished", None),
    ],
)  # fmt: skip
def test_who_had_not_ended_when_the_run_did_says_what_ended_that(lab: Any, why: str, said: str | None) -> None:
    run_trials(lab, [0.5], [0.4], ended=False)
    done, left = lab.state.trials
    lab.end(done)
    lab.facts.apply(ev.AttemptEnded(left.trial_id, 1, "halted"))
    lab.facts.apply(ev.RunEnded(why, 2.0))
    grid = ResultGrid(lab.analysis())
    assert grid[1].end_reason == said and grid[0].end_reason is None
    assert (left.status, left.end_reason, grid.num_terminated) == ("PENDING", None, 1)
    assert outcome(left) == (f"waiting: {said}" if said else "waiting")
    again = ExperimentState.from_snapshot(lab.state.root, lab.state.snapshot({}))
    assert [ended_because(trial) for trial in again.trials] == [None, said]
    again.apply(ev.GenerationStarted(2))
    assert ended_because(again.trials[1]) is None, "it goes on"
