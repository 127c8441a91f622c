"""What programs for Ray 1.13, 2.0 and 2.9 do with the objects that they get, as they write it. Prints ok.

Usage: held_by_users.py DIRECTORY, under tuner.compat
"""

import json
import os
import sys
import tempfile

import ray
from ray import air, train, tune
from ray.air import session
from ray.ml import Checkpoint as MlCheckpoint
from ray.tune.function_runner import wrap_function
from ray.tune.logger import LegacyLoggerCallback, Logger, LoggerCallback, UnifiedLogger, pretty_print
from ray.tune.trainable import FunctionTrainable
from ray.tune.trial import ExportFormat

place = os.path.abspath(sys.argv[1])


def with_directories(config, checkpoint_dir=None):  # 1.13
    start = 0
    if checkpoint_dir:
        with open(os.path.join(checkpoint_dir, "checkpoint")) as file:
            start = json.load(file)["step"] + 1
    for step in range(start, 4):
        with tune.checkpoint_dir(step) as checkpoint_dir:
            with open(os.path.join(checkpoint_dir, "checkpoint"), "w") as file:
                json.dump({"step": step}, file)
        tune.report(loss=config["lr"] * (4 - step), timesteps_this_iter=32)


class Stepping(tune.Trainable):
    def setup(self, config):
        self.x = config["x"]

    def step(self):
        self.x += 1
        return {"m": self.x, "timesteps_this_iter": 5}

    def save_checkpoint(self, checkpoint_dir):
        path = os.path.join(checkpoint_dir, "model")
        with open(path, "w") as file:
            file.write(str(self.x))
        return path

    def load_checkpoint(self, path):
        with open(path) as file:
            self.x = int(file.read())

    def _export_model(self, export_formats, export_dir):
        with open(os.path.join(export_dir, "exported"), "a") as file:
            print(*export_formats, file=file)
        return {each: os.path.join(export_dir, each) for each in export_formats}


class Rows(Logger):
    def _init(self):
        self.rows = 0

    def on_result(self, result):
        self.rows += 1
        assert result["config"] == self.config == self.trial.config

    def close(self):
        with open(os.path.join(self.logdir, "rows"), "w") as file:
            file.write(str(self.rows))


class Epochs(LoggerCallback):
    def log_trial_result(self, iteration, trial, result):
        with open(os.path.join(trial.logdir, "epochs"), "a") as file:
            file.write(f"{result['epoch']}\n")


def with_dicts(config):  # 2.0
    found = session.get_checkpoint()
    for epoch in range(found.to_dict()["epoch"] + 1 if found else 0, 3):
        made = air.Checkpoint.from_dict({"epoch": epoch})
        session.report({"loss": config["x"] / (epoch + 1), "epoch": epoch}, checkpoint=made)


def with_files(config):  # 2.9
    for epoch in range(3):
        with tempfile.TemporaryDirectory() as directory:
            with open(os.path.join(directory, "state"), "w") as file:
                file.write(str(epoch))
            made = train.Checkpoint.from_directory(directory)
            made.set_metadata({"epoch": epoch})
            train.report({"loss": config["x"] - epoch}, checkpoint=made)


