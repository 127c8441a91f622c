from __future__ import annotations

import gc
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from trainables.checkpoint import Checkpoint
from trainables.errors import CheckpointNotFoundError, MetricError
from trainables.testing import MemoryLink, run_trial
from trainables.trainable import Trainable
from trainables.wire import Answer, AttemptErrored, Finished, Preempted, Report, SaveFailed


class Counter(Trainable):
    """Counts, and saves in the way that its config names."""

    def setup(self, config: dict[str, Any]) -> None:
        self.how = config.get("how", "directory")
        self.x = 0
        self.cleaned = 0

    def step(self) -> dict[str, Any]:
        self.x += 1
        return {"x": self.x, "done": self.x >= self.config.get("until", 1000)}

    def save_checkpoint(self, checkpoint_dir: str) -> Any:
        assert os.listdir(checkpoint_dir) == []
        if self.how == "dict":
            return {"x": self.x}
        directory = Path(checkpoint_dir)
        if self.how == "outside":
            directory = Path(checkpoint_dir).parent / "mine"
            directory.mkdir(exist_ok=True)
        file = directory / "state.json"
        file.write_text(json.dumps({"x": self.x}))
        return {"directory": str(directory), "outside": str(directory), "path": str(file), "none": None}[self.how]

    def load_checkpoint(self, checkpoint: Any) -> None:
        if self.how != "dict":
            file = Path(checkpoint)
            assert file.is_file() == (self.how == "path")
            checkpoint = json.loads((file if self.how == "path" else file / "state.json").read_text())
        self.x = checkpoint["x"]

    def cleanup(self) -> None:
        self.cleaned += 1


HOW = ["directory", "path", "dict", "none", "outside"]


def answers(**by_iteration: Answer) -> MemoryLink:
    return MemoryLink(lambda report: by_iteration.get(f"at{report.iteration}", Answer()))


# ---------------------------------------------------------------- alone


@pytest.mark.parametrize("how", HOW)
def test_alone_it_trains_saves_and_restores(tmp_path: Path, how: str) -> None:
    first = Counter({"how": how})
    for _ in range(3):
        result = first.train()
    assert (result["x"], result["training_iteration"], first.iteration, first.training_iteration) == (3, 3, 3, 3)
    path = first.save(tmp_path / "saved")

    second = Counter({"how": how})
    second.restore(path)
    assert second.train()["x"] == 4
    assert second.iteration == 4

    third = Counter({"how": how})
    third.restore(Checkpoint(path))
    assert third.train()["training_iteration"] == 4


def test_alone_it_has_a_directory_and_plain_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    counter = Counter({})
    assert (counter.trial_id, counter.trial_name, counter.trial_resources) == ("default", "default", {})
    assert os.path.isdir(counter.logdir)
    assert counter.logdir == counter.logdir
    assert os.path.isdir(counter.save())


def test_restoring_from_nothing_says_so(tmp_path: Path) -> None:
    with pytest.raises(CheckpointNotFoundError):
        Counter({}).restore(tmp_path / "nothing")


def test_setup_gets_a_copy_of_the_config() -> None:
    class Popping(Trainable):
        def setup(self, config: dict[str, Any]) -> None:
            config["nested"].pop("x")

    assert Popping({"nested": {"x": 1}}).config == {"nested": {"x": 1}}


def test_a_step_that_returns_no_dict_is_an_error() -> None:
    class Wrong(Trainable):
        def step(self) -> Any:
            return 3

    with pytest.raises(MetricError, match="returned int"):
        Wrong({}).train()


def test_what_is_not_written_says_what_to_write() -> None:
    with pytest.raises(NotImplementedError, match="step"):
        Trainable({}).train()
    with pytest.raises(NotImplementedError, match="save_checkpoint"):
        Trainable({}).save()


def test_reset_takes_another_config_where_the_class_can() -> None:
    class Resettable(Counter):
        def reset_config(self, new_config: dict[str, Any]) -> bool:
            return True

    counter = Resettable({})
    counter.train()
    assert counter.reset({"until": 5})
    assert (counter.config, counter.iteration) == ({"until": 5}, 0)
    assert not Counter({}).reset({})


