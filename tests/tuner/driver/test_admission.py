"""Who starts: room, the scheduler's choice, trials that are behind, and what an attempt starts from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tuner.driver.harness import DriverHarness, Proposer, plugin_set
from trainables import wire
from tuner.driver.attempts import Phase
from tuner.experiment import events as ev
from tuner.schedulers import FIFOScheduler
from tuner.schedulers.base import Decision


def started(harness: DriverHarness) -> list[str]:
    return [launch.job.trial_id for launch in harness.executor.launched]


def test_trials_start_while_there_is_room_and_the_next_when_one_has_ended(tmp_path: Path) -> None:
    harness = DriverHarness(tmp_path / "e", plugin_set(num_samples=3), slots=2).turn()
    assert started(harness) == ["ab_00000", "ab_00001"]
    harness.exit(harness.trial(0))
    assert started(harness) == ["ab_00000", "ab_00001", "ab_00002"]
    assert harness.kinds()[:4] == ["created", "attempt", "created", "attempt"]


def test_max_concurrent_is_a_limit_beside_the_room(tmp_path: Path) -> None:
    harness = DriverHarness(tmp_path / "e", plugin_set(num_samples=3), slots=8, max_concurrent_trials=1).turn()
    assert started(harness) == ["ab_00000"]


def test_a_population_is_created_before_one_of_it_goes_on(tmp_path: Path) -> None:
    class Compares(FIFOScheduler):
        population = True

    harness = DriverHarness(tmp_path / "e", plugin_set(scheduler=Compares(), num_samples=3), slots=1).turn()
    assert harness.kinds() == ["created", "created", "created", "search_ended", "attempt"]


def test_a_searcher_that_has_no_config_now_is_asked_again_and_one_that_ended_is_not(tmp_path: Path) -> None:
    class Hesitates(Proposer):
        asked = 0

        def suggest(self, trial_id: str) -> Any:
            self.asked += 1
            return None if self.asked in (2, 3) else super().suggest(trial_id)

    searcher = Hesitates(2)
    harness = DriverHarness(tmp_path / "e", plugin_set(searcher=searcher, num_samples=9), slots=4).turn()
    assert started(harness) == ["ab_00000"]
    harness.turn().turn()
    assert started(harness) == ["ab_00000", "ab_00001"]
    asked = searcher.asked
    harness.turn()
    assert searcher.asked == asked and harness.kinds()[-1] == "search_ended"


def test_the_trial_that_the_scheduler_has_not_chosen_is_the_last_that_is_created(tmp_path: Path) -> None:
    class Refuses(FIFOScheduler):
        def choose_trial_to_run(self, pending: Any) -> Any:
            return None

    harness = DriverHarness(tmp_path / "e", plugin_set(scheduler=Refuses(), num_samples=5), slots=4).turn().turn()
    assert harness.kinds() == ["created"]


def test_only_some_trials_run_where_the_resume_says_so(tmp_path: Path) -> None:
    before = DriverHarness(tmp_path / "e", plugin_set(num_samples=2), slots=2).turn()
    for trial in before.state.trials:
        before.report(trial)
    facts = [*before.facts, ev.AttemptEnded("ab_00000", 1, "halted"), ev.AttemptEnded("ab_00001", 1, "halted")]
    harness = DriverHarness(
        tmp_path / "again", plugin_set(num_samples=9), slots=4, facts=facts, only=frozenset({"ab_00001"})
    ).turn()
    assert started(harness) == ["ab_00001"] and "created" not in harness.kinds()


def test_a_trial_goes_on_from_its_newest_checkpoint_and_what_came_after_it_is_void(tmp_path: Path) -> None:
    harness = DriverHarness(tmp_path / "e", max_failures=1).turn()
    trial = harness.trial()
    harness.report(trial, saves=True)
    harness.report(trial)
    harness.exit(trial, wire.AttemptErrored("ValueError", "no", ""))
    back, begun = harness.facts[-2:]
    assert isinstance(back, ev.RolledBack) and back.iteration == 1
    assert isinstance(begun, ev.AttemptStarted) and (begun.attempt, begun.iteration) == (2, 1)
    assert begun.checkpoint is not None and begun.checkpoint.name == "checkpoint_000001"


def test_a_damaged_checkpoint_is_set_aside_and_an_older_one_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = DriverHarness(tmp_path / "e", max_failures=1).turn()
    trial = harness.trial()
    harness.report(trial, saves=True)
    harness.report(trial, saves=True)
    checkpoints = harness.loop._parts.checkpoints
    monkeypatch.setattr(
        checkpoints, "check", lambda record, then: then("a file is short" if record.iteration == 2 else None)
    )
    harness.exit(trial, status=-9)
    assert harness.kinds()[-3:] == ["set_aside", "rolled_back", "attempt"]
    assert harness.executor.launched[-1].job.start_iteration == 1
    assert "checkpoint checkpoint_000002 is damaged and set aside: a file is short" in caplog.text


def test_a_checkpoint_that_cannot_be_read_just_now_is_no_reason_for_an_older_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = DriverHarness(tmp_path / "e", max_failures=2).turn()
    trial = harness.trial()
    harness.report(trial, saves=True)
    problem = ev.ErrorInfo("OSError", "no connection", disk=True)
    monkeypatch.setattr(harness.loop._parts.checkpoints, "check", lambda record, then: then(problem))
    harness.exit(trial, wire.AttemptErrored("ValueError", "no", ""))
    assert harness.kinds()[-1] == "attempt_ended" and len(trial.checkpoints) == 1
    assert list(harness.loop.attempts.starved) == [trial.trial_id]


def test_who_is_behind_what_it_was_told_runs_first_also_after_it_has_backed_off(tmp_path: Path) -> None:
    """The scheduler has decided about it, and would choose it never again."""

    class Pauses(FIFOScheduler):
        def on_trial_result(self, trial: Any, result: dict[str, Any]) -> Any:
            return Decision.PAUSE if result["training_iteration"] == 2 else Decision.CONTINUE

        def choose_trial_to_run(self, pending: Any) -> Any:
            return next((trial for trial in pending if not trial.attempt), None)

    harness = DriverHarness(tmp_path / "e", plugin_set(scheduler=Pauses()), slots=1, max_failures=9).turn()
    trial = harness.trial()
    harness.report(trial, saves=True)
    told = harness.report(trial)
    assert told is not None and told.then == "continue"  # it trains on to its next save
    assert harness.loop.attempts.running[trial.trial_id].phase is Phase.PAUSE_DUE
    harness.loop.dispatch(())
    answer = None
    while answer is None or answer.then == "continue":
        answer = harness.report(trial, saves=True) if trial.iteration == 2 else harness.report(trial)
    harness.exit(trial, status=-9)  # before the save was published
    assert trial.told_then == "pause"
    for _ in range(3):
        if harness.loop.attempts.backing_off:
            harness.clock.advance(100.0)
            harness.turn()
        elif trial.trial_id in harness.executor.running and trial.is_behind:
            harness.exit(trial, status=-9)
    assert not harness.loop.attempts.backing_off


def test_nothing_begins_any_more_once_the_run_is_halted(tmp_path: Path) -> None:
    from tuner.driver.endings import HaltCause

    harness = DriverHarness(tmp_path / "e", plugin_set(num_samples=3), slots=1).turn()
    harness.loop.endings.ask(HaltCause.INTERRUPTED)
    harness.turn()
    harness.exit(harness.trial(), wire.Preempted())
    assert started(harness) == ["ab_00000"] and harness.kinds()[-1] == "attempt_ended"