def in_113():
    run = {"local_dir": place, "verbose": 0}
    result = tune.run(with_directories, name="one", config={"lr": tune.grid_search([1, 2])}, loggers=[Rows], **run)
    best = result.get_best_trial("loss", "min", "last")
    assert (best.config, best.last_result["loss"], best.last_result["timesteps_total"]) == ({"lr": 1}, 1, 128)
    for directory in (best.checkpoint.value, best.checkpoint):
        with open(os.path.join(directory, "checkpoint")) as file:
            assert json.load(file) == {"step": 3}
    result.set_filetype("csv")
    assert len(result.dataframe("loss", "min")) == len(result.fetch_trial_dataframes()) == 2
    stats = result.stats()
    assert stats["start_time"] <= stats["timestamp"] <= stats["end_time"] and stats["trials"] == {"TERMINATED": 2}
    assert "loss: 1" in pretty_print(best.last_result)
    with open(os.path.join(best.logdir, "rows")) as file:
        assert file.read() == "4"

    run |= {"stop": {"timesteps_total": 15}, "checkpoint_at_end": True, "export_formats": [ExportFormat.ONNX]}
    done = tune.run(Stepping, name="two", config={"x": 1}, **run)
    with open(os.path.join(done.trials[0].logdir, "exported")) as file:
        assert file.read() == "onnx\n"
    hand = Stepping({"x": 1}, logger_creator=lambda config: UnifiedLogger(config, os.path.join(place, "hand")))
    assert (hand.train()["m"], hand._iteration) == (2, 1)
    assert hand.export_model([ExportFormat.H5]) == {"h5": os.path.join(place, "hand", "h5")}
    hand.restore(done.trials[0].checkpoint.value)
    assert (hand.x, hand.iteration) == (4, 3)
    other = Stepping(config={"x": 9})
    other.restore(os.path.join(hand.save(), "model"))
    other.restore_from_object(hand.save_to_object())
    assert (other.get_config(), other.x, other.training_iteration) == ({"x": 9}, 4, 3)
    hand.stop()
    assert {"result.json", "progress.csv", "params.json"} <= set(os.listdir(os.path.join(place, "hand")))


def in_20():
    config = air.RunConfig(name="three", local_dir=place, callbacks=[Epochs()], verbose=0)
    goal = tune.TuneConfig(metric="loss", mode="min")
    grid = tune.Tuner(
        with_dicts, param_space={"x": tune.grid_search([1, 2])}, tune_config=goal, run_config=config
    ).fit()
    best = grid.get_best_result()
    assert best.checkpoint.to_dict()["epoch"] == 2 and best.metrics_dataframe.shape[0] == 3
    assert (best.log_dir / "epochs").read_text() == "0\n1\n2\n"
    assert grid._experiment_analysis.best_config == best.config == {"x": 1}
    kind, where = best.checkpoint.get_internal_representation()
    assert (kind, where) == ("local_path", best.checkpoint.path)
    again = MlCheckpoint.from_bytes(best.checkpoint.to_bytes())
    assert again.to_dict()["epoch"] == 2 and air.Checkpoint.from_checkpoint(again).get_preprocessor() is None
    try:
        air.Checkpoint.from_object_ref(object())
    except Exception as error:
        assert "from_object_ref() is not here" in str(error)


def in_29():
    config = train.RunConfig(name="four", storage_path=place, callbacks=[LegacyLoggerCallback([Rows])], verbose=0)
    goal = tune.TuneConfig(metric="loss", mode="min")
    grid = tune.Tuner(with_files, param_space={"x": 5}, tune_config=goal, run_config=config).fit()
    best = grid.get_best_result()
    assert best.checkpoint.get_metadata() == {"epoch": 2} and best.get_best_checkpoint("loss", "min") == best.checkpoint
    found = train.Result.from_path(best.path)
    assert (found.config, found.error, len(found.best_checkpoints)) == ({"x": 5}, None, 3)
    assert tune.ExperimentAnalysis(grid.experiment_path, default_metric="loss", default_mode="min").best_config == {
        "x": 5
    }
    first, second = Stepping({"x": 1}), Stepping({"x": 1})
    first.train()
    saved = first.save()
    second.restore(saved.checkpoint)
    second.restore(saved)
    assert (saved.metrics["m"], second.train()["training_iteration"]) == (2, 2)
    kind = wrap_function(with_files)
    assert issubclass(kind, FunctionTrainable)
    one = kind({"x": 3})
    assert [one.train()["loss"], one.train()["loss"]] == [3, 2] and os.listdir(one.save())
    one.stop()
    assert (
        tune.run(kind, name="five", storage_path=place, config={"x": 3}, verbose=0).trials[0].last_result["loss"] == 1
    )


if __name__ == "__main__":
    ray.init()
    in_113()
    in_20()
    in_29()
    print("ok")
