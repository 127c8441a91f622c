"""A function as a class: alone, result by result, and in a trial."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from typing import Any

import pytest

import tuner
from trainables import session
from trainables.checkpoint import Checkpoint
from trainables.errors import CheckpointError, InvalidSettingError
from trainables.runtime.function_trainable import RESULT_DUPLICATE, FunctionTrainable, is_class_api, wrap_function
from trainables.testing import run_trial
from trainables.trainable import Trainable
from trainables.wire import Finished
from tuner.error import SettingError


def saving(config: dict[str, Any]) -> None:
    found = session.get_checkpoint()
    start = found.to_dict()["x"] + 1 if found is not None else 0
    for x in range(start, config["n"]):
        session.report({"x": x}, checkpoint=Checkpoint.from_dict({"x": x}))


def test_alone_a_function_gives_result_by_result() -> None:
    made = wrap_function(saving)({"n": 2})
    first, second, end = made.train(), made.train(), made.train()

    assert (first["x"], first["training_iteration"], first["config"]) == (0, 1, {"n": 2})
    assert (second["x"], made.iteration, made.training_iteration) == (1, 2, 2)
    assert (end["x"], end["done"], end[RESULT_DUPLICATE], end["training_iteration"]) == (1, True, True, 2)
    assert made.train()["done"]
    made.stop()


def test_it_saves_what_was_reported_and_starts_again_from_it(tmp_path: Path) -> None:
    first = wrap_function(saving)({"n": 4})
    first.train()
    first.train()
    saved = first.save()
    assert saved.checkpoint.to_dict() == {"x": 1} and saved.metrics["x"] == 1

    for given in (saved, saved.checkpoint, first.save(tmp_path / "copy")):
        second = wrap_function(saving)({"n": 4})
        second.restore(given)
        assert second.iteration == 2
        result = second.train()
        assert (result["x"], result["training_iteration"]) == (2, 3)
        second.stop()
    first.restore(first.save())  # goes back while it runs
    assert first.train()["x"] == 2
    assert first.reset({"n": 1}) and first.train()["x"] == 0
    first.stop()
    with pytest.raises(CheckpointError, match="has not reported a checkpoint"):
        wrap_function(saving)({"n": 4}).save()


def test_stop_unwinds_the_function_and_leaves_no_thread() -> None:
    said = []

    def endless(config: dict[str, Any]) -> None:
        try:
            while True:
                session.report({"x": 1})
        finally:
            said.append("unwound")

    before = threading.active_count()
    made = wrap_function(endless)({})
    made.train()
    assert threading.active_count() == before + 1 and session.current() is None
    made.stop()
    assert said == ["unwound"] and threading.active_count() == before
    made.stop()


def test_two_at_once_do_not_mix() -> None:
    def counting(config: dict[str, Any]) -> Any:
        for x in range(3):
            yield {"x": config["from"] + x}

    one, other = wrap_function(counting)({"from": 0}), wrap_function(counting)({"from": 10})
    assert [each.train()["x"] for _ in range(3) for each in (one, other)] == [0, 10, 1, 11, 2, 12]
    one.stop()
    other.stop()


def test_what_the_function_raises_is_raised_by_train() -> None:
    def fails(config: dict[str, Any]) -> None:
        session.report({"x": 1})
        raise ZeroDivisionError("oh")

    made = wrap_function(fails)({})
    made.train()
    with pytest.raises(ZeroDivisionError, match="oh"):
        made.train()
    made.stop()
    gc.collect()


def test_a_subclass_may_train_by_a_method(tmp_path: Path) -> None:
    class Mine(FunctionTrainable):
        def _trainable_func(self, config: dict[str, Any]) -> dict[str, Any]:
            return {"x": config["x"]}

    assert Mine({"x": 3}).train()["x"] == 3
    link = run_trial(Mine, tmp_path, config={"x": 4})
    assert link.end == Finished() and [each["x"] for each in link.results] == [4]
    with pytest.raises(NotImplementedError, match=r"_trainable_func\(config\)"):
        FunctionTrainable({}).train()


def test_in_a_run_it_is_the_function(tmp_path: Path) -> None:
    class Mine(wrap_function(saving)):  # type: ignore[misc]
        @classmethod
        def default_resource_request(cls, config: dict[str, Any]) -> Any:
            return {"cpu": config["n"] / 2}

    run: dict[str, Any] = {"storage_path": tmp_path, "verbose": 0}
    plain = tuner.run(wrap_function(saving, name="other"), name="plain", config={"n": 2}, **run)
    asked = tuner.run(Mine, name="asked", config={"n": 2}, executor="inline", **run)

    assert plain.trials[0].trainable_name == "other" and plain.trials[0].checkpoint.to_dict() == {"x": 1}
    assert (asked.trials[0].last_result["x"], asked.trials[0].resources) == (1, {"cpu": 1.0})
    assert not is_class_api(Mine) and is_class_api(Trainable) and not is_class_api(saving)
    with pytest.raises(SettingError, match="is a function, which decides by itself"):
        tuner.run(wrap_function(saving), checkpoint_freq=1, config={"n": 2}, **run)


def test_a_signature_that_is_not_accepted_is_refused_at_once() -> None:
    with pytest.raises(InvalidSettingError, match="cannot be called"):
        wrap_function(lambda: None)
