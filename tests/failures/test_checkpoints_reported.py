"""What is reported and what becomes of it: lent and moved directories, values, types, rows (T01-T03, T06, T12)."""

from __future__ import annotations

import csv
import enum
import json
import math
import os
import pickle
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from checkpoint_faults import (
    count_up,
    die,
    facts,
    first_time,
    in_child,
    iterations,
    killed_at,
    restored,
    rows,
    run,
    save,
    wait_for_its_processes,
)

import trainables as train
import tuner as tune
from trainables.errors import CheckpointError
from trainables.store import verify
from tuner.cli import main
from tuner.clock import SystemClock
from tuner.executors.base import Executor
from tuner.search.optuna import OptunaSearch

# --- T01: who owns the files -------------------------------------------------------------------------------------


def from_one_temporary_directory(config):
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "base").write_text("written once")
        Path(directory, "sub").mkdir()
        for count in range(1, 11):
            Path(directory, "sub", "count").write_text(str(count))
            before = sorted(os.walk(directory))
            tune.report({"count": count}, checkpoint=train.Checkpoint.from_directory(directory))
            assert sorted(os.walk(directory)) == before


def from_one_mkdtemp(config):
    directory = tempfile.mkdtemp()
    Path(directory, "base").write_text("written once")
    Path(directory, "sub").mkdir()
    Path(directory, "sub", "count").write_text("once")
    for count in range(1, 11):
        tune.report({"count": count}, checkpoint=train.Checkpoint.from_directory(directory))
    assert Path(directory, "base").read_text() == "written once"


def from_a_base_model(config):
    """A folder beside others in the temporary directory, of which one file is rewritten in place."""
    model = Path(config["model"])
    for count in range(1, 11):
        with open(model / "sub" / "count", "r+") as file:
            file.write(f"{count:02}")
        tune.report({"count": count}, checkpoint=train.Checkpoint.from_directory(model))


@pytest.mark.parametrize("trainable", [from_one_temporary_directory, from_one_mkdtemp, from_a_base_model])
def test_t01_ten_reports_from_one_directory_are_ten_whole_checkpoints(tmp_path, trainable):
    model = tmp_path / "model"
    (model / "sub").mkdir(parents=True)
    (model / "base").write_text("written once")
    (model / "sub" / "count").write_text("00")
    (trial,) = run(trainable, tmp_path, config={"model": str(model)}).trials
    assert iterations(trial) == list(range(1, 11))
    for published in verify.list_checkpoints(Path(trial.path)):
        assert sorted(entry.name for entry in published.manifest.files) == ["base", "sub/count"]
        text = (published.path / "sub" / "count").read_text()
        if trainable is not from_one_mkdtemp:
            assert int(text) == published.ref.iteration  # what was there at the call, whatever came after
        assert (published.path / "base").stat().st_nlink == 1  # never a hard link
    assert sorted(os.listdir(model)) == ["base", "sub"]


def moved(config):
    for count in range(1, 4):
        directory = tempfile.mkdtemp()
        Path(directory, "weights").write_bytes(bytes(100))
        number = os.stat(Path(directory, "weights")).st_ino
        tune.report({"count": count, "inode": number}, checkpoint=train.Checkpoint.from_directory(directory, move=True))
        assert os.listdir(directory) == []


def test_t01_with_move_the_directory_is_empty_and_no_byte_was_copied(tmp_path):
    (trial,) = run(moved, tmp_path).trials
    for published, row in zip(verify.list_checkpoints(Path(trial.path)), rows(trial), strict=True):
        assert (published.path / "weights").stat().st_ino == row["inode"]


def lends_what_was_published(config):
    save(1)
    tune.report(count=1)
    first = tune.get_checkpoint()
    tune.report({"count": 2}, checkpoint=first)
    try:
        tune.report({"count": 3}, checkpoint=train.Checkpoint.from_directory(first.path, move=True))
    except CheckpointError as error:
        tune.report(refused=str(error))


def test_t01_a_published_checkpoint_can_be_reported_again_and_never_moved(tmp_path):
    (trial,) = run(lends_what_was_published, tmp_path).trials
    assert iterations(trial) == [1, 2]
    assert "never emptied" in trial.last_result["refused"]


def from_memory(config):
    checkpoint = train.Checkpoint.from_dict({"weights": [1, 2], "epoch": 3})
    checkpoint.set_metadata({"framework": "none"})
    tune.report({"a": 1}, checkpoint=checkpoint)
    found = tune.get_checkpoint()
    assert found.to_dict() == {"weights": [1, 2], "epoch": 3}
    try:
        found.update_metadata({"late": True})
    except CheckpointError as error:
        tune.report(metadata=found.get_metadata(), refused=str(error))


