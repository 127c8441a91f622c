"""An experiment that is loaded from a directory, and its results as tables."""

from __future__ import annotations

import json
import math
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tuner as tune
from tests.tuner.analysis.harness import exploit, run_trials
from trainables import tagged
from trainables.wire import CheckpointRef
from tuner.analysis import ExperimentAnalysis, ResultGrid, export
from tuner.analysis.loaded import LoadedExperiment, config_of, last_result
from tuner.error import ExperimentNotFoundError, SettingError
from tuner.experiment import events as ev
from tuner.experiment.outcome import ended_because, outcome
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.reason import Reason, ReasonKind
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial_records import Clone


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


# --- the config that a result was reported with


FIRST = {"lr": 0.1, "kind": {"name": "adam"}, "size": None}
SECOND = {"lr": 0.2, "kind": {"name": "sgd", "nesterov": True}, "size": (1, 2)}
THIRD = {**SECOND, "lr": 0.4, "more": 1}


@pytest.fixture
def cloned(lab: Any) -> Any:
    """Trial 0 reports losses 3, 1, became a clone with another lr, 5, once more, 4, and is to become one again."""
    trial, _ = lab.trial(lr=0.1, kind={"name": "adam"}, size=None), lab.trial(lr=0.3)
    for loss in (3.0, 1.0):
        lab.report(trial, loss=loss)
    exploit(lab, 0, 1, 2, **SECOND)
    lab.report(trial, loss=5.0)
    exploit(lab, 0, 1, 3, **THIRD)
    lab.report(trial, loss=4.0)
    exploit(lab, 0, 1, 4, lr=0.5)
    return lab


def test_a_result_of_a_clone_has_the_config_that_it_was_reported_with(cloned: Any) -> None:
    analysis = cloned.analysis()
    trial = analysis.trials[0]
    assert trial.config == {"lr": 0.5}, "the config that it is to go on with"
    assert analysis.best_config == analysis.get_best_config(scope="last") == THIRD
    assert analysis.get_best_config(scope="all") == analysis.get_best_config("loss", "min", "all") == FIRST
    assert analysis.get_best_config("loss", "max", "all") == SECOND
    assert analysis.get_best_config(scope="avg") == THIRD
    assert analysis.results[trial.trial_id]["config"] == last_result(trial)["config"] == THIRD
    assert analysis.results_df.loc[trial.trial_id, "config/lr"] == 0.4
    result = ResultGrid(analysis).get_best_result()
    assert result.config == result.metrics["config"] == THIRD
    for made in (analysis.trial_dataframes[trial.path], analysis.best_dataframe, result.metrics_dataframe):
        assert list(made["config/lr"]) == [0.1, 0.1, 0.2, 0.4]
        assert list(made["config/kind/name"]) == ["adam", "adam", "sgd", "sgd"]
    assert list(pickle.loads(pickle.dumps(result)).metrics_dataframe["config/lr"]) == [0.1, 0.1, 0.2, 0.4]


def test_tables_have_the_config_of_the_result_in_the_row(cloned: Any) -> None:
    analysis = cloned.analysis()
    assert analysis.dataframe().loc[0, "config/lr"] == 0.4
    assert [analysis.dataframe("loss", mode).loc[0, "config/lr"] for mode in ("min", "max")] == [0.1, 0.2]
    assert export.of_trials(analysis.trials)[0]["config/lr"] == 0.4
    rows = [row for row in export.of_results(analysis.trials) if row["trial"] == 0]
    assert [row["config/lr"] for row in rows] == [0.1, 0.1, 0.2, 0.4]
    assert "config/kind/nesterov" not in rows[0] and "config/more" not in rows[2]
    assert analysis.study.trials[0].params["lr"] == 0.4
    assert analysis.get_all_configs()[analysis.trials[0].path] == {"lr": 0.5}


def test_a_clone_that_starts_anew_keeps_the_config_that_it_has(cloned: Any) -> None:
    trial = cloned.state.trials[0]
    cloned.end(trial, ev.ErrorInfo("ValueError", "no"))
    for fact in (ev.TrialReopened(trial.trial_id, anew=True), ev.RolledBack(trial.trial_id, 2, 0)):
        cloned.facts.apply(fact)
    cloned.start(trial)
    cloned.report(trial, loss=2.0)
    exploit(cloned, 0, 1, 1, lr=0.6)
    cloned.report(trial, loss=2.5)
    frame = cloned.analysis().trial_dataframes[trial.path]
    assert list(frame["config/lr"]) == [0.5, 0.6] and list(frame["loss"]) == [2.0, 2.5]


def test_a_fork_of_a_clone_has_the_configs_of_both(cloned: Any) -> None:
    trunk = cloned.state.trials[0]
    ref = CheckpointRef(trunk.trial_id, "checkpoint_000003", 1, 1, 1, 3)
    raw = msgspec.Raw(tagged.dumps({**SECOND, "lr": 0.9}))
    fork = Clone(3, ref, {"lr": (0.2, 0.9)})
    order = ev.OrderTaken("o", msgspec.Raw(b'{"order": "fork"}'), 0.0)
    made = ev.TrialCreated("ab_o0000", 2, raw, raw, "2", "train_ab_o0000", "train_ab_o0000", order="o", fork=fork)
    cloned.facts.apply(order)
    cloned.facts.apply(made)
    trial = cloned.state.trials[2]
    trial.directory.mkdir()
    cloned.facts.apply(ev.AttemptStarted(trial.trial_id, 1, 1, 0.0, ref, 3))
    cloned.facts.launched(trial, restored=True)
    cloned.report(trial, loss=0.5)
    analysis = cloned.analysis()
    assert list(analysis.trial_dataframes[trial.path]["config/lr"]) == [0.1, 0.1, 0.2, 0.9]
    assert analysis.best_config == {**SECOND, "lr": 0.9}


def test_clones_that_an_older_version_recorded_are_undone_by_their_changes(cloned: Any) -> None:
    body = json.loads(cloned.state.snapshot({}))
    for clone in body["trials"][0]["clones"]:
        clone.pop("replaced", None), clone.pop("added", None)
    older = ExperimentState.from_snapshot(cloned.state.root, json.dumps(body).encode())
    assert [config_of(older.trials[0], iteration)["lr"] for iteration in (1, 2, 3, 4)] == [0.1, 0.1, 0.2, 0.4]


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
        ("hung_up", "stopped by SIGHUP (terminal or ssh connection closed)"),
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