def test_log_result_sees_each_complete_result() -> None:
    seen = []

    class Logging(Counter):
        def log_result(self, result: dict[str, Any]) -> None:
            seen.append(result["training_iteration"])

    trainable = Logging({})
    trainable.train()
    trainable.train()
    assert seen == [1, 2]


# ---------------------------------------------------------------- in a trial


@pytest.mark.parametrize("how", HOW)
def test_in_a_trial_it_saves_where_asked_and_restores(tmp_path: Path, how: str) -> None:
    config = {"how": how, "until": 4}
    first = run_trial(Counter, tmp_path, config=config, link=answers(at2=Answer(save=True), at3=Answer(then="stop")))
    assert first.end == Finished()
    (ref,) = first.published
    assert (ref.name, ref.iteration) == ("checkpoint_000002", 2)

    path = tmp_path / "train_t1" / ref.name
    second = run_trial(
        Counter, tmp_path, config=config, attempt=2, checkpoint=ref, checkpoint_path=path, start_iteration=2
    )
    assert [(r["x"], r["training_iteration"]) for r in second.results] == [(3, 3), (4, 4)]
    assert second.end == Finished()


def test_f29_what_is_saved_by_hand_goes_with_the_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    counter = Counter({})
    counter.train()
    path = counter.save()
    assert os.path.dirname(path) == counter.logdir
    other = Counter({})
    other.restore(path)
    assert other.x == 1
    child = os.fork()
    if child == 0:
        del counter  # a copy of the object: the files are not its own
        gc.collect()
        os._exit(0)
    os.waitpid(child, 0)
    assert os.path.isdir(path)
    counter.stop()
    other.restore(path)  # a stopped one's saves are what the next one continues from
    del counter
    gc.collect()
    assert os.listdir(tmp_path) == []


def test_a_logger_creators_directory_holds_what_is_saved_by_hand_for_good(tmp_path: Path) -> None:
    class Logger:
        logdir = str(tmp_path / "logs" / "one")

    path = Counter({}, logger_creator=lambda config: Logger()).save()
    gc.collect()
    assert Path(path).parent == tmp_path / "logs" / "one"
    assert os.listdir(path)


def test_f29_what_a_trial_saves_by_hand_lies_with_its_temporary_files(tmp_path: Path) -> None:
    class Saves(Counter):
        def step(self) -> dict[str, Any]:
            return {**super().step(), "path": self.save()}

    link = run_trial(Saves, tmp_path, config={"until": 1})
    path = Path(link.results[0]["path"])
    assert path.parent == tmp_path / ".tmp"
    assert [each for each in os.listdir(tmp_path / "train_t1") if each.startswith("checkpoint")] == []


def test_a_published_save_holds_the_users_files_and_its_result(tmp_path: Path) -> None:
    run_trial(Counter, tmp_path, config={"until": 2}, link=answers(at1=Answer(save=True)))
    path = tmp_path / "train_t1" / "checkpoint_000001"
    assert sorted(os.listdir(path)) == [".manifest.json", "state.json"]
    metrics = Checkpoint(path).metrics
    assert metrics is not None and metrics["x"] == 1
    alone = Counter({})
    alone.restore(path)
    assert alone.iteration == 1


def test_a_save_at_the_end_is_on_disk_before_the_last_word(tmp_path: Path) -> None:
    link = run_trial(Counter, tmp_path, link=answers(at3=Answer(then="stop", save=True)))
    assert [type(message).__name__ for message in link.messages[-2:]] == ["SavePublished", "Finished"]


def test_setup_knows_its_trial_and_other_trainables_do_not(tmp_path: Path) -> None:
    seen: dict[str, Any] = {}

    class Nosy(Trainable):
        def setup(self, config: dict[str, Any]) -> None:
            seen.update(id=self.trial_id, name=self.trial_name, logdir=self.logdir, iteration=self.iteration)
            seen["inner"] = Counter({}).trial_id

        def step(self) -> dict[str, Any]:
            return {"done": True}

    run_trial(Nosy, tmp_path, start_iteration=4)
    assert seen == {
        "id": "t1",
        "name": "train_t1",
        "logdir": str(tmp_path / "train_t1"),
        "iteration": 4,
        "inner": "default",
    }