def test_a_dict_checkpoint_keeps_its_metadata_and_a_published_one_never_changes(tmp_path):
    (trial,) = run(from_memory, tmp_path).trials
    assert trial.last_result["metadata"] == {"framework": "none"}
    assert "never changes" in trial.last_result["refused"]
    checkpoint = tune.ExperimentAnalysis(tmp_path / "e").trials[0].checkpoint
    assert checkpoint.get_metadata() == {"framework": "none"}
    assert checkpoint.to_dict() == {"weights": [1, 2], "epoch": 3}
    assert checkpoint.metrics["a"] == 1 and checkpoint.iteration == 1


# --- T02: what may be reported -----------------------------------------------------------------------------------


def reports_anything(config):
    tune.report({})
    save(2)
    tune.report({"metric": "my_metric", "none": None, "flag": True, "list": [1, "a", None], "score": "high"})
    save(3)
    tune.report({"nested": {"a": {"b": 1}}, "score": 2.0, "nan": math.nan, "inf": -math.inf, "np": np.float32(0.5)})
    save(4)
    tune.report({"score": True, "int": np.int64(3), "array": np.arange(3)[1]})


def test_t02_everything_that_can_be_written_is_logged_and_only_numbers_rank(tmp_path):
    analysis = run(reports_anything, tmp_path, keep_checkpoints_num=1, checkpoint_score_attr="score")
    (trial,) = analysis.trials
    assert iterations(trial) == [3, 4]  # a text and a boolean are no scores
    frame = analysis.trial_dataframes[trial.path]
    assert list(frame["training_iteration"]) == [1, 2, 3, 4]
    second, third, fourth = frame.to_dict("records")[1:]
    assert (second["metric"], second["flag"], second["list"], second["score"]) == (
        "my_metric", True, [1, "a", None], "high",
    )  # fmt: skip
    assert (third["nested/a/b"], third["inf"], third["np"]) == (1, -math.inf, 0.5)
    assert math.isnan(third["nan"])
    assert (fourth["int"], fourth["array"]) == (3, 1)
    assert all(type(value) in (int, float) for value in (json.loads("3"), trial.last_result["int"]))


@pytest.mark.parametrize("value", ["lock", "generator", "object"])
def test_t02_what_cannot_be_written_is_an_error_that_names_its_key(tmp_path, value):
    def wrong(config):
        import threading

        bad = {"lock": threading.Lock(), "generator": (x for x in ()), "object": object()}[config["value"]]
        tune.report({"fine": 1})
        tune.report({"deep": {"down": bad}})

    (trial,) = run(wrong, tmp_path, config={"value": value}, raise_on_failed_trial=False).trials
    assert trial.error.type == "MetricError"
    assert "deep/down" in trial.error.message
    assert trial.iteration == 1  # nothing of it was sent


# --- T03: results after the checkpoint are reported twice --------------------------------------------------------


def forgetful(config):
    """Saves every tenth iteration and is killed once after the 45th has been reported."""
    for count in range(restored() + 1, 61):
        if count == 46 and config["kill"] and first_time("killed"):
            die()
        if count % 10 == 0:
            save(count)
        tune.report(loss=config["x"] / count, count=count)


class Seen(tune.Callback):
    """Remembers what it was told, and forgets what is void."""

    def __init__(self, crash=False):
        self.told, self.crash = {}, crash

    def on_trial_result(self, iteration, trials, trial, result, **info):
        self.told.setdefault(trial.index, []).append(result["training_iteration"])
        if self.crash and trial.index == 1 and result["training_iteration"] == 45:
            die()

    def on_rollback(self, trial, iteration):
        self.told[trial.index] = [n for n in self.told[trial.index] if n <= iteration]

    def get_state(self):
        return {"told": self.told}

    def set_state(self, state):
        self.told = state["told"]


class Counting(tune.stopper.Stopper):
    def __init__(self):
        self.calls = 0

    def __call__(self, trial_id, result):
        self.calls += 1
        return False

    def stop_all(self):
        return False


