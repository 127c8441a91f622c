"""tune.run, end to end, with real processes."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

import tuner as tune
from tests.tuner.stepper import Stepper
from tests.tuner.test_tuner import Noting
from tuner.error import (
    ExperimentDamagedError,
    ExperimentExistsError,
    ResumeError,
    SettingError,
    TrialsFailedError,
)
from tuner.executors import LocalExecutor


def count_up(config):
    start = 0
    checkpoint = tune.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as directory:
            start = int(Path(directory, "epoch").read_text())
    for epoch in range(start + 1, config["epochs"] + 1):
        with tune.checkpoint_dir(epoch) as directory:
            Path(directory, "epoch").write_text(str(epoch))
        tune.report(score=epoch * config["lr"], epoch=epoch)


def test_a_function_runs_in_parallel_trials_and_keeps_what_the_settings_name(tmp_path):
    analysis = tune.run(
        count_up,
        name="e",
        config={"epochs": 5, "lr": tune.grid_search([0.1, 1.0, 10.0])},
        metric="score",
        mode="max",
        keep_checkpoints_num=2,
        checkpoint_score_attr="max-score",
        storage_path=tmp_path,
        verbose=0,
    )
    assert [trial.status for trial in analysis.trials] == ["TERMINATED"] * 3
    assert analysis.best_config == {"epochs": 5, "lr": 10.0}
    best = analysis.best_checkpoint
    assert Path(best.path, "epoch").read_text() == "5"
    for trial in analysis.trials:
        names = sorted(name for name in os.listdir(trial.path) if name.startswith("checkpoint"))
        assert names == ["checkpoint_000004", "checkpoint_000005"]
        rows = [json.loads(line) for line in Path(trial.path, "result.json").read_text().splitlines()]
        assert [row["training_iteration"] for row in rows] == [1, 2, 3, 4, 5]


def test_room_is_not_asked_for_when_no_trial_can_come(tmp_path):
    """On a cluster it would be taken from others, again and again."""

    class Asked(LocalExecutor):
        launched, asked = 0, 0

        def can_launch(self, resources, promised=()):
            self.asked += self.launched == 2
            return super().can_launch(resources, promised)

        def launch(self, launch):
            self.launched += 1
            super().launch(launch)

    executor = Asked()
    analysis = tune.run(
        count_up,
        config={"epochs": 20, "lr": tune.grid_search([0.1, 1.0])},
        executor=executor,
        storage_path=tmp_path,
        verbose=0,
    )
    assert [trial.last_result["epoch"] for trial in analysis.trials] == [20, 20]
    assert executor.asked <= 2  # of 20 turns and more


@pytest.mark.parametrize(
    ("settings", "total"),
    [
        ({"config": {"epochs": 1, "lr": tune.grid_search([0.1, 1.0, 10.0])}, "num_samples": 2}, 6),
        ({"config": {"epochs": 1, "lr": tune.uniform(0, 1)}, "num_samples": 2, "search_alg": "optuna"}, 2),
        ({"config": {"epochs": 1, "lr": 1.0}, "num_samples": -1, "stop": tune.stopper.MaximumResultsStopper(1)}, -1),
    ],
    ids=["grid", "searcher", "endless"],
)
def test_callbacks_and_reporters_are_told_how_many_trials_there_will_be(tmp_path, settings, total):
    told = {}

    class Told(tune.Callback):
        def setup(self, **info):
            told.update(info)

    class Reporter(tune.ProgressReporter):
        def setup(self, **info):
            told["reporter"] = info["total_samples"]

        def should_report(self, trials, done=False):
            return done

        def report(self, trials, done, *sys_info):
            pass

    tune.run(
        count_up,
        metric="score",
        mode="max",
        callbacks=[Told()],
        progress_reporter=Reporter(),
        executor="inline",
        storage_path=tmp_path,
        verbose=1,
        **settings,
    )
    assert told["num_samples"] == settings["num_samples"]
    assert told["total_num_samples"] == told["reporter"] == total


def test_a_class_saves_every_n_iterations_and_at_the_end(tmp_path):
    analysis = tune.run(
        Stepper,
        name="e",
        stop={"training_iteration": 5},
        checkpoint_freq=2,
        checkpoint_at_end=True,
        storage_path=tmp_path,
        verbose=0,
    )
    (trial,) = analysis.trials
    assert trial.last_result["count"] == 5
    names = sorted(name for name in os.listdir(trial.path) if name.startswith("checkpoint"))
    assert names == ["checkpoint_000002", "checkpoint_000004", "checkpoint_000005"]
    assert trial.checkpoint.to_dict()["count"] == 5


def test_a_taken_name_is_an_error_that_names_the_ways_out(tmp_path):
    tune.run(Stepper, name="e", stop={"training_iteration": 1}, storage_path=tmp_path, verbose=0)
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    with pytest.raises(ExperimentExistsError, match='resume="AUTO".*overwrite=True'):
        tune.run(Stepper, name="e", stop={"training_iteration": 1}, storage_path=tmp_path, verbose=0)
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before
    again = tune.run(
        Stepper, name="e", stop={"training_iteration": 2}, storage_path=tmp_path, verbose=0, overwrite=True
    )
    assert again.trials[0].last_result["count"] == 2


def test_auto_on_a_finished_run_gives_its_results_and_runs_nothing(tmp_path):
    def touch(config):
        Path(config["file"]).open("a").write("x")
        return {"a": 1}

    kwargs = {
        "name": "e",
        "config": {"file": str(tmp_path / "ran")},
        "storage_path": tmp_path,
        "verbose": 0,
        "resume": "AUTO",
    }
    tune.run(touch, **kwargs)
    analysis = tune.run(touch, **kwargs)
    assert (tmp_path / "ran").read_text() == "x"
    assert analysis.trials[0].last_result["a"] == 1


def test_a_larger_num_samples_at_resume_runs_exactly_the_missing_trials(tmp_path):
    def touch(config):
        Path(config["file"]).open("a").write("x")
        return {"a": config["x"]}

    kwargs = {
        "name": "e",
        "config": {"file": str(tmp_path / "ran"), "x": tune.uniform(0, 1)},
        "storage_path": tmp_path,
        "verbose": 0,
        "seed": 3,
    }
    first = tune.run(touch, num_samples=3, **kwargs)
    more = tune.run(touch, num_samples=5, resume=True, **kwargs)
    assert (tmp_path / "ran").read_text() == "xxxxx"
    assert len(more.trials) == 5
    assert [t.config["x"] for t in more.trials][:3] == [t.config["x"] for t in first.trials]
    assert len({t.config["x"] for t in more.trials}) == 5


def fails(config):
    tune.report({"a": 1})
    raise ValueError("boom at once")


def test_a_failed_trial_raises_at_the_end_with_the_results(tmp_path):
    with pytest.raises(TrialsFailedError, match="boom at once") as caught:
        tune.run(fails, name="e", storage_path=tmp_path, verbose=0)
    (trial,) = caught.value.analysis.trials
    assert trial.status == "ERROR" and trial.num_failures == 0
    assert "boom at once" in Path(trial.path, "error.txt").read_text()
    shown = tune.run(fails, name="e", storage_path=tmp_path, verbose=0, resume="AUTO", raise_on_failed_trial=False)
    assert shown.trials[0].status == "ERROR" and shown.trials[0].attempt == 1


def test_failures_are_retried_from_the_newest_checkpoint(tmp_path):
    def flaky(config):
        checkpoint = tune.get_checkpoint()
        start = 0
        if checkpoint:
            start = checkpoint.to_dict()["i"]
        for i in range(start + 1, 7):
            if i == 5 and start == 0:
                os._exit(3)
            tune.report({"i": i}, checkpoint=tune.Checkpoint.from_dict({"i": i}) if i % 2 == 0 else None)

    analysis = tune.run(flaky, name="e", storage_path=tmp_path, verbose=0, max_failures=1)
    (trial,) = analysis.trials
    assert trial.num_failures == 1 and trial.attempt == 2
    rows = [json.loads(line)["training_iteration"] for line in Path(trial.path, "result.json").read_text().splitlines()]
    assert rows == [1, 2, 3, 4, 5, 6]


def test_unknown_words_are_errors_that_list_what_is_accepted(tmp_path):
    with pytest.raises(SettingError, match="ERRORED_ONLY"):
        tune.run(Stepper, resume="MAYBE", storage_path=tmp_path)
    with pytest.raises(SettingError, match="keep_checkpoints_num"):
        tune.run(Stepper, keep_checkpoint_num=1, storage_path=tmp_path)
    with pytest.raises(ResumeError, match="no experiment at"):
        tune.run(Stepper, name="none", resume=True, storage_path=tmp_path)
    with pytest.raises(SettingError, match="function"):
        tune.run(fails, checkpoint_freq=2, storage_path=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_trial_whose_end_is_written_down_by_a_resume_is_complete_for_callbacks_too(tmp_path):
    """The driver died between the decision to stop and the fact of the end."""
    arguments = {"name": "e", "storage_path": tmp_path, "verbose": 0, "stop": {"count": 2}}

    def run_and_die():
        from tuner.driver.transitions import Transitions

        Transitions.end_trial = lambda *_: os.kill(os.getpid(), 9)
        tune.run(Stepper, **arguments)

    child = os.fork()
    if child == 0:
        try:
            run_and_die()
        finally:
            os._exit(1)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    analysis = tune.run(Stepper, resume=True, callbacks=[Noting(tmp_path / "heard")], **arguments)
    assert analysis.trials[0].status == "TERMINATED"
    assert (tmp_path / "heard").read_text().splitlines() == [analysis.trials[0].trial_id]


class Counting(tune.Callback):
    """Counts results, and asks for a save at every third."""

    def __init__(self):
        self.seen = []

    def on_trial_result(self, iteration, trials, trial, result, **info):
        self.seen.append(result["training_iteration"])
        if len(self.seen) % 3 == 0:
            result["should_checkpoint"] = True

    def get_state(self):
        return {"seen": list(self.seen)}

    def set_state(self, state):
        self.seen = state["seen"]


def test_a_callback_with_a_state_is_brought_up_to_date_at_a_resume(tmp_path):
    class Failing(Stepper):
        def step(self):
            if self.count == 4 and not (tmp_path / "flag").exists():
                (tmp_path / "flag").touch()
                raise ValueError("once")
            return super().step()

    arguments = {"name": "e", "stop": {"training_iteration": 7}, "storage_path": tmp_path, "verbose": 0}
    first = Counting()
    tune.run(Failing, callbacks=[first], raise_on_failed_trial=False, **arguments)
    assert first.seen == [1, 2, 3, 4]
    second = Counting()
    analysis = tune.run(Failing, callbacks=[second], resume="AUTO+ERRORED", **arguments)
    assert second.seen == [1, 2, 3, 4, 5, 6, 7], "4 is reported again, from the checkpoint of 3, and told once"
    assert [record.iteration for record in analysis.trials[0].checkpoints] == [3, 6]


def test_users_may_name_trials_and_their_directories(tmp_path):
    analysis = tune.run(
        Stepper,
        name="e",
        config={"lr": tune.grid_search([0.1, 0.2])},
        stop={"training_iteration": 1},
        storage_path=tmp_path,
        verbose=0,
        trial_name_creator=lambda trial: f"lr={trial.config['lr']}",
        trial_dirname_creator=lambda trial: f"../{trial.trainable_name} {trial.config['lr']}",
    )
    assert [str(trial) for trial in analysis.trials] == ["lr=0.1", "lr=0.2"]
    assert [trial.trainable_name for trial in analysis.trials] == ["Stepper", "Stepper"]
    for trial in analysis.trials:
        assert Path(trial.path).parent == tmp_path / "e" and trial.trial_id in trial.dirname
    with pytest.raises(SettingError, match="trial_name_creator .* returned None"):
        tune.run(Stepper, name="f", storage_path=tmp_path, verbose=0, trial_name_creator=lambda trial: None)


def test_f47_a_hundred_trivial_trials_each_in_a_process_of_its_own_from_one_fork_server(tmp_path):
    """How long they take is for `make bench`; here: no trial pays for a start, or writes more than its own files."""

    def trivial(config):
        return {"x": config["x"], "parent": os.getppid()}

    config = {"x": tune.grid_search(list(range(100)))}
    analysis = tune.run(trivial, name="e", config=config, storage_path=tmp_path, verbose=0)
    results = [trial.last_result for trial in analysis.trials]
    assert [result["x"] for result in results] == list(range(100))
    assert len({result["pid"] for result in results}) == 100
    assert len({result["parent"] for result in results}) <= os.cpu_count()  # one keeper per slot serves them all
    assert analysis.trials[0].attempt == 1 and not any(trial.num_lost for trial in analysis.trials)
    per_trial = (
        sum(
            len(line) for file in (tmp_path / "e" / "journal").glob("*.jsonl") for line in file.read_text().splitlines()
        )
        / 100
    )
    assert per_trial < 2000, "bytes of journal: created, started, one result, ended"


@pytest.mark.parametrize("resume", [False, True, "AUTO"])
def test_an_experiment_without_its_journal_is_not_started_over(tmp_path, resume):
    tune.run(count_up, name="e", config={"epochs": 2, "lr": 1}, storage_path=tmp_path, verbose=0)
    shutil.rmtree(tmp_path / "e" / "journal")
    before = sorted(str(path) for path in (tmp_path / "e").rglob("checkpoint*"))
    with pytest.raises((ExperimentDamagedError, ExperimentExistsError)):
        tune.run(count_up, name="e", config={"epochs": 2, "lr": 1}, storage_path=tmp_path, verbose=0, resume=resume)
    assert sorted(str(path) for path in (tmp_path / "e").rglob("checkpoint*")) == before


@pytest.mark.parametrize("key", [None, (1, 2), True, 3, "\ud800"], ids=["none", "tuple", "bool", "int", "surrogate"])
def test_a_result_whose_key_is_no_text_is_an_error_of_that_trial(tmp_path, key):
    def odd(config):
        tune.report({"loss": 2.0})
        tune.report({key: 1, "loss": 1.0})

    analysis = tune.run(odd, name="e", storage_path=tmp_path, verbose=0, raise_on_failed_trial=False)
    assert analysis.trials[0].error.type == "MetricError"
    assert tune.ExperimentAnalysis(tmp_path / "e").trials[0].last_result["loss"] == 2.0


def test_a_callback_that_raises_ends_the_run_with_its_own_error_also_beside_other_trials(tmp_path):
    class Raises(tune.Callback):
        def on_trial_start(self, iteration, trials, trial, **info):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        tune.run(Stepper, name="e", storage_path=tmp_path, verbose=0, callbacks=[Raises()], num_samples=3)
    analysis = tune.run(
        Stepper, name="e", storage_path=tmp_path, verbose=0, num_samples=3, resume=True, stop={"count": 1}
    )
    assert [trial.status for trial in analysis.trials] == ["TERMINATED"] * 3


def test_an_edited_sample_from_is_one_line_at_a_resume_and_no_refusal(tmp_path, capsys):
    arguments = {"name": "e", "stop": {"count": 1}, "storage_path": tmp_path}
    tune.run(Stepper, config={"x": tune.sample_from(lambda spec: 1)}, verbose=0, **arguments)
    capsys.readouterr()
    analysis = tune.run(
        Stepper, config={"x": tune.sample_from(lambda spec: 1 + 1)}, num_samples=2, resume=True, verbose=1, **arguments
    )
    said = [line for line in capsys.readouterr().out.splitlines() if "'x' was edited" in line]
    assert len(said) == 1
    assert [trial.config["x"] for trial in analysis.trials] == [1, 2]
