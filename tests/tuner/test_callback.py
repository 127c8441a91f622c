"""Callbacks: who is called with what, and what becomes of their errors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tuner.callback import Callback, CallbackList
from tuner.error import SettingError

HOOKS = {
    "setup": {"stop": None, "num_samples": 1, "total_num_samples": 2},
    "on_step_begin": {"iteration": 1, "trials": []},
    "on_step_end": {"iteration": 1, "trials": []},
    "on_trial_start": {"iteration": 1, "trials": [], "trial": "t"},
    "on_trial_restore": {"iteration": 1, "trials": [], "trial": "t"},
    "on_trial_clone": {"iteration": 1, "trials": [], "trial": "t"},
    "on_trial_save": {"iteration": 1, "trials": [], "trial": "t"},
    "on_trial_complete": {"iteration": 1, "trials": [], "trial": "t"},
    "on_trial_recover": {"iteration": 1, "trials": [], "trial": "t"},
    "on_trial_error": {"iteration": 1, "trials": [], "trial": "t"},
    "on_checkpoint": {"iteration": 1, "trials": [], "trial": "t", "checkpoint": "c"},
    "on_experiment_end": {"trials": []},
    "on_rollback": {"trial": "t", "iteration": 3},
}


def trial(told: int = 0) -> Any:
    return SimpleNamespace(trial_id="t", told=told)


def tell(callbacks: CallbackList, result: dict[str, Any], told: int = 0) -> bool:
    return callbacks.on_trial_result(1, [], trial(told), result)


@pytest.mark.parametrize("hook", HOOKS)
def test_each_hook_gets_its_arguments_by_name(hook: str) -> None:
    got: dict[str, Any] = {}

    def record(self: Callback, **arguments: Any) -> None:
        got.update(arguments)

    callbacks = CallbackList([type("Mine", (Callback,), {hook: record})()])
    getattr(callbacks, hook)(**HOOKS[hook])

    assert got == HOOKS[hook]


@pytest.mark.parametrize("hook", [*HOOKS, "on_trial_result"])
def test_an_error_says_whose_hook_it_was_and_stays_what_it_is(hook: str) -> None:
    class MyError(Exception):
        pass

    def fail(self: Callback, *_: Any, **__: Any) -> None:
        raise MyError("boom")

    callbacks = CallbackList([type("Mine", (Callback,), {hook: fail})()])
    arguments = HOOKS.get(hook) or {"iteration": 1, "trials": [], "trial": trial(), "result": {}}
    with pytest.raises(MyError, match="boom") as caught:
        getattr(callbacks, hook)(**arguments)

    (note,) = caught.value.__notes__
    assert f"Mine.{hook}" in note


def test_at_the_end_everybody_is_told_though_one_fails() -> None:
    told = []

    class Fails(Callback):
        def on_experiment_end(self, trials: Any, **info: Any) -> None:
            raise ValueError("first")

    class Closes(Callback):
        def on_experiment_end(self, trials: Any, **info: Any) -> None:
            told.append("closed")

    with pytest.raises(ValueError, match="first"):
        CallbackList([Fails(), Closes()]).on_experiment_end([])

    assert told == ["closed"]


def test_hooks_that_nobody_overrides_are_not_called() -> None:
    callbacks = CallbackList([Callback(), Callback()])

    assert callbacks._changing == callbacks._reading == ()
    assert callbacks._hooks["on_step_end"] == ()


def test_a_hook_set_on_the_object_is_called() -> None:
    callback = Callback()
    seen = []
    callback.on_trial_result = lambda **info: seen.append(info["result"])  # type: ignore[method-assign]
    tell(CallbackList([callback]), {"loss": 1})

    assert seen == [{"loss": 1}]


@pytest.mark.parametrize("given", [Callback, "wandb", object(), None])
def test_what_is_no_callback_is_refused(given: Any) -> None:
    with pytest.raises(SettingError, match="callbacks"):
        CallbackList([given])


class Changes(Callback):
    def __init__(self, change: Any) -> None:
        self.change = change

    def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **info: Any) -> None:
        self.change(result)


@pytest.mark.parametrize(
    ("change", "changed"),
    [
        (lambda result: None, False),
        (lambda result: result.update(should_checkpoint=True), True),
        (lambda result: result.update(loss=2.0), True),
        (lambda result: result.pop("loss"), True),
        (lambda result: result["eval"].update(auc=1), True),
        (lambda result: result["list"].append(1), True),
        (lambda result: result.update(array=np.zeros(3)), True),
        (lambda result: result.update(result), False),
    ],
)
def test_d23_the_list_says_whether_a_callback_changed_the_result(change: Any, changed: bool) -> None:
    result = {"loss": 1.0, "nan": float("nan"), "eval": {"auc": 0.5}, "list": [0], "array": np.ones(3)}

    assert tell(CallbackList([Changes(change)]), result) is changed


def test_t03_a_callback_that_cannot_take_back_is_told_of_an_iteration_once() -> None:
    told: dict[str, list[int]] = {"plain": [], "back": []}

    class Plain(Callback):
        def on_trial_result(self, result: dict[str, Any], **info: Any) -> None:  # type: ignore[override]
            told["plain"].append(result["training_iteration"])

    class TakesBack(Callback):
        def on_trial_result(self, result: dict[str, Any], **info: Any) -> None:  # type: ignore[override]
            told["back"].append(result["training_iteration"])

        def on_rollback(self, trial: Any, iteration: int) -> None:
            told["back"] = [each for each in told["back"] if each <= iteration]

    callbacks = CallbackList([Plain(), TakesBack()])
    for iteration in (1, 2, 3):
        tell(callbacks, {"training_iteration": iteration}, told=iteration - 1)
    callbacks.on_rollback(trial(3), 1)
    for iteration in (2, 3, 4):
        tell(callbacks, {"training_iteration": iteration}, told=3)

    assert told == {"plain": [1, 2, 3, 4], "back": [1, 2, 3, 4]}


def test_states_come_back_to_the_callbacks_that_gave_them() -> None:
    class Counts(Callback):
        def __init__(self, count: int = 0) -> None:
            self.count = count

        def get_state(self) -> dict[str, Any]:
            return {"count": self.count}

        def set_state(self, state: dict[str, Any]) -> None:
            self.count = state["count"]

    state = CallbackList([Counts(1), Callback(), Counts(2)]).get_state()
    fresh = [Callback(), Counts(), Counts(), Counts(7)]
    CallbackList(fresh).set_state(state)

    assert [each.count for each in fresh[1:]] == [1, 2, 7]  # type: ignore[attr-defined]


def test_the_soonest_wish_for_a_refresh_wins() -> None:
    class Wishes(Callback):
        def __init__(self, seconds: float | None) -> None:
            self.seconds = seconds

        def next_refresh(self) -> float | None:
            return self.seconds

    assert CallbackList([Callback()]).next_refresh() is None
    assert CallbackList([Wishes(None)]).next_refresh() is None
    assert CallbackList([Wishes(3.0), Wishes(None), Wishes(0.5)]).next_refresh() == 0.5
