"""Orders about a trial's life: what each does to it, and how it is answered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tuner.driver.harness import Says, plugin_set
from tests.tuner.driver.steered import Steered
from trainables.config import CheckpointConfig
from tuner.driver.attempts import Phase
from tuner.experiment import events as ev
from tuner.experiment.outcome import outcome
from tuner.experiment.reason import ReasonKind
from tuner.experiment.state import ExperimentState
from tuner.schedulers import HyperBandForBOHB
from tuner.schedulers.base import Decision, Directive


@pytest.fixture
def run(tmp_path: Path) -> Steered:
    harness = Steered(tmp_path / "e", plugin_set(num_samples=2), class_api=True)
    harness.turn()
    return harness


def test_a_trial_that_runs_is_stopped_at_its_next_result(run: Steered) -> None:
    trial = run.trial()
    order = run.order("stop", trial.trial_id)
    assert run.said(order) == ("taken", "") and not run.mailbox.is_waiting(order)
    answer = run.report(trial, loss=1.0)
    assert answer is not None and answer.then == "stop"
    run.exit(trial)
    assert trial.status == "TERMINATED" and run.said(order) == ("done", "stopped by you at 1")
    assert trial.end_reason is not None and trial.end_reason.kind is ReasonKind.ORDER
    assert run.said(run.order("stop", trial.name, order_id="again-order"))[0] == "done"


def test_a_trial_that_waits_is_stopped_at_once(tmp_path: Path) -> None:
    run = Steered(tmp_path / "e", plugin_set(num_samples=2), slots=1, class_api=True)
    run.turn()
    run.loop.admission._create()
    assert run.said(run.order("stop", 1)) == ("done", "stopped by you")
    assert run.trial(1).status == "TERMINATED" and run.trial(0).status == "RUNNING"


def test_stop_all_ends_every_trial_and_makes_no_other(tmp_path: Path) -> None:
    run = Steered(tmp_path / "e", plugin_set(num_samples=5), slots=2, class_api=True)
    run.turn()
    order = run.order("stop", "all")
    for trial in list(run.state.trials):
        run.report(trial, loss=1.0)
        assert run.said(order)[0] == "taken"
        run.exit(trial)
    assert run.said(order) == ("done", "2 trials have ended")
    assert [trial.status for trial in run.state.trials] == ["TERMINATED"] * 2
    assert not run.loop.admission.more_to_come()


def test_a_paused_trial_is_saved_and_chosen_by_nobody_until_it_is_to_go(run: Steered) -> None:
    trial = run.trial()
    order = run.order("pause")
    assert outcome(trial) == "pausing"
    answer = run.report(trial, loss=1.0)
    assert answer is not None and (answer.then, answer.save) == ("pause", True)
    run.say(trial, run.publish(trial, 1))
    run.exit(trial)
    assert (trial.status, outcome(trial)) == ("PAUSED", "paused by you") and run.said(order)[0] == "done"
    run.turn()
    assert trial.trial_id not in run.loop.attempts.running
    run.executor.slots = 1
    assert run.said(run.order("go")) == ("done", "waits for a slot, then goes on from iteration 1")
    assert run.said(run.order("go", order_id="another-go"))[1].endswith("to pause: it waits for a slot already")
    assert outcome(trial) == "paused" and trial.trial_id not in run.loop.attempts.running
    run.executor.slots = 2
    run.turn()
    assert trial.trial_id in run.loop.attempts.running and trial.attempt == 2
    assert run.executor.launched[-1].job.checkpoint is not None


def test_the_scheduler_hears_nothing_of_such_a_pause(tmp_path: Path) -> None:
    class Listens(Says):
        paused = 0

        def on_trial_pause(self, trial: Any) -> None:
            self.paused += 1

    scheduler = Listens()
    run = Steered(tmp_path / "e", plugin_set(scheduler=scheduler, num_samples=2), class_api=True)
    run.turn()
    run.order("pause")
    run.report(run.trial(0), loss=1.0)
    run.say(run.trial(0), run.publish(run.trial(0), 1))
    run.exit(run.trial(0))
    assert run.trial(0).status == "PAUSED" and run.plugins.paused == set()


def test_told_to_go_before_it_has_paused_it_trains_on(run: Steered) -> None:
    trial = run.trial()
    pause, go = run.order("pause"), run.order("go")
    assert run.said(pause) == ("refused", "it was told to go before") and run.said(go)[0] == "done"
    answer = run.report(trial, loss=1.0)
    assert answer is not None and answer.then == "continue"
    assert run.loop.attempts.running[trial.trial_id].phase is Phase.TRAINING


def test_a_function_that_does_not_save_shows_that_it_is_pausing(tmp_path: Path) -> None:
    run = Steered(tmp_path / "e")
    run.turn()
    order = run.order("pause")
    for _ in range(3):
        answer = run.report(run.trial(), loss=1.0)
        assert answer is not None and (answer.then, answer.should_checkpoint) == ("continue", True)
    assert outcome(run.trial()) == "pausing"
    assert run.said(order)[1].startswith("it pauses at its next save; a function that saves no checkpoint")
    run.exit(run.trial())
    assert run.said(order) == ("refused", "it ended first: returned; it had no checkpoint to pause with")


def test_a_trial_that_is_held_and_fails_is_not_tried_again_before_it_is_to_go(tmp_path: Path) -> None:
    run = Steered(tmp_path / "e", class_api=True, max_failures=5)
    run.turn()
    trial = run.trial()
    order = run.order("pause")
    for _ in range(2):  # the second time it would back off
        run.exit(trial, status=1)
        assert trial.trial_id not in run.loop.attempts.running and run.said(order)[0] == "done"
        run.order("go")
        order = run.order("pause")
    run.order("stop")
    run.exit(trial, status=1)
    assert trial.status == "TERMINATED" and outcome(trial) == "stopped by you"


def test_a_held_trial_is_stopped_too(run: Steered) -> None:
    run.order("pause", 1)
    run.report(run.trial(1), loss=1.0)
    run.say(run.trial(1), run.publish(run.trial(1), 1))
    run.exit(run.trial(1))
    assert run.said(run.order("stop", 1)) == ("done", "stopped by you at 1")


def test_what_a_user_ordered_comes_before_what_the_scheduler_orders(tmp_path: Path) -> None:
    scheduler = Says()
    run = Steered(tmp_path / "e", plugin_set(scheduler=scheduler, num_samples=1), class_api=True)
    run.turn()
    run.order("stop")
    scheduler.ordered.append(Directive(run.trial().trial_id, Decision.PAUSE))
    answer = run.report(run.trial(), loss=1.0)
    assert answer is not None and answer.then == "stop"


def test_a_save_is_made_at_the_next_step_and_named(run: Steered) -> None:
    trial = run.trial()
    run.report(trial, loss=1.0)
    order = run.order("save")
    answer = run.report(trial, loss=1.0)
    assert answer is not None and answer.save and run.said(order)[0] == "taken"
    run.say(trial, run.publish(trial, 2))
    assert run.said(order) == ("done", "checkpoint_000002")
    answer = run.report(trial, loss=1.0)
    assert answer is not None and not answer.save
    run.order("stop")
    run.report(trial, loss=1.0)
    run.exit(trial)
    assert run.said(run.order("save"))[0] == "refused"


def test_a_pinned_checkpoint_stays_until_it_is_unpinned(tmp_path: Path) -> None:
    run = Steered(tmp_path / "e", class_api=True, keep=CheckpointConfig(num_to_keep=1))
    run.turn()
    trial = run.trial()
    save = run.order("save", pin=True)
    for _ in range(4):
        run.report(trial, loss=1.0, saves=True)
    assert run.said(save)[0] == "done"
    assert run.said(run.order("tag", iteration=4, tag="good")) == ("done", "checkpoint_000004")
    assert "is train_ab_00000@4 already" in run.said(run.order("tag", iteration=1, tag="good"))[1]
    run.report(trial, loss=1.0, saves=True)
    assert [(record.iteration, record.tags) for record in trial.checkpoints] == [(1, []), (4, ["good"]), (5, [])]
    assert run.said(run.order("unpin", iteration=1))[0] == "done"
    run.order("unpin", iteration=4)
    assert [record.iteration for record in trial.checkpoints] == [5]
    assert run.said(run.order("pin", iteration=4)) == (
        "refused",
        "train_ab_00000 has no checkpoint of iteration 4; it has 5",
    )
    assert run.said(run.order("pin", iteration=5))[0] == "done"
    state = ExperimentState.from_snapshot(tmp_path / "e", run.state.snapshot({}))
    assert state.pinned == run.state.pinned == {(trial.trial_id, trial.checkpoints[0].order)}


def test_a_failed_trial_is_tried_again_and_a_note_is_kept(run: Steered) -> None:
    trial = run.trial()
    assert run.said(run.order("retry")) == ("refused", "train_ab_00000 has not failed: running")
    run.exit(trial, status=1)
    assert trial.status == "ERROR"
    assert run.said(run.order("retry", order_id="real-retry"))[0] == "done"
    assert trial.status == "RUNNING"
    run.order("note", text="looks flat")
    assert [note.text for note in trial.notes] == ["looks flat"]


def test_a_save_is_done_once_though_its_driver_was_killed_after_it(tmp_path: Path) -> None:
    run = Steered(tmp_path / "e", plugin_set(), class_api=True)
    run.turn()
    trial = run.trial()
    run.report(trial, saves=True)
    save = run.order("save", pin=True)
    run.report(trial, loss=1.0)
    run.say(trial, run.publish(trial, 2))
    assert run.said(save) == ("done", "checkpoint_000002")
    facts = [fact for fact in run.facts if not isinstance(fact, ev.OrderAnswered | ev.CheckpointPinned)]
    again = Steered(tmp_path / "again", plugin_set(), class_api=True, facts=facts)
    again.loop.endings.transitions.end_attempt(again.loop.attempts.begin(again.trial(), {}), "halted")
    again.turn()  # where nobody has ever said anything: on another machine, say
    assert [(record.iteration, record.pinned) for record in again.trial().checkpoints] == [(1, False), (2, True)]
    assert again.state.orders[save].state == "done" and not again.mailbox.is_open()
    answer = again.report(again.trial(), loss=1.0)
    assert answer is not None and not answer.save


def test_a_save_that_no_trial_has_heard_of_is_asked_of_its_next_attempt(tmp_path: Path) -> None:
    run = Steered(tmp_path / "e", plugin_set(num_samples=2), slots=1, class_api=True, max_failures=1)
    run.turn()
    run.loop.admission._create()
    trial, late = run.trial(), run.order("save", 1)
    assert run.said(late) == ("taken", "it saves when it runs again")
    for _ in range(3):
        run.report(trial, loss=1.0)
    save = run.order("save")
    run.exit(trial, status=1)
    assert run.said(save)[0] == "taken"
    run.exit(run.trial(1) if run.trial(1).status == "RUNNING" else trial)
    running = run.state.trial(next(iter(run.loop.attempts.running)))
    run.loop.dispatch(())
    answer = run.report(running, loss=1.0)
    assert answer is not None and answer.save
    run.say(running, run.publish(running, 1))
    assert run.said(save if running is trial else late) == ("done", "checkpoint_000001")
    run.exit(running)


def test_a_save_of_what_waits_and_is_saved_is_there_already(run: Steered) -> None:
    trial = run.trial()
    run.order("pause")
    run.report(trial, loss=1.0)
    run.say(trial, run.publish(trial, 1))
    run.exit(trial)
    assert run.said(run.order("save", pin=True)) == ("done", "checkpoint_000001")
    assert trial.checkpoints[0].pinned
    run.order("pause", 1)
    run.exit(run.trial(1), reason="lost")
    state, why = run.said(run.order("save", 1))
    assert state == "refused" and why.startswith("it does not run: ") and why.endswith("it has no checkpoint")


def test_what_a_scheduler_ordered_of_a_held_trial_comes_first_when_it_is_to_go(tmp_path: Path) -> None:
    scheduler = Says()
    run = Steered(tmp_path / "e", plugin_set(scheduler=scheduler, num_samples=2), class_api=True)
    run.turn()
    trial = run.trial()
    run.order("pause")
    run.report(trial, loss=1.0)
    run.say(trial, run.publish(trial, 1))
    run.exit(trial)
    scheduler.ordered.append(Directive(trial.trial_id, Decision.STOP))
    run.report(run.trial(1), loss=1.0)
    assert trial.status == "PAUSED"
    state, why = run.said(run.order("go"))
    assert state == "done" and trial.status == "TERMINATED" and why == outcome(trial)


def test_a_bracket_goes_on_without_a_held_trial_when_nothing_else_could(tmp_path: Path) -> None:
    scheduler = HyperBandForBOHB(metric="score", mode="max", max_t=20)
    assert scheduler.bracket(2)[1][0] == 2
    run = Steered(tmp_path / "e", plugin_set(scheduler=scheduler, num_samples=3), slots=3, class_api=True)
    run.turn()
    run.order("pause")
    for trial in run.state.trials:
        while (answer := run.report(trial, score=float(trial.index))) is not None and answer.then == "continue":
            pass
        run.say(trial, run.publish(trial, trial.iteration))
        run.exit(trial)
    held, *others = run.state.trials
    assert (held.iteration, [trial.iteration for trial in others]) == (1, [2, 2]) and not run.loop.attempts.running
    assert run.loop._wakes()
    run.turn()
    assert set(run.loop.attempts.running) == {trial.trial_id for trial in others}
    run.order("go")
    assert held.trial_id in run.loop.attempts.running
    answer = run.report(held, score=0.0)
    assert answer is not None and answer.then == "continue"  # to the others' next rung


def test_a_trial_that_was_told_to_pause_and_failed_runs_when_it_is_tried_again(tmp_path: Path) -> None:
    run = Steered(tmp_path / "e", class_api=True)
    run.turn()
    pause = run.order("pause")
    run.exit(run.trial(), status=1)
    assert run.said(pause)[0] == "refused" and run.trial().status == "ERROR"
    assert run.said(run.order("retry"))[0] == "done" and run.trial().status == "RUNNING"
    assert ExperimentState.from_snapshot(tmp_path / "e", run.state.snapshot({})).held == {}
