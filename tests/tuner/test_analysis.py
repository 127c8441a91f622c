"""Results of experiments: which trial is best, and what is read when."""

from __future__ import annotations

import itertools
import math
import os
import pickle
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from lab import Lab

from trainables import tagged
from trainables.result import Result
from trainables.store import publish, staging
from tuner.analysis import ExperimentAnalysis, ResultGrid, scopes
from tuner.callback import CallbackList
from tuner.error import ExperimentNotFoundError, MetricMissingError, SettingError, TrialError, TrialTimeoutError
from tuner.experiment import events as ev
from tuner.experiment.blobs import Blobs
from tuner.experiment.trial import Trial
from tuner.logger import JsonLoggerCallback

SCOPES = ["last", "all", "avg", "last-2-avg", "last-5-avg", "last-10-avg"]


@pytest.fixture
def lab(tmp_path: Path) -> Any:
    return Lab(tmp_path / "experiment", JsonLoggerCallback())


def run_trials(lab: Any, *histories: list[Any], metric: str = "loss", ended: bool = True) -> list[Trial]:
    trials = []
    for history in histories:
        trial = lab.trial(lr=0.1)
        for value in history:
            lab.report(trial, **({} if value is None else {metric: value}))
        if ended:
            lab.end(trial)
        trials.append(trial)
    return trials


# --- scopes -------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(("metric", "mode"), [("loss", "minimum"), ("loss", None), (None, "min"), (["a", "b"], "min")])
def test_what_best_means_must_be_clear(lab: Any, metric: Any, mode: Any) -> None:
    with pytest.raises(SettingError, match="metric|mode"):
        lab.analysis(metric, mode).get_best_trial()


def test_training_iteration_is_a_metric_too(lab: Any) -> None:
    run_trials(lab, [1.0], [1.0, 1.0, 1.0], [1.0, 1.0])

    assert lab.analysis().get_best_trial("training_iteration", "max", "all").index == 1


# --- ExperimentAnalysis -------------------------------------------------------------------------------


def test_the_best_of_everything(lab: Any) -> None:
    first, second = run_trials(lab, [0.5, 0.9], [0.4, 0.3], ended=False)
    for trial in (first, second):
        lab.save(trial)
    analysis = lab.analysis()

    assert analysis.best_trial is second
    assert analysis.best_config == {"lr": 0.1}
    assert analysis.best_logdir == second.path
    assert analysis.best_result["loss"] == 0.3
    assert analysis.best_result["config"] == {"lr": 0.1}
    assert list(analysis.best_dataframe["loss"]) == [0.4, 0.3]
    assert list(analysis.best_result_df["config/lr"]) == [0.1]
    assert analysis.best_checkpoint == second.checkpoint
    assert analysis.results[first.trial_id]["loss"] == 0.9
    assert list(analysis.results_df["loss"]) == [0.9, 0.3]
    assert analysis.get_best_config(scope="all") == {"lr": 0.1}
    assert analysis.get_best_logdir("loss", "max") == first.path
    assert analysis.get_all_configs(prefix=True)[first.path] == {"config/lr": 0.1}
    assert analysis.stats()["trials"] == {"RUNNING": 2}


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


def test_t03_a_row_that_was_reached_before_voids_what_follows(tmp_path: Path) -> None:
    """Also where nobody cut the file: a copy that was taken in between."""
    from trainables.result_history import read_history

    lines = [{"training_iteration": n, "life": 1} for n in (1, 2, 3, 4)]
    lines += [{"training_iteration": n, "life": 2} for n in (3, 4, 5)]
    file = tmp_path / "result.json"
    file.write_bytes(b"\n".join(map(tagged.dumps, lines)) + b"\n" + b'{"training_iteration": 6, "li')

    assert [(row["training_iteration"], row["life"]) for row in read_history(file)] == [
        (1, 1), (2, 1), (3, 2), (4, 2), (5, 2)
    ]  # fmt: skip


