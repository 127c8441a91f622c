"""The scripted life does everything that a scheduler may ask for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.tuner.testing.own_schedulers import Cloning
from tuner.schedulers import Decision, TrialScheduler, TrialView
from tuner.schedulers.base import Directive, Exploit, Reallocate, T, Verdict
from tuner.testing import TrialStub, check_scheduler
from tuner.testing.scripted_life import (
    FIRST_TRIALS,
    ITERATIONS,
    ROOM,
    TRIALS,
    PendingView,
    ScriptedLife,
    loss_of,
)


def test_a_scheduler_of_ones_own_may_do_everything() -> None:
    check_scheduler(Cloning)
    decisions = ScriptedLife(Cloning).play().decisions
    verdicts = [decision[2] for decision in decisions if len(decision) == 3]
    kinds = {type(verdict) if isinstance(verdict, (Exploit, Reallocate)) else verdict for verdict in verdicts}
    assert kinds == {Decision.CONTINUE, Decision.SAVE, Decision.PAUSE, Exploit, Reallocate}
    assert {decision[1].trial_id for decision in decisions if decision[0] == "order"} == {"t03", "t06"}


class Recording(TrialScheduler):
    """Lets everybody train, and notes what it is told."""

    def __init__(self) -> None:
        super().__init__(metric="loss", mode="min")
        self.told: list[tuple[str, str, Any]] = []

    def on_trial_add(self, trial: TrialView) -> None:
        self.told.append(("add", trial.trial_id, None))

    def on_trial_start(self, trial: TrialView) -> None:
        self.told.append(("start", trial.trial_id, None))

    def on_trial_result(self, trial: TrialView, result: dict[str, Any]) -> Verdict:
        self.told.append(("result", trial.trial_id, dict(result)))
        return self.decide(trial, result)

    def decide(self, trial: TrialView, result: dict[str, Any]) -> Verdict:
        return Decision.CONTINUE

    def on_checkpoint(self, trial: TrialView, iteration: int) -> None:
        self.told.append(("checkpoint", trial.trial_id, iteration))

    def on_trial_complete(self, trial: TrialView, result: dict[str, Any]) -> None:
        self.told.append(("complete", trial.trial_id, result.get("training_iteration")))

    def on_trial_error(self, trial: TrialView) -> None:
        self.told.append(("error", trial.trial_id, None))

    def on_trial_remove(self, trial: TrialView) -> None:
        self.told.append(("remove", trial.trial_id, None))

    def on_search_end(self) -> None:
        self.told.append(("search end", "", None))


def told(make: Callable[[], TrialScheduler] = Recording, **how: Any) -> list[tuple[str, str, Any]]:
    scheduler: Any = ScriptedLife(make, **how).play().scheduler
    found: list[tuple[str, str, Any]] = scheduler.told
    return found


def of(name: str, what: str) -> list[Any]:
    return [detail for kind, trial, detail in told() if (kind, trial) == (what, name)]


def iterations(name: str) -> list[int]:
    return [result["training_iteration"] for result in of(name, "result")]


def test_every_trial_is_added_once_before_all_else_and_no_result_is_told_twice() -> None:
    story = told()
    names = [trial for kind, trial, _ in story if kind == "add"]
    assert names == [f"t{number:02d}" for number in range(TRIALS)]
    for name in names:
        assert next(kind for kind, trial, _ in story if trial == name) == "add"
        assert len(set(iterations(name))) == len(iterations(name))
    assert [kind for kind, _, _ in story].count("search end") == 1


def test_never_more_train_at_a_time_than_there_is_room_for() -> None:
    running: set[str] = set()
    most = 0
    for kind, name, _ in told():
        if kind == "start":
            running.add(name)
        elif kind in ("complete", "error", "remove"):
            running.discard(name)
        most = max(most, len(running))
    assert most == ROOM


def test_trials_do_what_the_script_says() -> None:
    whole = list(range(1, ITERATIONS + 1))
    assert iterations("t00") == whole and of("t00", "complete") == [ITERATIONS]
    assert len(of("t01", "start")) == 2 and iterations("t01") == whole, "what it repeated is not told"
    assert len(told(crash=False)) == len(told()) - 1
    assert iterations("t02") == [1, 2] and len(of("t02", "error")) == 1
    assert len(of("t05", "error")) == 1 and len(of("t05", "start")) == 2 and iterations("t05") == whole
    assert iterations("t08") == [1, 2, 3, 4, 5] and len(of("t08", "remove")) == 1
    assert iterations("t09") == [1, 2, 3, 4, 5, 6] and of("t09", "complete") == [7], "a stopper ended it"
    assert of("t12", "checkpoint") == [3, 6, 9] and of("t13", "checkpoint") == [4, 8], "published a turn late"


def test_metrics_are_missing_nan_infinite_and_texts_now_and_then() -> None:
    def losses(name: str) -> list[Any]:
        return [result.get("loss") for result in of(name, "result")]

    assert [loss is None for loss in losses("t03")] == [True, False] * 4 + [True]
    assert [loss != loss for loss in losses("t04")] == [False] * 2 + [True] * 7
    assert losses("t06")[1] == "not a number"
    assert set(losses("t07")) == {math.inf} == {loss_of(7, 1)}


def test_a_population_is_there_before_one_of_it_goes_on() -> None:
    class Population(Recording):
        population = True

    before = [trial for kind, trial, _ in told(Population) if kind in ("add", "start")]
    assert before[: FIRST_TRIALS + 1] == [*(f"t{number:02d}" for number in range(FIRST_TRIALS)), "t00"]


def test_it_is_exchanged_before_the_call_that_is_said() -> None:
    whole = ScriptedLife(Recording).play()
    made: list[TrialScheduler] = []

    def make() -> TrialScheduler:
        made.append(Recording())
        return made[-1]

    cut = ScriptedLife(make, cut=whole.calls // 2).play()
    assert len(made) == 2 and cut.scheduler is made[1]
    first: Any = made[0]
    rest: Any = made[1]
    assert 0 < len(first.told) < len(rest.told)
    assert repr(rest.told[: len(first.told)]) == repr(first.told), "it has the state"
    assert cut.decisions == whole.decisions and cut.calls == whole.calls


def test_a_trial_that_waits_is_ended_by_an_order() -> None:
    class Ordering(Recording):
        """Trial 0 waits; when trial 10 comes, it is ended."""

        ordered = False

        def decide(self, trial: TrialView, result: dict[str, Any]) -> Verdict:
            return Decision.PAUSE if trial.trial_id == "t00" else Decision.CONTINUE

        def choose_trial_to_run(self, pending: Sequence[T]) -> T | None:
            return next((trial for trial in pending if trial.trial_id != "t00" or trial.status == "PENDING"), None)

        def orders(self) -> list[Directive]:
            if self.ordered or ("add", "t10", None) not in self.told:
                return []
            self.ordered = True
            return [Directive("t00", Decision.STOP)]

    life = ScriptedLife(Ordering).play()
    assert [decision[1] for decision in life.decisions if decision[0] == "order"] == [Directive("t00", Decision.STOP)]
    first = life.trials[0]
    assert first.status == "TERMINATED"


@pytest.mark.parametrize(
    ("verdict", "message"),
    [
        (Reallocate({"cpu": "two"}), "resources are numbers"),  # type: ignore[dict-item]
        (Exploit("t00", None), "an Exploit has the whole config"),  # type: ignore[arg-type]
        (None, "returns a Decision, an Exploit or a Reallocate, or one of them Reasoned, not None"),
    ],
)
def test_an_answer_that_cannot_be_carried_out_is_an_obligation_that_is_not_met(verdict: Any, message: str) -> None:
    class Answering(Recording):
        def decide(self, trial: TrialView, result: dict[str, Any]) -> Verdict:
            return verdict

    with pytest.raises(AssertionError, match=message):
        ScriptedLife(Answering).play()


def test_so_many_turns_may_be_asked_for() -> None:
    first = ScriptedLife(Recording).play(turns=2)
    whole = ScriptedLife(Recording).play()
    assert 0 < len(first.decisions) < len(whole.decisions)
    assert first.decisions == whole.decisions[: len(first.decisions)]


def test_a_run_that_never_comes_to_an_end_is_an_obligation_that_is_not_met() -> None:
    class Restless(Recording):
        """Orders clones of who waits for ever, so that something always changes."""

        def decide(self, trial: TrialView, result: dict[str, Any]) -> Verdict:
            return Decision.PAUSE

        def choose_trial_to_run(self, pending: Sequence[T]) -> T | None:
            return next((trial for trial in pending if trial.status == "PENDING"), None)

        def on_idle(self) -> None:
            self.told.append(("idle", "", None))

        def orders(self) -> list[Directive]:
            return [Directive("t00", Exploit("t01", {}))] if self.told and self.told[-1][0] == "idle" else []

    with pytest.raises(AssertionError, match="the trials come to an end"):
        ScriptedLife(Restless).play()


def test_those_who_wait_are_read_when_they_are_given_and_not_kept() -> None:
    trials = [TrialStub("a"), TrialStub("b"), TrialStub("c")]
    view = PendingView(trials)
    assert (len(view), view[0], view[-1], view[1:], list(view)) == (3, trials[0], trials[2], trials[1:], trials)
    trials.pop()
    assert len(view) == 2, "a live view"
    view.outdated = True
    for read in (lambda: len(view), lambda: view[0], lambda: list(view)):
        with pytest.raises(AssertionError, match="and not kept"):
            read()