def test_cleanup_runs_once_however_it_ends(tmp_path: Path) -> None:
    ended = []

    class Ending(Counter):
        def step(self) -> dict[str, Any]:
            if self.config.get("fail"):
                raise ValueError("broken")
            return super().step()

        def cleanup(self) -> None:
            ended.append(True)

    assert run_trial(Ending, tmp_path, config={"until": 1}).end == Finished()
    assert isinstance(run_trial(Ending, tmp_path, config={"fail": True}).end, AttemptErrored)
    assert len(ended) == 2


def test_a_cleanup_that_fails_costs_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Counter):
        def cleanup(self) -> None:
            raise ValueError("cannot clean")

    assert run_trial(Failing, tmp_path, config={"until": 1}).end == Finished()
    assert "cannot clean" in caplog.text


def test_a_save_that_raises_fails_the_trial_and_leaves_no_trace(tmp_path: Path) -> None:
    class Failing(Counter):
        def save_checkpoint(self, checkpoint_dir: str) -> Any:
            (Path(checkpoint_dir) / "half").write_text("half")
            raise ValueError("cannot save")

    link = run_trial(Failing, tmp_path, link=answers(at1=Answer(save=True)))
    assert isinstance(link.end, AttemptErrored)
    assert link.end.message == "cannot save"
    assert os.listdir(tmp_path / "train_t1") == []


def test_f30_a_full_disk_costs_saves_and_not_at_once_the_trial(tmp_path: Path) -> None:
    import errno

    class Full(Counter):
        def save_checkpoint(self, checkpoint_dir: str) -> Any:
            raise OSError(errno.ENOSPC, "No space left on device")

    link = run_trial(Full, tmp_path, link=MemoryLink(lambda report: Answer(save=True)))
    assert isinstance(link.end, AttemptErrored)
    assert "bytes are free" in link.end.message
    assert len(link.of(Report)) == len(link.of(SaveFailed)) == 3


@pytest.mark.parametrize("returned", [3, "/nowhere/at/all"])
def test_a_save_that_returns_nonsense_is_an_error(tmp_path: Path, returned: Any) -> None:
    class Wrong(Counter):
        def save_checkpoint(self, checkpoint_dir: str) -> Any:
            return returned

    link = run_trial(Wrong, tmp_path, link=answers(at1=Answer(save=True)))
    assert isinstance(link.end, AttemptErrored)
    assert link.end.type == "CheckpointError"


# ---------------------------------------------------------------- told to leave


def test_f36_halt_during_a_step_saves_with_that_very_result(tmp_path: Path) -> None:
    link = MemoryLink()

    class Halted(Counter):
        def step(self) -> dict[str, Any]:
            if self.x == 4:
                link.halt()
            return super().step()

    run_trial(Halted, tmp_path, link=link)
    assert link.end == Preempted()
    assert [ref.iteration for ref in link.published] == [5]
    assert link.results[-1]["training_iteration"] == 5  # nothing was lost


def test_halt_right_after_a_save_leaves_without_another_step(tmp_path: Path) -> None:
    link = MemoryLink(lambda report: Answer(save=report.iteration == 2, should_stop=report.iteration == 2))
    run_trial(Counter, tmp_path, link=link)
    assert link.end == Preempted()
    assert [ref.iteration for ref in link.published] == [2]
    assert len(link.results) == 2


def test_halt_before_the_first_step_leaves_at_once(tmp_path: Path) -> None:
    link = MemoryLink()
    link.halt()
    run_trial(Counter, tmp_path, link=link)
    assert link.messages == [Preempted()]


def test_a_class_that_cannot_save_leaves_all_the_same(tmp_path: Path) -> None:
    class Unsaved(Trainable):
        def step(self) -> dict[str, Any]:
            return {}

    link = MemoryLink(lambda report: Answer(save=report.iteration == 3, should_stop=report.iteration == 3))
    run_trial(Unsaved, tmp_path, link=link)
    assert link.end == Preempted()
    assert len(link.results) == 3