def told_of(path, name, *, kill, crash=False, resume=False):
    searcher = OptunaSearch(metric="loss", mode="min", seed=3)
    scheduler = tune.schedulers.ASHAScheduler(metric="loss", mode="min", max_t=1000, grace_period=5, reduction_factor=2)
    stopper, seen = Counting(), Seen(crash)
    analysis = run(
        forgetful,
        path,
        name=name,
        config={"x": tune.uniform(1, 2), "kill": kill},
        num_samples=3,
        seed=1,
        search_alg=searcher,
        scheduler=scheduler,
        stop=stopper,
        callbacks=[seen],
        max_failures=1,
        max_concurrent_trials=1,
        checkpoint_config=train.CheckpointConfig(publish="blocking"),
        resume=resume,
    )
    rungs = [[(rung.milestone, rung.recorded) for rung in bracket.rungs] for bracket in scheduler._brackets]
    study = searcher._study
    return analysis, {
        "rungs": repr([[(m, sorted(r.values() if isinstance(r, dict) else r)) for m, r in b] for b in rungs]),
        "intermediate": [trial.intermediate_values for trial in study.trials],
        "values": [trial.value for trial in study.trials],
        "stopper": stopper.calls,
        "told": seen.told,
        "best": analysis.get_best_trial("loss", "min", "all").index,
        "best loss": analysis.dataframe("loss", "min")["loss"].tolist(),
        "summary": [trial.metric_summary["loss"] for trial in analysis.trials],
        "last": [trial.last_result["loss"] for trial in analysis.trials],
    }


def rows_once(analysis):
    for trial in analysis.trials:
        expected = list(range(1, trial.iteration + 1))
        assert [row["training_iteration"] for row in rows(trial)] == expected
        with open(Path(trial.path, "progress.csv"), newline="") as file:
            assert [int(row["training_iteration"]) for row in csv.DictReader(file)] == expected
        assert analysis.trial_dataframes[trial.path]["training_iteration"].tolist() == expected


def test_t03_a_killed_trial_leaves_the_same_rungs_values_and_rows_as_an_unkilled_one(tmp_path):
    _, smooth = told_of(tmp_path, "smooth", kill=False)
    analysis, killed = told_of(tmp_path, "killed", kill=True)
    assert [f["iteration"] for f in facts(tmp_path / "killed", "rolled_back")][:1] == [40]
    assert killed == smooth
    rows_once(analysis)


def test_t03_a_killed_driver_leaves_the_same_too(tmp_path):
    _, smooth = told_of(tmp_path, "smooth", kill=False)
    assert os.WIFSIGNALED(in_child(lambda: told_of(tmp_path, "killed", kill=False, crash=True)))
    wait_for_its_processes(tmp_path / "killed")
    analysis, killed = told_of(tmp_path, "killed", kill=False, resume=True)
    assert [f["iteration"] for f in facts(tmp_path / "killed", "rolled_back")] == [40]
    assert killed == smooth
    rows_once(analysis)


# --- T06: types --------------------------------------------------------------------------------------------------


class Color(enum.Enum):
    RED = "red"


class Model:
    def __init__(self, size=3):
        self.size = size

    def __eq__(self, other):
        return isinstance(other, Model) and other.size == self.size

    __hash__ = None


def named(value):
    return value + 1


VALUES = {
    "tuple": (1, (2, "x")), "int keys": {1: "a", 2: {3: "b"}}, "numpy": np.float32(0.5), "numpy int": np.int64(7),
    "set": {1, 2}, "frozenset": frozenset("ab"), "path": Path("/a/b"), "enum": Color.RED, "bytes": b"\x00\xff",
    "inf": math.inf, "minus": -math.inf, "class": Model, "callable": named, "object": Model(5), "none": None,
    "big": 2**70, "complex": 1 + 2j, "range": range(3), "tag": {"$": "set", "v": [1]}, "text": "ü\ud800/:*?",
}  # fmt: skip


def checks_its_config(config):
    expected = dict(VALUES.items())
    wrong = [key for key in expected if config[key] != expected[key] or type(config[key]) is not type(expected[key])]
    save(1)
    tune.report(wrong=wrong, nan=math.isnan(config["nan"]), lambda_=config["lambda"](2))
    if config["die"] and first_time("config"):
        die()


def test_t06_configs_come_back_equal_in_the_trial_from_disk_and_after_a_resume(tmp_path):
    config = {**VALUES, "nan": math.nan, "lambda": lambda x: x * 2, "die": True, "choice": tune.choice([(1, 2)])}
    (trial,) = run(checks_its_config, tmp_path, config=config, max_failures=1).trials
    assert trial.num_failures == 1
    for row in rows(trial):
        assert row["wrong"] == [] and row["nan"] is True and row["lambda_"] == 4
    (again,) = tune.ExperimentAnalysis(tmp_path / "e").trials
    for key, value in {**VALUES, "choice": (1, 2)}.items():
        assert again.config[key] == value, key
        assert type(again.config[key]) is type(value), key
    assert again.config["lambda"](4) == 8
    killed_at(1, checks_its_config, path=tmp_path, name="r", config=config)
    (resumed,) = run(checks_its_config, tmp_path, name="r", config=config, resume=True, max_failures=1).trials
    assert rows(resumed)[-1]["wrong"] == []