def test_a_trial_is_named_by_id_name_or_directory(lab: Any) -> None:
    (trial,) = run_trials(lab, [1.0], ended=False)
    lab.save(trial)
    analysis = lab.analysis()

    for name in (trial, trial.trial_id, trial.name, trial.path):
        assert analysis.get_best_checkpoint(name) == trial.checkpoint
    with pytest.raises(SettingError, match="nobody"):
        analysis.get_best_checkpoint("nobody")


@pytest.mark.parametrize(("mode", "best"), [("min", 3), ("max", 2)])
def test_the_best_checkpoint_of_a_trial_has_a_number_and_is_the_earliest_such(lab: Any, mode: str, best: int) -> None:
    trial = lab.trial()
    for value in (math.nan, 3.0, 1.0, 1.0, 3.0, None, 2.0):
        lab.report(trial, loss=value)
        lab.save(trial)
    analysis = lab.analysis()

    assert Path(analysis.get_best_checkpoint(trial, "loss", mode).path).name == f"checkpoint_{best:06d}"
    assert analysis.get_best_checkpoint(trial, "loss", mode, return_path=True).endswith(f"{best:06d}")
    assert Path(analysis.get_last_checkpoint(trial).path).name == "checkpoint_000007"
    paths = analysis.get_trial_checkpoints_paths(trial, "loss")
    assert [value for _, value in paths[1:]] == [3.0, 1.0, 1.0, 3.0, None, 2.0]
    assert analysis.get_best_checkpoint(trial, "nothing", mode) is None


def test_without_a_name_the_last_checkpoint_is_that_of_the_longest_trial(lab: Any) -> None:
    first, second = run_trials(lab, [1.0], [1.0, 1.0], ended=False)
    for trial in (first, second):
        lab.save(trial)

    assert lab.analysis().get_last_checkpoint() == second.checkpoint


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"num_to_keep": None}, [1, 2, 3, 4]),
        ({"num_to_keep": 2}, [3, 4]),
        ({"num_to_keep": 2, "checkpoint_score_attribute": "loss", "checkpoint_score_order": "min"}, [4, 2]),
        ({"num_to_keep": 3, "checkpoint_score_attribute": "loss", "checkpoint_score_order": "max"}, [4, 1, 3]),
    ],
)
def test_best_checkpoints_are_exactly_the_best_n_worst_to_best(
    lab: Any, settings: dict[str, Any], wanted: list[int]
) -> None:
    trial = lab.trial()
    for value in (3.0, 1.0, 4.0, 2.0):
        lab.report(trial, loss=value)
        lab.save(trial)
    (result,) = ResultGrid(lab.analysis(**settings))

    assert [int(Path(made.path).name[-6:]) for made, _ in result.best_checkpoints] == wanted
    assert all(metrics["loss"] for _, metrics in result.best_checkpoints)
    assert Path(result.checkpoint.path).name == "checkpoint_000004"


def test_a_path_without_an_experiment_says_so(tmp_path: Path) -> None:
    with pytest.raises(ExperimentNotFoundError, match="nothing"):
        ExperimentAnalysis(tmp_path / "nothing")
    with pytest.raises(ExperimentNotFoundError, match="nothing"):
        ResultGrid(tmp_path / "nothing")


# --- ResultGrid ---------------------------------------------------------------------------------------


def test_a_grid_is_a_sequence_of_results(lab: Any) -> None:
    run_trials(lab, [0.5], [0.4, 0.3], [0.9])
    grid = ResultGrid(lab.analysis())

    assert len(grid) == 3
    assert [result.metrics["loss"] for result in grid] == [0.5, 0.3, 0.9]
    assert grid[-1].metrics["loss"] == 0.9
    assert [result.metrics["loss"] for result in grid[:2]] == [0.5, 0.3]
    assert grid.num_terminated == 3
    assert grid.errors == []
    best = grid.get_best_result()
    assert (best.metrics["loss"], best.config, best.metrics["config"]) == (0.3, {"lr": 0.1}, {"lr": 0.1})
    assert list(best.metrics_dataframe["loss"]) == [0.4, 0.3]
    assert list(grid.get_dataframe()["loss"]) == [0.5, 0.3, 0.9]
    assert list(grid.get_dataframe("loss", "max")["loss"]) == [0.5, 0.4, 0.9]
    assert grid.experiment_path == str(lab.state.root)
    with pytest.raises(IndexError):
        grid[3]


