"""What an exit means, who tries again and when, and what halts a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tuner.driver.harness import DriverHarness, Says, plugin_set
from trainables import wire
from tuner.driver.endings import MAX_LOST, HaltCause
from tuner.experiment import events as ev
from tuner.experiment.outcome import outcome
from tuner.schedulers.base import Decision, Directive

ERRED = wire.AttemptErrored("ValueError", "no", "Traceback")
REFUSED = wire.AttemptErrored("CheckpointBudgetError", "full", "", retry=False)
FULL = wire.AttemptErrored("OSError", "no space", "", disk=True)


def end_of(harness: DriverHarness) -> tuple[str, str]:
    """(how the attempt or the trial ended, the type of the error)."""
    fact = [fact for fact in harness.facts if isinstance(fact, (ev.AttemptEnded, ev.TrialEnded))][-1]
    return (fact.why if isinstance(fact, ev.AttemptEnded) else fact.status), fact.error.type if fact.error else ""


CONTINUE, PAUSE, STOP = Decision.CONTINUE, Decision.PAUSE, Decision.STOP


@pytest.mark.parametrize(
    ("told", "said", "status", "reason", "expected"),
    [
        (CONTINUE, wire.Finished(), 0, None, ("TERMINATED", "")),
        (CONTINUE, wire.Preempted(), 0, None, ("preempted", "")),
        (CONTINUE, ERRED, 1, None, ("ERROR", "ValueError")),
        (CONTINUE, None, 3, None, ("ERROR", "TrialProcessDiedError")),
        (CONTINUE, None, -9, None, ("ERROR", "TrialProcessDiedError")),
        (CONTINUE, None, -9, "lost", ("lost", "")),
        (CONTINUE, None, 1, "unusable", ("lost", "")),
        (CONTINUE, None, -9, "timeout", ("ERROR", "TrialTimeoutError")),
        (CONTINUE, wire.Finished(), 0, "timeout", ("ERROR", "TrialTimeoutError")),
        (PAUSE, wire.Finished(), 0, None, ("paused", "")),
        (PAUSE, ERRED, 1, None, ("ERROR", "ValueError")),
        (PAUSE, None, -9, "lost", ("lost", "")),
        (STOP, wire.Finished(), 0, None, ("TERMINATED", "")),
        (STOP, ERRED, 1, None, ("TERMINATED", "")),
        (STOP, None, -9, None, ("TERMINATED", "")),
        (STOP, None, -9, "lost", ("TERMINATED", "")),
        (STOP, None, -9, "timeout", ("TERMINATED", "")),
    ],
)  # fmt: skip
def test_how_a_trial_ends_by_what_it_was_told_said_and_how_its_process_went(
    told: Decision, said: Any, status: int, reason: str | None, expected: tuple[str, str], tmp_path: Path
) -> None:
    harness = DriverHarness(tmp_path / "e", plugin_set(scheduler=Says(always=told))).turn()
    harness.report(harness.trial(), saves=True)
    harness.exit(harness.trial(), said, status=status, reason=reason)
    assert end_of(harness) == expected


@pytest.mark.parametrize("reason", [None, "lost"])
def test_after_a_halt_whatever_happens_leaves_a_trial_for_the_resume(reason: str | None, tmp_path: Path) -> None:
    harness = DriverHarness(tmp_path / "e").turn()
    harness.loop.endings.halt(HaltCause.INTERRUPTED)
    harness.exit(harness.trial(), status=-9, reason=reason)
    assert end_of(harness) == ("halted", "")


def test_a_trial_that_was_told_to_stop_and_lacks_its_last_save_goes_back_for_it(tmp_path: Path) -> None:
    harness = DriverHarness(
        tmp_path / "e", plugin_set(scheduler=Says(always=STOP)), class_api=True, checkpoint_at_end=True
    )
    trial = harness.turn().trial()
    answer = harness.report(trial)
    assert answer is not None and (answer.then, answer.save) == ("stop", True)
    harness.exit(trial)  # without a word of its save
    assert end_of(harness) == ("ERROR", "PublishError")
    assert trial.error is not None and trial.error.disk and "of iteration 1, is not on the disk" in trial.error.message


def test_a_failure_is_tried_again_at_once_then_later_and_later(tmp_path: Path) -> None:
    harness = DriverHarness(tmp_path / "e", max_failures=-1).turn()
    trial = harness.trial()
    harness.exit(trial, ERRED)
    assert trial.attempt == 2
    waits = []
    for _ in range(9):
        harness.exit(trial, ERRED)
        (run,) = harness.loop.attempts.backing_off.values()
        waits.append(run.again_at - harness.clock.monotonic())
        harness.clock.advance(waits[-1] - 0.1)
        harness.turn()
        assert harness.loop.attempts.backing_off
        harness.clock.advance(0.1)
        harness.turn()
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]
    harness.report(trial)  # a new result
    harness.exit(trial, ERRED)
    assert not harness.loop.attempts.backing_off and trial.attempt == 12


def test_max_failures_counts_and_an_error_that_says_so_is_not_tried_again(tmp_path: Path) -> None:
    harness = DriverHarness(tmp_path / "a", max_failures=1).turn()
    harness.exit(harness.trial(), ERRED)
    assert harness.trial().status == "RUNNING" and outcome(harness.trial()) == "running"
    harness.exit(harness.trial(), ERRED)
    assert end_of(harness) == ("ERROR", "ValueError") and harness.trial().num_failures == 1
    assert outcome(harness.trial()).startswith("failed (2 of 2 tries): ValueError")
    harness = DriverHarness(tmp_path / "b", max_failures=9).turn()
    harness.exit(harness.trial(), REFUSED)
    assert end_of(harness) == ("ERROR", "CheckpointBudgetError")


def test_a_lost_trial_goes_on_but_not_for_ever(tmp_path: Path) -> None:
    harness = DriverHarness(tmp_path / "e").turn()
    for _ in range(MAX_LOST):
        harness.exit(harness.trial(), status=-9, reason="lost")
    assert end_of(harness) == ("lost", "") and harness.trial().num_failures == 0
    harness.exit(harness.trial(), status=-9, reason="lost")
    assert end_of(harness) == ("ERROR", "TrialProcessDiedError")


def test_who_failed_for_want_of_space_waits_until_another_has_ended(tmp_path: Path) -> None:
    harness = DriverHarness(tmp_path / "e", plugin_set(num_samples=2), max_failures=-1).turn()
    starved, other = harness.state.trials
    harness.exit(starved, FULL)
    assert list(harness.loop.attempts.starved) == [starved.trial_id] and starved.attempt == 1
    assert outcome(starved) == "waiting: failed (tries: 1): OSError: no space"
    harness.exit(other)
    assert not harness.loop.attempts.starved and starved.attempt == 2


def test_who_waits_for_space_fails_when_nothing_runs_that_may_free_some(tmp_path: Path) -> None:
    harness = DriverHarness(tmp_path / "e", max_failures=-1).turn()
    harness.exit(harness.trial(), FULL)
    harness.loop.run()
    assert end_of(harness) == ("ERROR", "OSError")
    assert harness.trial().error == ev.ErrorInfo("OSError", "no space", disk=True, tries=1)


def test_a_trial_that_is_to_end_ends_instead_of_trying_again(tmp_path: Path) -> None:
    scheduler = Says()
    harness = DriverHarness(tmp_path / "e", plugin_set(scheduler=scheduler, num_samples=2), max_failures=-1).turn()
    failing, other = harness.state.trials
    scheduler.ordered.append(Directive(failing.trial_id, STOP))
    harness.report(other)
    harness.exit(failing, ERRED)
    assert failing.status == "TERMINATED" and failing.end_reason is not None and failing.end_reason.by == "Says"


def test_fail_fast_halts_the_run_and_says_who(tmp_path: Path) -> None:
    harness = DriverHarness(tmp_path / "e", plugin_set(num_samples=2), fail_fast=True).turn()
    harness.exit(harness.trial(0), wire.AttemptErrored("ValueError", "no", "", pickled=b"it"))
    endings = harness.loop.endings
    assert endings.halted is HaltCause.FAIL_FAST and endings.exceptions == {"ab_00000": b"it"}
    assert endings.failure is not None and endings.failure[0] == "ab_00000"
    assert ("ab_00001", wire.Halt()) in harness.executor.told


@pytest.mark.parametrize(
    ("why", "grace"), [(HaltCause.PREEMPTED, 30.0), (HaltCause.HUNG_UP, 30.0), (HaltCause.BUDGET, 5.0)]
)
def test_a_halted_run_waits_for_its_trials_as_long_as_it_may_and_kills_them(
    why: HaltCause, grace: float, tmp_path: Path
) -> None:
    harness = DriverHarness(tmp_path / "e").turn()
    harness.loop.endings.halt(why)
    harness.loop.endings.halt(HaltCause.INTERRUPTED)  # the first one stands
    harness.clock.advance(grace - 0.1)
    harness.turn()
    assert harness.loop.endings.halted is why and harness.executor.killed == []
    harness.clock.advance(0.1)
    harness.turn()
    assert harness.executor.killed == ["ab_00000"]


def test_three_saves_in_a_row_that_fail_end_a_trial_that_pauses(tmp_path: Path) -> None:
    harness = DriverHarness(tmp_path / "e", plugin_set(scheduler=Says(always=PAUSE)), max_publish_failures=2).turn()
    trial = harness.trial()
    for _ in range(2):
        harness.report(trial, saves=False)
        ref = harness.ref(trial, trial.iteration + 1)
        harness.say(trial, wire.Report(ref.iteration, ev.msgspec.Raw(b"{}"), wire.PendingSave(ref)))
        harness.say(trial, wire.SaveFailed(ref, "no space"))
        if trial.save_failures == 1:
            harness.exit(trial)
            assert end_of(harness) == ("paused", "")
    harness.exit(trial, next_turn=False)
    assert end_of(harness) == ("ERROR", "PublishError")