class Poison:
    """Unpickling it leaves a trace."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return (Poison.open, (self.trace,))

    @staticmethod
    def open(trace):
        with open(trace, "a") as file:
            file.write("x")
        return Poison(trace)


def test_t06_a_poisoned_blob_is_not_touched_by_reading(tmp_path, capsys):
    trace = tmp_path / "trace"
    run(count_up, tmp_path, config={"n": 2, "poison": Poison(str(trace))}, metric="score", mode="max")
    trace.unlink(missing_ok=True)
    assert any(b"Poison" in blob.read_bytes() for blob in (tmp_path / "e" / "blobs").iterdir())
    (trial,) = tune.ExperimentAnalysis(tmp_path / "e").trials
    for arguments in (
        ["ls", str(tmp_path)], ["show", str(tmp_path / "e")], ["show", str(tmp_path / "e"), trial.trial_id],
        ["verify", str(tmp_path / "e")],
    ):  # fmt: skip
        assert main(arguments) in (0, None)
    analysis = tune.ExperimentAnalysis(tmp_path / "e")
    for look in (
        lambda: analysis.results_df, lambda: analysis.dataframe(), lambda: analysis.trial_dataframes,
        lambda: analysis.best_checkpoint, lambda: analysis.best_result, lambda: repr(analysis.trials[0]),
        lambda: tune.ResultGrid(analysis).get_dataframe(), lambda: tune.ResultGrid(analysis)[0].metrics,
        lambda: train.Result.from_path(trial.path).metrics, lambda: tune.Tuner.can_restore(tmp_path / "e"),
        lambda: shutil.copytree(tmp_path / "e", tmp_path / "copy"),
        lambda: main(["show", str(tmp_path / "copy")]),
    ):  # fmt: skip
        look()
    assert not trace.exists()
    assert isinstance(analysis.trials[0].config["poison"], Poison)  # asked for, it opens
    assert trace.exists()


def test_t06_a_blob_that_was_exchanged_is_refused(tmp_path):
    run(count_up, tmp_path, config={"n": 1, "what": Model(4)})
    trace = tmp_path / "trace"
    for blob in (tmp_path / "e" / "blobs").iterdir():
        blob.write_bytes(pickle.dumps(Poison(str(trace))))
    from tuner.error import ExperimentDamagedError

    (trial,) = tune.ExperimentAnalysis(tmp_path / "e").trials
    with pytest.raises(ExperimentDamagedError, match="damaged"):
        _ = trial.config
    assert not trace.exists()


# --- T12: the clock jumps ----------------------------------------------------------------------------------------


class Jumping(SystemClock):
    """Set back a day with every look, and once in a while forward a year."""

    looks = 0

    def time(self):
        Jumping.looks += 1
        return super().time() - 86_400 * Jumping.looks + 365 * 86_400 * (Jumping.looks // 25)


@pytest.fixture
def jumping(monkeypatch):
    monkeypatch.setattr(Executor, "clock", Jumping())
    Jumping.looks = 0


def test_t12_order_owner_and_resume_hold_when_the_clock_jumps(tmp_path, jumping):
    settings = {"config": {"n": 9}, "keep_checkpoints_num": 2, "time_budget_s": 60}
    killed_at(6, count_up, hook="on_checkpoint", path=tmp_path, **settings)
    (trial,) = run(count_up, tmp_path, resume=True, **settings).trials
    assert facts(tmp_path / "e", "attempt")[-1]["iteration"] == 6
    assert trial.status == "TERMINATED"
    assert iterations(trial) == [8, 9]
    assert [row["training_iteration"] for row in rows(trial)] == list(range(1, 10))
    times = [fact["at"] for fact in facts(tmp_path / "e", "published")]
    assert times != sorted(times)  # it did jump


def test_t12_a_budget_removes_the_oldest_save_and_not_the_oldest_time(tmp_path, jumping):
    """Trials one after another, each with one checkpoint of a megabyte; without a metric recency counts."""
    settings = {"config": {"i": tune.grid_search(list(range(6)))}, "max_concurrent_trials": 1,
                "checkpoint_budget": 3_500_000}  # fmt: skip
    killed_at(1, a_megabyte, path=tmp_path, trials=5, hook="on_checkpoint", **settings)
    analysis = run(a_megabyte, tmp_path, resume=True, **settings)
    left = [trial.index for trial in analysis.trials if iterations(trial)]
    assert left == [3, 4, 5]


def a_megabyte(config):
    with tune.checkpoint_dir() as directory:
        Path(directory, "count").write_text("1")
        Path(directory, "weights").write_bytes(bytes(1_000_000))
    tune.report(i=config["i"])