def test_errors_carry_the_trials_own_traceback(lab: Any) -> None:
    lab.end(lab.trial(), ev.ErrorInfo("ValueError", "boom", "Traceback ...\nValueError: boom"))
    lab.end(lab.trial(), ev.ErrorInfo("TrialTimeoutError", "too long"))
    lab.end(lab.trial())
    grid = ResultGrid(lab.analysis())

    assert grid.num_errors == 2
    assert [type(error) for error in grid.errors] == [TrialError, TrialTimeoutError]
    assert grid.errors[0].traceback == "Traceback ...\nValueError: boom"
    assert grid[0].error is not None
    assert grid[2].error is None


def test_a_mistyped_metric_is_an_error_with_the_nearest_names(lab: Any) -> None:
    run_trials(lab, [0.5], [0.4])

    with pytest.raises(MetricMissingError, match="nearest first: loss"):
        ResultGrid(lab.analysis()).get_best_result("losss", "min")


def test_no_result_at_all_is_an_error_that_says_so(lab: Any) -> None:
    lab.end(lab.trial(), ev.ErrorInfo("ValueError", "boom"))
    lab.end(lab.trial(), ev.ErrorInfo("ValueError", "boom"))

    with pytest.raises(MetricMissingError, match="no trial has reported anything"):
        ResultGrid(lab.analysis()).get_best_result()


def test_the_result_of_a_single_trial_needs_no_metric(lab: Any) -> None:
    run_trials(lab, [0.5])
    assert ResultGrid(lab.analysis(None, None)).get_best_result().metrics["loss"] == 0.5
    run_trials(lab, [0.4])
    with pytest.raises(SettingError, match="No metric is provided"):
        ResultGrid(lab.analysis(None, None)).get_best_result()


def test_a_grid_is_readable(lab: Any) -> None:
    run_trials(lab, *([float(n)] for n in range(12)))
    text = repr(ResultGrid(lab.analysis()))

    assert text.startswith("ResultGrid<[")
    assert text.count("Result(") == 10
    assert "... and 2 more" in text
    assert "config" not in text


def test_t06_configs_come_back_with_their_types_and_are_opened_when_asked_for(lab: Any) -> None:
    blobs = Blobs(lab.state.root / "blobs")
    config = {"activation": Path.exists, "shape": (1, 2), "lr": 0.1}
    raw = msgspec.Raw(tagged.dumps(config, blobs=blobs))
    lab.state.apply(ev.TrialCreated("x_00000", 0, raw, raw, "", "train_x_00000", "train_x_00000"))
    grid = ResultGrid(lab.analysis())
    opened: list[str] = []
    original = Blobs.get
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Blobs, "get", lambda self, digest: opened.append(digest) or original(self, digest))
        result = grid[0]
        repr(grid)
        grid.get_dataframe()
        assert not opened
        assert result.config == config
        assert opened


# --- Result -------------------------------------------------------------------------------------------


def published(lab: Any, trial: Trial) -> None:
    """A checkpoint on disk, by the store's own means."""
    staged = staging.new_directory(trial.directory, "x")
    (staged / "model.txt").write_text("weights")
    made = publish.prepare(staged, ref=lab.save(trial), metrics=trial.raw_result, created=0.0)
    publish.commit(made, trial.directory / made.ref.name)


