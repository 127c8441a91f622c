"""A trial as a scheduler for Ray sees it: what it set holds at once, and nothing of the run changes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from tuner.error import SettingError
from tuner.experiment.trial import Trial
from tuner.schedulers.base import Decision, Exploit
from tuner.schedulers.controller import RunController
from tuner.schedulers.shown_trial import SavedBy, ShownTrial, trial_of


def trial(number: int) -> Trial:
    made = Trial(f"t{number}", number, "train", f"train_t{number}", f"dir{number}", msgspec.Raw(b'{"x":1}'))
    made.__dict__["root"] = Path("/results/mine") / made.dirname
    made.status = "RUNNING"
    return made


@pytest.fixture
def pair() -> tuple[Any, Any, RunController]:
    controller = RunController([trial(0), trial(1)])
    one, other = controller.get_trials()
    return one, other, controller


def test_it_is_the_trial_and_has_what_that_has(pair: tuple[Any, Any, RunController]) -> None:
    one, other, controller = pair
    assert type(one) is ShownTrial and isinstance(one, Trial)
    assert one == one._trial and one != other and {one: 1}[one._trial] == 1
    assert (one.trial_id, one.dirname, repr(one)) == ("t0", "dir0", repr(one._trial))
    assert one.latest_checkpoint_result is None and one.temporary_state.saving_to is None
    with pytest.raises(AttributeError, match="did you mean 'trial_id'"):
        one.trial_idd  # noqa: B018


def test_a_config_that_is_set_holds_for_the_scheduler_and_becomes_a_clone(
    pair: tuple[Any, Any, RunController],
) -> None:
    one, other, controller = pair
    one.set_config({"x": 2})
    one.set_experiment_tag("two")
    assert (one.config, one._trial.config, other.config) == ({"x": 2}, {"x": 1}, {"x": 1})
    one.on_checkpoint(SavedBy("t1"))
    assert controller.wished(one._trial, Decision.CONTINUE) == Exploit("t1", {"x": 2})
    assert one.status == "PAUSED" and one._trial.status == "RUNNING"


def test_one_that_waits_is_cloned_by_a_directive(pair: tuple[Any, Any, RunController]) -> None:
    one, _, controller = pair
    one._trial.status = "PAUSED"
    one.run_metadata.checkpoint_manager._latest_checkpoint_result = SimpleNamespace(
        checkpoint=SavedBy("t1"), metrics={}
    )
    assert [(each.trial_id, each.what) for each in controller.ordered()] == [("t0", Exploit("t1", {"x": 1}))]
    assert controller.ordered() == []


def test_a_process_that_ends_is_no_end_of_the_trial_where_it_is_paused_then(
    pair: tuple[Any, Any, RunController],
) -> None:
    one, other, controller = pair
    for each in (one, other):
        controller.trial_executor.stop_trial(each)
    controller.trial_executor.set_status(one, "PAUSED")
    assert controller.wishes == {"t0": Decision.PAUSE, "t1": Decision.STOP}
    assert (one.status, other.status, other.is_finished()) == ("PAUSED", "TERMINATED", True)


@pytest.mark.parametrize(
    ("saved", "found"),
    [
        (SavedBy("t1"), "t1"),
        (SavedBy("t1").checkpoint, "t1"),
        (SimpleNamespace(path="/results/mine/dir0/checkpoint_000001"), "t0"),
        (SimpleNamespace(path="/elsewhere/checkpoint_000001"), None),
        (7, None),
    ],
)
def test_a_checkpoint_is_found_by_the_directory_that_it_is_in(saved: Any, found: str | None) -> None:
    assert trial_of(saved, {"dir0": "t0", "dir1": "t1"}) == found


def test_a_checkpoint_of_nobody_is_refused_by_what_it_is(pair: tuple[Any, Any, RunController]) -> None:
    with pytest.raises(SettingError, match=r"train_t0.on_checkpoint\(7\): it is no checkpoint"):
        pair[0].on_checkpoint(7)
