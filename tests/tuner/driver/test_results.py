"""What a result means: the answer that a trial gets, the phase of its attempt, and the facts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tuner.driver.harness import DriverHarness, Says, SpokenExecutor, plugin_set
from trainables import wire
from trainables.config import Budget
from tuner.callback import Callback
from tuner.driver.attempts import Phase
from tuner.driver.endings import HaltCause
from tuner.error import StorageFullError
from tuner.experiment import events as ev
from tuner.experiment.reason import Reason, ReasonKind
from tuner.schedulers.base import Decision, Directive, Exploit, Reasoned
from tuner.stopper import DictStopper, MaximumIterationStopper


def harness_with(tmp_path: Path, *said: Any, **settings: Any) -> DriverHarness:
    return DriverHarness(tmp_path / "e", plugin_set(scheduler=Says(*said)), **settings).turn()


def phase(harness: DriverHarness) -> Phase:
    return harness.loop.attempts.running[harness.trial().trial_id].phase


def last_result(harness: DriverHarness) -> ev.ResultReported:
    return [fact for fact in harness.facts if isinstance(fact, ev.ResultReported)][-1]


PAUSE, SAVE, STOP, CONTINUE = Decision.PAUSE, Decision.SAVE, Decision.STOP, Decision.CONTINUE


@pytest.mark.parametrize(
    ("said", "class_api", "saves", "then", "save", "stands"),
    [
        (CONTINUE, False, False, "continue", False, Phase.TRAINING),
        (CONTINUE, True, False, "continue", False, Phase.TRAINING),
        (SAVE, False, False, "continue", False, Phase.TRAINING),
        (SAVE, True, False, "continue", True, Phase.TRAINING),
        (PAUSE, False, False, "continue", False, Phase.PAUSE_DUE),
        (PAUSE, False, True, "pause", False, Phase.PAUSED),
        (PAUSE, True, False, "pause", True, Phase.PAUSED),
        (STOP, False, False, "stop", False, Phase.STOPPED),
        (STOP, True, False, "stop", False, Phase.STOPPED),
        (Exploit("nobody", {}), False, True, "continue", False, Phase.TRAINING),
    ],
)  # fmt: skip
def test_a_verdict_becomes_an_answer_a_phase_and_a_fact(
    said: Any, class_api: bool, saves: bool, then: str, save: bool, stands: Phase, tmp_path: Path
) -> None:
    harness = harness_with(tmp_path, said, class_api=class_api)
    answer = harness.report(harness.trial(), saves=saves)
    assert answer is not None and (answer.then, answer.save) == (then, save)
    assert answer.should_checkpoint == (said is SAVE or stands is Phase.PAUSE_DUE or said is PAUSE)
    assert phase(harness) is stands
    fact = last_result(harness)
    assert (fact.then, fact.saves) == (then, saves or save)
    assert (fact.reason is None) == (then == "continue" and said is not SAVE)


def test_a_function_pauses_at_its_next_save_for_the_first_reason(tmp_path: Path) -> None:
    first = Reasoned(PAUSE, Reason(ReasonKind.WORSE))
    harness = harness_with(tmp_path, first, Reasoned(PAUSE, Reason(ReasonKind.WAITS)))
    trial = harness.trial()
    assert [answer.then for answer in (harness.report(trial), harness.report(trial)) if answer] == ["continue"] * 2
    answer = harness.report(trial, saves=True)
    assert answer is not None and answer.then == "pause"
    reason = last_result(harness).reason
    assert reason is not None and (reason.kind, reason.iteration) == (ReasonKind.WORSE, 1)


def test_what_a_stopper_and_a_callback_end_says_who_it_was(tmp_path: Path) -> None:
    class Ends(Callback):
        def on_trial_result(self, result: dict[str, Any], **info: Any) -> None:
            result["done"] = result["training_iteration"] == 2

    for name, plugins, by in (
        ("stopper", plugin_set(stopper=MaximumIterationStopper(2)), "MaximumIterationStopper"),
        ("callback", plugin_set(Ends()), "a callback"),
    ):
        harness = DriverHarness(tmp_path / name, plugins).turn()
        harness.report(harness.trial())
        answer = harness.report(harness.trial())
        assert answer is not None and answer.then == "stop"
        reason = last_result(harness).reason
        assert reason is not None and reason.by == by and harness.trial().last_result["done"]


def test_a_class_saves_when_its_settings_say_so(tmp_path: Path) -> None:
    harness = harness_with(tmp_path, class_api=True, checkpoint_frequency=2)
    answers = [harness.report(harness.trial()) for _ in range(4)]
    assert [answer.save for answer in answers if answer] == [False, True, False, True]


def test_a_class_saves_and_pauses_when_the_run_is_halted_and_a_function_decides_itself(tmp_path: Path) -> None:
    for class_api, then in ((True, "pause"), (False, "continue")):
        harness = DriverHarness(tmp_path / then, class_api=class_api).turn()
        harness.loop.endings.halt(HaltCause.INTERRUPTED)
        answer = harness.report(harness.trial())
        assert answer is not None and (answer.then, answer.should_stop) == (then, True)
        assert last_result(harness).reason is None


def test_a_directive_for_a_trial_that_runs_is_done_when_it_has_paused(tmp_path: Path) -> None:
    harness = DriverHarness(tmp_path / "e", plugin_set(scheduler=(says := Says()), num_samples=2), slots=2).turn()
    clone, donor = harness.state.trials
    harness.report(donor, saves=True)
    says.ordered.append(Directive(clone.trial_id, Exploit(donor.trial_id, {"x": 9})))
    harness.report(donor)
    answer = harness.report(clone, saves=True)
    assert answer is not None and answer.then == "pause"
    harness.exit(clone, next_turn=False)
    made = [fact for fact in harness.facts if isinstance(fact, ev.Exploited)]
    assert len(made) == 1 and made[0].checkpoint.trial_id == donor.trial_id
    assert clone.config == {"x": 9} and harness.plugins.directives.noted == {}


def test_a_checkpoint_becomes_visible_when_its_result_is_durable(tmp_path: Path) -> None:
    harness = harness_with(tmp_path)
    harness.report(harness.trial(), saves=True)
    assert [body for _, body in harness.executor.told if isinstance(body, wire.Durable)] == [wire.Durable(1)]


def test_while_the_disk_is_full_a_trial_waits_for_its_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = harness_with(tmp_path)
    flush = harness.journal.flush

    def full() -> None:
        raise StorageFullError(28, "no space")

    monkeypatch.setattr(harness.journal, "flush", full)
    harness.report(harness.trial())
    assert harness.report(harness.trial()) is None
    monkeypatch.setattr(harness.journal, "flush", flush)
    harness.turn()
    assert [body.then for _, body in harness.executor.told if isinstance(body, wire.Answer)] == ["continue"]


def test_an_answer_that_waits_for_the_replica_is_not_given_to_the_next_attempt(tmp_path: Path) -> None:
    harness = harness_with(tmp_path, max_failures=1)
    trial, copies = harness.trial(), harness.loop._parts.copies
    copies.behind = lambda trial: True  # type: ignore[method-assign]
    assert harness.report(trial, saves=True) is None
    assert list(harness.loop.results.unanswered) == [trial.trial_id]
    harness.exit(trial, status=-9)
    harness.executor.told.clear()
    copies.behind = lambda trial: False  # type: ignore[method-assign]
    harness.turn()
    assert trial.attempt == 2 and not harness.executor.told and not harness.loop.results.unanswered


def test_a_result_that_was_told_before_a_rollback_keeps_its_answer(tmp_path: Path) -> None:
    harness = harness_with(tmp_path, CONTINUE, Reasoned(STOP, Reason(ReasonKind.WORSE)), class_api=True, max_failures=3)
    trial = harness.trial()
    harness.report(trial)
    harness.say(trial, wire.SavePublished(harness.ref(trial, 1), 10, "digest"))
    trial.save_due = 2  # the last one was to be saved
    harness.report(trial)
    trial.save_due = 2
    harness.exit(trial, status=-9, reason="lost")
    assert trial.attempt == 2 and trial.iteration == 1
    answer = harness.report(trial)
    assert answer is not None and answer.then == "stop"
    reason = last_result(harness).reason
    assert reason is not None and reason.kind is ReasonKind.WORSE


def test_what_a_process_says_after_its_save_was_refused_does_not_count(tmp_path: Path) -> None:
    harness = harness_with(tmp_path)
    run = harness.loop.attempts.running[harness.trial().trial_id]
    harness.loop.attempts.enter(run, Phase.REFUSED)
    assert harness.report(harness.trial()) is None and "result" not in harness.kinds()


def ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *callbacks: Callback, **settings: Any) -> DriverHarness:
    """A trial that need not wait for its answers."""
    monkeypatch.setattr(SpokenExecutor, "answers_ahead", True)
    return DriverHarness(tmp_path / "e", plugin_set(*callbacks, **settings)).turn()


def decided(harness: DriverHarness) -> list[wire.ToTrial]:
    """What was said of the last result that did not wait, or to a trial that did not know yet."""
    return [body for _, body in harness.executor.told if isinstance(body, wire.Decided | wire.Answer)]


def results(harness: DriverHarness) -> list[int]:
    return [fact.iteration for fact in harness.facts if isinstance(fact, ev.ResultReported)]


def test_where_nobody_decides_a_trial_is_told_so_and_its_results_get_no_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = ahead(tmp_path, monkeypatch)
    answer = harness.report(harness.trial())
    assert answer is not None and answer.free_until > 10**9
    for saves in (False, True):
        assert harness.report(harness.trial(), saves=saves, waits=False) is None
        assert decided(harness) == []
    assert results(harness) == [1, 2, 3] and harness.trial().checkpoints


class Changes(Callback):
    """May change a result, and does not."""

    def on_trial_result(self, result: dict[str, Any], **info: Any) -> None:
        assert self.changes_results


@pytest.mark.parametrize("what", ["class", "budget", "decides", "callback", "replica", "elsewhere"])
def test_where_somebody_may_decide_a_trial_waits(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SpokenExecutor, "answers_ahead", what != "elsewhere")
    plugins = plugin_set(*[Changes()] * (what == "callback"), scheduler=Says() if what == "decides" else None)
    more: dict[str, Any] = {"checkpoint_budget": Budget("1GB")} if what == "budget" else {}
    harness = DriverHarness(tmp_path / "e", plugins, class_api=what == "class", **more).turn()
    if what == "replica":
        harness.loop._parts.copies.behind = lambda trial: True  # type: ignore[method-assign]
    answer = harness.report(harness.trial())
    assert answer is not None and answer.free_until <= 2


def test_a_trial_goes_on_until_a_stopper_may_end_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = ahead(tmp_path, monkeypatch, stopper=DictStopper({"training_iteration": 3}))
    answer = harness.report(harness.trial())
    assert answer is not None and answer.free_until == 3
    harness.report(harness.trial(), waits=False)
    answer = harness.report(harness.trial())
    assert answer is not None and (answer.then, answer.free_until) == ("stop", 0)


def test_after_a_late_decision_what_a_trial_reports_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ends(Callback):
        def on_trial_result(self, result: dict[str, Any], **info: Any) -> None:
            result["done"] = result["training_iteration"] == 2

    harness = ahead(tmp_path, monkeypatch, Ends())
    trial = harness.trial()
    harness.report(trial)
    harness.report(trial, waits=False)
    (late,) = decided(harness)
    assert isinstance(late, wire.Decided) and (late.iteration, late.answer.then) == (2, "stop")
    harness.report(trial, waits=False, saves=True, told=False)
    assert decided(harness) == []
    answer = harness.report(trial)  # had it been said a moment later
    assert answer is not None and answer.then == "stop"
    assert results(harness) == [1, 2] and phase(harness) is Phase.STOPPED
    harness.exit(trial)
    assert trial.status == "TERMINATED" and trial.iteration == 2


def test_a_trial_that_did_not_wait_hears_that_it_is_to_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = ahead(tmp_path, monkeypatch)
    trial = harness.trial()
    harness.report(trial)
    harness.loop.attempts.running[trial.trial_id].save_asked = True
    harness.report(trial, waits=False)
    (late,) = decided(harness)
    assert isinstance(late, wire.Decided) and late.answer.should_checkpoint
    answer = harness.report(trial)
    assert answer is not None and answer.should_checkpoint and answer.free_until == 0


def test_a_trial_whose_saves_the_replica_cannot_take_is_told_to_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = ahead(tmp_path, monkeypatch)
    trial, copies = harness.trial(), harness.loop._parts.copies
    harness.report(trial)
    copies.behind = lambda trial: True  # type: ignore[method-assign]
    harness.report(trial, waits=False, saves=True)
    (late,) = decided(harness)
    assert isinstance(late, wire.Decided) and late.answer.then == "continue"
    assert harness.report(trial, saves=True) is None and list(harness.loop.results.unanswered) == [trial.trial_id]