def test_a_result_from_a_path_has_its_complete_checkpoints(lab: Any) -> None:
    trial = lab.trial(lr=0.1)
    for loss in (0.3, 0.1, 0.2):
        lab.report(trial, loss=loss)
        published(lab, trial)
    (trial.directory / "checkpoint_000003" / "model.txt").unlink()
    (trial.directory / "checkpoint_000009").mkdir()
    result = Result.from_path(trial.path)

    assert result.checkpoint is not None
    assert Path(result.checkpoint.path).name == "checkpoint_000002"
    assert [metrics["loss"] for _, metrics in result.best_checkpoints] == [0.3, 0.1]
    assert result.get_best_checkpoint("loss", "max").path.endswith("checkpoint_000001")


def test_a_result_is_read_from_a_trials_directory(lab: Any, tmp_path: Path) -> None:
    (trial,) = run_trials(lab, [0.5, 0.4])
    moved = tmp_path / "elsewhere" / "trial"
    shutil.copytree(trial.path, moved)

    for where in (moved, str(moved), moved.as_uri()):
        result = Result.from_path(where)
        assert result.metrics["loss"] == 0.4
        assert result.config == {"lr": 0.1}
        assert list(result.metrics_dataframe["loss"]) == [0.5, 0.4]
        assert result.error is None
        assert result.checkpoint is None
        assert result.path == str(moved)


def test_a_result_from_a_path_has_the_last_failure_unless_results_followed(lab: Any) -> None:
    (trial,) = run_trials(lab, [0.5], ended=False)
    file = trial.directory / "error.txt"
    file.write_text("Failure # 1 (occurred at x)\nKeyError: 1\n\nFailure # 2 (occurred at y)\nTB\nValueError: boom\n\n")
    error = Result.from_path(trial.path).error
    assert str(error) == "ValueError: boom"
    assert error is not None
    assert error.__notes__ == ["TB\nValueError: boom"]
    os.utime(file, ns=(0, 0))
    assert Result.from_path(trial.path).error is None


def test_a_directory_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nothing"):
        Result.from_path(tmp_path / "nothing")


def test_results_can_be_pickled(lab: Any) -> None:
    trial = lab.trial(lr=0.1)
    lab.report(trial, loss=0.5)
    lab.save(trial)
    result = ResultGrid(lab.analysis())[0]
    assert result.metrics_dataframe is not None

    copied = pickle.loads(pickle.dumps(result))

    assert copied.metrics == result.metrics
    assert copied.config == {"lr": 0.1}
    assert copied.checkpoint == result.checkpoint
    assert copied.best_checkpoints[0][0] == result.checkpoint
    assert list(copied.metrics_dataframe["loss"]) == [0.5]


@pytest.mark.parametrize(("metric", "mode", "best"), [("loss", "min", 2), ("loss", "max", 1), ("eval/auc", "max", 2)])
def test_a_result_knows_its_best_checkpoint_by_any_metric(lab: Any, metric: str, mode: str, best: int) -> None:
    trial = lab.trial()
    for loss, auc in ((3.0, 0.1), (1.0, 0.9), (math.nan, 0.5)):
        lab.report(trial, loss=loss, eval={"auc": auc})
        lab.save(trial)
    result = ResultGrid(lab.analysis())[0]

    assert result.get_best_checkpoint(metric, mode).path.endswith(f"{best:06d}")


def test_a_result_names_what_there_is_instead_of_a_metric(lab: Any) -> None:
    trial = lab.trial()
    lab.report(trial, loss=1.0)
    empty = ResultGrid(lab.analysis())[0]
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        empty.get_best_checkpoint("loss", "min")
    lab.save(trial)
    with pytest.raises(ValueError, match="nearest first: loss"):
        ResultGrid(lab.analysis())[0].get_best_checkpoint("lost", "min")
    with pytest.raises(ValueError, match="'min' and 'max'"):
        ResultGrid(lab.analysis())[0].get_best_checkpoint("loss", "lowest")


# --- cost ---------------------------------------------------------------------------------------------


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
    started = time.monotonic()
    for scope in ("all", "last", "avg"):
        assert analysis.get_best_trial(scope=scope) is not None

    assert analysis.get_best_trial("never reported", "min", "all") is None
    assert time.monotonic() - started < 10, "a hang, not a benchmark"


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
