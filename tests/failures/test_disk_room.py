"""Room on the disk: a budget for all trials, staging that leaves nothing, state that costs the same (F23, F27, F29)."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from checkpoint_faults import die, die_at, directories, first_time, iterations, killed_at, restored, rows, run

import trainables as train
import tuner as tune
from trainables.store import fs
from tuner.executors import SimulatedExecutor

MEGABYTE = 1_000_000

# --- F27 ---------------------------------------------------------------------------------------------------------


def sized(config):
    """Saves `saves` times; its score is best at the first save of the best trials."""
    for count in range(restored() + 1, config["saves"] + 1):
        with tune.checkpoint_dir() as directory:
            Path(directory, "count").write_text(str(count))
            Path(directory, "weights").write_bytes(bytes(config["size"]))
        tune.report(score=config["i"] - count / 10)


def used(root):
    return sum(path.stat().st_size for path in root.glob("*/checkpoint_*/*") if path.exists())


class Usage(tune.Callback):
    """What lies on disk, and what the experiment says is there, at every save."""

    def __init__(self, root):
        self.root, self.kept = root, []

    def on_trial_result(self, iteration, trials, trial, result, **info):
        self.kept.append(sum(record.bytes for each in trials for record in each.checkpoints))


def check_budget(path, *, trials, size, budget, top_k):
    usage = Usage(path / "e")
    analysis = run(
        sized,
        path,
        config={"i": tune.grid_search(list(range(trials))), "saves": 2, "size": size},
        metric="score",
        mode="max",
        checkpoint_budget=tune.Budget(budget, top_k=top_k),
        max_concurrent_trials=2,
        callbacks=[usage],
    )
    assert {trial.status for trial in analysis.trials} == {"TERMINATED"}
    in_flight = 2 * (size + 100)
    assert max(usage.kept) <= budget + in_flight
    assert used(path / "e") <= budget
    best = sorted(analysis.trials, key=lambda trial: -trial.index)[:top_k]
    for trial in best:
        assert 1 in iterations(trial)  # its best
    assert used(path / "e") >= budget - 2 * in_flight  # no more went than had to


def test_f27_the_budget_of_an_experiment_holds_and_the_top_trials_best_stay(tmp_path):
    check_budget(tmp_path, trials=40, size=MEGABYTE, budget=10 * MEGABYTE, top_k=3)


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_f27_the_full_size(tmp_path):
    check_budget(tmp_path, trials=500, size=100 * MEGABYTE, budget=5000 * MEGABYTE, top_k=5)


def test_f27_what_does_not_fit_is_refused_and_a_larger_budget_continues_it(tmp_path):
    """Two trials, whose latest have to stay, are more than the budget is."""
    config = {"i": tune.grid_search([0, 1]), "saves": 3, "size": MEGABYTE}
    settings = {"config": config, "max_concurrent_trials": 2, "raise_on_failed_trial": False, "max_failures": 5}
    analysis = run(sized, tmp_path, checkpoint_budget="800kB", fail_fast=False, **settings)
    for trial in analysis.trials:
        assert trial.status == "ERROR"
        assert trial.error.type == "CheckpointBudgetError"
        assert "checkpoint_budget=800 kB" in trial.error.message and "1 MB" in trial.error.message
        assert trial.num_failures == 0 and trial.attempt == 1  # not retried
        assert iterations(trial) == []
        assert [name for name in directories(trial) if name.startswith(".")] == []
    analysis = run(sized, tmp_path, checkpoint_budget="20MB", resume="AUTO+ERRORED", **settings)
    for trial in analysis.trials:
        assert trial.status == "TERMINATED" and trial.iteration == 3


def grows(config):
    for count in range(1, 4):
        with tune.checkpoint_dir() as directory:
            Path(directory, "count").write_text(str(count))
            Path(directory, "weights").write_bytes(bytes(config["sizes"][count - 1]))
        tune.report(count=count)


def test_f27_a_refused_save_leaves_the_latest_and_counts_for_nothing(tmp_path):
    sizes = [MEGABYTE, MEGABYTE, 9 * MEGABYTE]
    (trial,) = run(
        grows, tmp_path, config={"sizes": sizes}, checkpoint_budget=3 * MEGABYTE, raise_on_failed_trial=False,
        max_failures=3,
    ).trials  # fmt: skip
    assert trial.error.type == "CheckpointBudgetError"
    assert iterations(trial)[-1] == 2
    assert trial.attempt == 1


class Growing(tune.Trainable):
    """Nobody knows the size of its save before it is there."""

    def setup(self, config):
        self.count = 0

    def step(self):
        self.count += 1
        return {"count": self.count, "done": self.count == 3}

    def save_checkpoint(self, checkpoint_dir):
        Path(checkpoint_dir, "weights").write_bytes(bytes(self.config["sizes"][self.count - 1]))

    def load_checkpoint(self, checkpoint):
        raise AssertionError("it is not retried")


def test_f27_a_class_whose_save_does_not_fit_keeps_the_one_before(tmp_path):
    (trial,) = run(
        Growing, tmp_path, config={"sizes": [MEGABYTE, 9 * MEGABYTE, 9 * MEGABYTE]}, checkpoint_freq=1,
        checkpoint_budget=3 * MEGABYTE, raise_on_failed_trial=False, max_failures=3,
    ).trials  # fmt: skip
    assert trial.status == "ERROR" and trial.error.type == "CheckpointBudgetError"
    assert iterations(trial) == [1]
    assert trial.attempt == 1


# --- F29 ---------------------------------------------------------------------------------------------------------


def stages_everywhere(config):
    """Saves in all the ways there are, and is killed now and then in the middle of it."""
    device = os.stat(tune.get_trial_dir()).st_dev
    start = restored_of(tune.get_checkpoint())
    for count in range(start + 1, config["n"] + 1):
        kill = config["kill"] and count % 9 == 0 and first_time(f"at-{count}")
        directory = tempfile.mkdtemp()
        assert os.stat(directory).st_dev == device  # no byte is copied when it is handed over
        Path(directory, "count").write_text(str(count))
        Path(directory, "weights").write_bytes(os.urandom(20_000))
        if kill:
            tune.get_checkpoint()
            die_at(config["points"][count // 9 % len(config["points"])])
        if count % 3 == 0:
            checkpoint = train.Checkpoint.from_directory(directory, move=True)
        elif count % 3 == 1:
            checkpoint = train.Checkpoint.from_directory(directory)
        else:
            checkpoint = train.Checkpoint.from_dict({"count": count})
        tune.report({"count": count, "restored": start}, checkpoint=checkpoint)
        if kill:
            tune.get_checkpoint()
            die()


def restored_of(checkpoint):
    if checkpoint is None:
        return 0
    with checkpoint.as_directory() as directory:
        path = Path(directory, "count")
        return int(path.read_text()) if path.exists() else checkpoint.to_dict()["count"]


def leftovers(storage):
    """Bytes below a storage path that belong to no checkpoint, no log and no state."""
    found = []
    for path in storage.rglob("*"):
        hidden = [part for part in path.relative_to(storage).parts if part.startswith(".") and part != ".manifest.json"]
        if path.is_file() and hidden and not hidden[0].startswith(".at-"):
            found.append(str(path.relative_to(storage)))
    return found


POINTS = ["before fs.fsync_file", "before fs.fsync_dir", "before fs.rename", "after fs.rename", "before fs.write"]


def check_staging(path, *, n, kills):
    config = {"n": n, "kill": True, "points": POINTS}
    settings = {"config": config, "keep_checkpoints_num": 2, "max_failures": -1}
    killed_at(n // 2, stages_everywhere, path=path, hook="on_checkpoint", **settings)
    (trial,) = run(stages_everywhere, path, resume=True, **settings).trials
    assert trial.iteration == n and trial.num_failures >= kills
    assert [row["training_iteration"] for row in rows(trial)] == list(range(1, n + 1))
    run(stages_everywhere, path, resume=True, **settings)  # the next start
    assert leftovers(path) == []
    assert iterations(trial) == [n - 1, n]
    assert [name for name in directories(trial) if "checkpoint" in name] == directories(trial)


def test_f29_nothing_is_left_of_staging_after_saves_restores_and_kills(tmp_path):
    with tempfile.TemporaryDirectory(prefix="t") as short:  # so short that tempfile's own may lie under it
        check_staging(Path(short), n=40, kills=2)


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_f29_the_full_size(tmp_path):
    with tempfile.TemporaryDirectory(prefix="t") as short:
        check_staging(Path(short), n=1000, kills=20)


def where_things_are(config):
    tune.report(temporary=tempfile.gettempdir())


def test_f29_temporary_files_lie_beside_the_results_and_their_path_is_short(tmp_path):
    with tempfile.TemporaryDirectory(prefix="t") as short:
        (trial,) = run(where_things_are, Path(short)).trials
        place = trial.last_result["temporary"]
        assert place.startswith(f"{short}/.tmp/") and len(place) <= 50
    deep = tmp_path / ("d" * 60)
    (trial,) = run(where_things_are, deep).trials
    assert len(trial.last_result["temporary"]) <= 50


# --- F23 ---------------------------------------------------------------------------------------------------------


def work_of(path, monkeypatch, *, trials, windows, reports=3):
    """Calls of Python functions, and bytes to the disk, of so many trials at several points of a run."""
    calls, written = {}, {}
    counted = [0, 0]

    def count(frame, event, argument):
        if event == "call" or event == "c_call":
            counted[0] += 1

    real = fs.write

    def write(fd, data):
        counted[1] += len(data)
        real(fd, data)

    monkeypatch.setattr(fs, "write", write)

    class Window(tune.Callback):
        changes_results = False

        def on_trial_start(self, iteration, trials, trial, **info):
            for start in windows:
                if trial.index == start:
                    counted[:] = [0, 0]
                    sys.setprofile(count)
                if trial.index == start + 60:
                    sys.setprofile(None)
                    calls[start], written[start] = counted[0], counted[1]

    monkeypatch.setenv("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
    simulated = SimulatedExecutor(lambda config: [(1.0, {"loss": config["x"], "b": 2.0})] * reports, slots=4)
    run(
        where_things_are,
        path,
        config={"x": tune.uniform(0, 1)},
        num_samples=trials,
        executor=simulated,
        metric="loss",
        mode="min",
        callbacks=[Window()],
        checkpoint_config=train.CheckpointConfig(num_to_keep=1),
    )
    total = sum(path.stat().st_size for path in (path / "e" / "journal").iterdir())
    return calls, written, total


def check_cost(tmp_path, monkeypatch, *, trials, last):
    calls, written, _ = work_of(tmp_path, monkeypatch, trials=trials, windows=[100, last])
    assert calls[last] <= 1.2 * calls[100]
    assert calls[last] >= 0.8 * calls[100]
    assert written[last] <= 1.2 * written[100]


def test_f23_the_work_per_event_and_the_bytes_per_report_do_not_grow(tmp_path, monkeypatch):
    check_cost(tmp_path, monkeypatch, trials=700, last=630)


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_f23_the_full_size(tmp_path, monkeypatch):
    check_cost(tmp_path, monkeypatch, trials=10_000, last=9_900)


def test_f23_all_that_is_written_for_state_is_proportional_to_the_reports(tmp_path, monkeypatch):
    """Snapshots too: compaction is amortized, ten times the trials are ten times the bytes."""
    sizes = {}
    real, count = fs.write, [0]

    def write(fd, data):
        count[0] += len(data)
        real(fd, data)

    monkeypatch.setattr(fs, "write", write)
    monkeypatch.setenv("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
    for trials in (100, 800):
        count[0] = 0
        simulated = SimulatedExecutor(lambda config: [(1.0, {"loss": config["x"], "t": "x" * 300})] * 5, slots=4)
        run(where_things_are, tmp_path / str(trials), config={"x": tune.uniform(0, 1)}, num_samples=trials,
            executor=simulated)  # fmt: skip
        sizes[trials] = count[0] / trials
    assert sizes[800] < 2 * sizes[100]
