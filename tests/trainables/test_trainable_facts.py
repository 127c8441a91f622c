"""What programs for Ray ask a class trainable, alone and in a trial."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from trainables.checkpoint import Checkpoint, TrainingResult
from trainables.errors import InvalidSettingError
from trainables.testing import MemoryLink, run_trial
from trainables.trainable import Trainable, check_class
from trainables.trainable_facts import ExportFormat
from trainables.wire import Answer
from tuner.logger import UnifiedLogger


class Stepping(Trainable):
    def setup(self, config: dict[str, Any]) -> None:
        self.x = 0

    def step(self) -> dict[str, Any]:
        self.x += 1
        return {"x": self.x, "timesteps_this_iter": 10, "done": self.x == self.config.get("until", 1000)}

    def save_checkpoint(self, checkpoint_dir: str) -> str:
        path = os.path.join(checkpoint_dir, "deep", "state")
        os.makedirs(os.path.dirname(path))
        Path(path).write_text(str(self.x))
        return path

    def load_checkpoint(self, checkpoint: str) -> None:
        self.x = int(Path(checkpoint).read_text())

    def _export_model(self, export_formats: list[str], export_dir: str) -> dict[str, str]:
        return {each: f"{export_dir}/{each}" for each in export_formats}


def test_a_save_is_a_path_and_a_result() -> None:
    first = Stepping({"lr": 1})
    assert first.save().metrics == {}
    result = first.train()
    saved = first.save()

    assert isinstance(saved, str) and saved.metrics == result and result["config"] == {"lr": 1}
    assert saved.checkpoint == Checkpoint(str(saved))
    assert pickle.loads(pickle.dumps(saved)).metrics == result
    for given in (saved, saved.checkpoint, str(saved), Path(saved), Path(saved).as_uri(), f"{saved}/deep/state"):
        other = Stepping()
        other.restore(given)
        assert (other.train()["x"], other.iteration, other._timesteps_total) == (2, 2, 20), given
    assert TrainingResult("x").metrics == {}


def test_a_state_travels_as_bytes() -> None:
    first, second = Stepping(), Stepping()
    first.train()
    second.restore_from_object(first.save_to_object())

    assert second.train()["training_iteration"] == 2


def test_counts_have_the_names_that_subclasses_use() -> None:
    made = Stepping()
    made.train()
    made.restore(made.save())
    made.train()

    assert (made._iteration, made._iterations_since_restore, made._restored) == (2, 1, True)
    assert made._time_total >= made._time_since_restore > 0
    assert (made._timesteps_total, made._episodes_total) == (20, None)
    assert made._logdir == made.logdir and made._local_ip == made.get_current_ip_pid()[0] == made.get_current_ip()
    made._iteration, made._time_total, made._timesteps_total, made._episodes_total = 7, 100.0, 5, 1
    result = made.train()
    assert (result["training_iteration"], result["timesteps_total"]) == (8, 15) and result["time_total_s"] > 100
    state = made.get_state()
    assert (state["iteration"], state["episodes_total"], state["last_result"]) == (8, 1, result)


def test_a_subclass_may_use_such_a_name_for_itself() -> None:
    class Mine(Stepping):
        def setup(self, config: dict[str, Any]) -> None:
            super().setup(config)
            self._restored = "mine"
            self._logdir = "mine too"

    made = Mine()
    made.train()
    assert (made._restored, made._logdir) == ("mine", "mine too")


def test_automatic_metrics_of_this_moment() -> None:
    made = Stepping({"lr": 1})
    found = made.get_auto_filled_metrics(timestamp=5)
    assert (found["timestamp"], found["config"], found["training_iteration"]) == (5, {"lr": 1}, 0)
    assert "training_iteration" not in made.get_auto_filled_metrics(debug_metrics_only=True)
    assert made.iteration == 0


def test_several_steps_at_once_end_where_a_result_wants_something() -> None:
    assert [each["x"] for each in Stepping().train_buffered(60, 3)] == [1, 2, 3]
    assert [each["x"] for each in Stepping().train_buffered(0)] == [1]
    assert [each["x"] for each in Stepping({"until": 2}).train_buffered(60)] == [1, 2]


def test_a_model_is_exported_by_the_class(tmp_path: Path) -> None:
    made = Stepping()
    assert made.export_model("h5", str(tmp_path)) == {"h5": f"{tmp_path}/h5"}
    assert made.export_model([ExportFormat.ONNX]) == {"onnx": f"{made.logdir}/onnx"}
    ExportFormat.validate(["ONNX", "model"])
    with pytest.raises(ValueError, match=r"'zip' is not accepted; accepted are checkpoint, model"):
        ExportFormat.validate(["zip"])


def test_a_trial_that_ends_is_exported_and_one_that_pauses_is_not(tmp_path: Path) -> None:
    class Exporting(Stepping):
        def _export_model(self, export_formats: list[str], export_dir: str) -> dict[str, str]:
            for each in export_formats:
                Path(export_dir, f"model.{each}").write_text(str(self.x))
            return super()._export_model(export_formats, export_dir)

    for then, left in (("pause", set()), ("stop", {"model.h5"}), ("continue", {"model.h5"})):
        link = MemoryLink(lambda report, then=then: Answer(then=then))  # type: ignore[misc]
        place = tmp_path / then
        run_trial(Exporting, place, config={"until": 2}, link=link, export_formats=("h5",))
        assert {file.name for file in (place / "train_t1").glob("model.*")} == left
    assert (tmp_path / "continue" / "train_t1" / "model.h5").read_text() == "2"


def test_a_logger_creator_logs_what_is_trained_by_hand(tmp_path: Path) -> None:
    def creator(config: dict[str, Any]) -> UnifiedLogger:
        return UnifiedLogger(config, str(tmp_path / f"lr{config['lr']}"))

    class Resetting(Stepping):
        def reset_config(self, new_config: dict[str, Any]) -> bool:
            return True

    made = Resetting({"lr": 1}, logger_creator=creator)
    made.train()
    made.train()
    made.reset({"lr": 2}, logger_creator=creator)
    made.train()
    made.stop()
    made.stop()

    assert len((tmp_path / "lr1" / "result.json").read_text().splitlines()) == 2
    assert len((tmp_path / "lr2" / "progress.csv").read_text().splitlines()) == 2


def test_in_a_trial_totals_go_on_and_the_drivers_count_holds(tmp_path: Path) -> None:
    class Warm(Stepping):
        def setup(self, config: dict[str, Any]) -> None:
            super().setup(config)
            if "warm" in config:
                self.restore(config["warm"])
                self._iteration = 70

    saving = MemoryLink(lambda report: Answer(save=report.iteration == 2))
    first = run_trial(Stepping, tmp_path, config={"until": 3}, link=saving)
    (ref,) = first.published
    path = tmp_path / "train_t1" / ref.name
    again = {"checkpoint": ref, "checkpoint_path": path, "start_iteration": 2, "attempt": 2}
    second = run_trial(Stepping, tmp_path, config={"until": 4}, **again)
    warm = run_trial(Warm, tmp_path / "other", config={"until": 4, "warm": str(path)})

    assert [each["timesteps_total"] for each in first.results] == [10, 20, 30]
    assert [(each["x"], each["timesteps_total"]) for each in second.results] == [(3, 30), (4, 40)]
    assert [(each["x"], each["training_iteration"]) for each in warm.results] == [(3, 1), (4, 2)]
    assert "config" not in first.results[0]


def test_what_is_gone_says_what_to_use() -> None:
    made = Stepping()
    assert not made.is_actor() and not made.uses_cloud_checkpointing
    with pytest.raises(AttributeError, match=r"'remote_checkpoint_dir'; instead: SyncConfig\(upload_dir"):
        _ = made.remote_checkpoint_dir  # type: ignore[attr-defined]

    class Old(Trainable):
        def _train(self) -> dict[str, Any]:
            return {}

    with pytest.raises(InvalidSettingError, match=r"Old has a method _train\(\).*it is step\(\) now"):
        check_class(Old)
