"""What schedulers that were written for Ray read of the controller, and ask of it."""

from __future__ import annotations

from typing import Any

import pytest

from tuner.error import NotHereError, SettingError
from tuner.experiment.trial import Trial
from tuner.schedulers import Decision
from tuner.schedulers.controller import RunController


def trial(number: int, status: str = "RUNNING") -> Trial:
    made = Trial(f"t{number}", number, "train", f"train_t{number}", f"train_t{number}", b"{}")  # type: ignore[arg-type]
    made.status = status
    return made


TRIALS = [trial(0), trial(1, "PAUSED"), trial(2, "PENDING"), trial(3, "TERMINATED")]


@pytest.fixture
def controller() -> RunController:
    return RunController(TRIALS, search_alg="searcher", has_room=lambda trial: trial.index == 2)


def test_it_shows_the_trials_and_where_there_is_room(controller: RunController) -> None:
    assert controller.get_trials() == TRIALS and controller.get_live_trials() == TRIALS[:3]
    assert (
        controller.get_trial("t1") == TRIALS[1]
        and isinstance(controller.get_trial("t1"), Trial)
        and controller.get_trial("t9") is None
    )
    assert [controller.has_resources_for_trial(one) for one in TRIALS] == [False, False, True, False]
    assert controller.trial_executor.has_resources() and controller.search_alg == "searcher"
    assert not controller.is_finished() and bool(controller) and len(controller) == 0


@pytest.mark.parametrize(
    ("asked", "of", "wished"),
    [
        ("stop_trial", 0, {"t0": Decision.STOP}),
        ("stop_trial", 2, {"t2": Decision.STOP}),
        ("stop_trial", 3, {}),
        ("request_stop_trial", 1, {"t1": Decision.STOP}),
        ("pause_trial", 0, {"t0": Decision.PAUSE}),
        ("pause_trial", 1, {}),
        ("save", 0, {"t0": Decision.SAVE}),
        ("unpause_trial", 1, {}),
    ],
)
def test_what_is_asked_of_it_is_kept_until_it_can_be_done(
    controller: RunController, asked: str, of: int, wished: dict[str, Any]
) -> None:
    getattr(controller, asked)(TRIALS[of])
    assert controller.wishes == wished


def test_those_who_wait_are_ended_at_once_and_those_who_run_are_not(controller: RunController) -> None:
    for one in TRIALS:
        controller.stop_trial(one)
    assert [directive.trial_id for directive in controller.ordered()] == ["t1", "t2"]
    assert controller.wishes == {"t0": Decision.STOP}
    assert [one.status for one in controller.get_trials()] == ["TERMINATED"] * 4  # as it sees them
    assert [one.status for one in TRIALS] == ["RUNNING", "PAUSED", "PENDING", "TERMINATED"]


@pytest.mark.parametrize(
    ("wish", "answer", "done"),
    [
        (None, "CONTINUE", Decision.CONTINUE),
        (None, "NOOP", Decision.PAUSE),
        (None, Decision.SAVE, Decision.SAVE),
        (Decision.STOP, "NOOP", Decision.STOP),
        (Decision.PAUSE, Decision.CONTINUE, Decision.PAUSE),
        (Decision.PAUSE, "STOP", Decision.STOP),
    ],
)
def test_a_wish_goes_before_an_answer_that_is_not_the_end(
    controller: RunController, wish: Decision | None, answer: Any, done: Decision
) -> None:
    if wish is not None:
        controller.wishes["t0"] = wish
    assert controller.wished(TRIALS[0], answer) is done
    assert not controller.wishes


def test_a_status_that_is_set_is_understood(controller: RunController) -> None:
    controller.set_status(TRIALS[0], Trial.PAUSED)
    controller.set_status(TRIALS[0], Trial.RUNNING)
    assert not controller.wishes
    controller._set_trial_status(TRIALS[0], Trial.TERMINATED)
    assert controller.wishes == {"t0": Decision.STOP}
    with pytest.raises(SettingError, match="ERROR"):
        controller.set_status(TRIALS[0], Trial.ERROR)


def test_a_trial_is_to_the_scheduler_what_it_made_of_it(controller: RunController) -> None:
    running, paused = controller.get_trials()[:2]
    assert controller.wished(TRIALS[0], "PAUSE") is Decision.PAUSE
    paused.status = Trial.PENDING
    assert (running.status, paused.status) == ("PAUSED", "PENDING")
    assert (running.trial_id, {running: 1}[TRIALS[0]], str(running)) == ("t0", 1, str(TRIALS[0]))
    assert [one.status for one in TRIALS[:2]] == ["RUNNING", "PAUSED"]
    controller.wished(TRIALS[0], Decision.CONTINUE)
    assert running.status == "RUNNING" and controller.shown(TRIALS[0]) is running


@pytest.mark.parametrize(("name", "instead"), [("add_trial", "Searcher"), ("checkpoint", "get_trials")])
def test_what_it_has_not_names_what_to_use(controller: RunController, name: str, instead: str) -> None:
    assert not hasattr(controller, name)
    with pytest.raises(NotHereError, match=f"has no '{name}' here; instead: .*{instead}"):
        getattr(controller, name)
