"""The shipped suite for schedulers finds the faults of faulty ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.tuner.testing.own_schedulers import Counting
from tuner.schedulers import (
    Decision,
    TrialScheduler,
    TrialView,
)
from tuner.schedulers.base import Directive, Exploit, T, Verdict
from tuner.testing import check_scheduler


class Forgetful(Counting):
    def get_state(self) -> dict[str, Any]:
        return {}


class Keeping(Counting):
    def on_trial_add(self, trial: TrialView) -> None:
        self.trial = trial


class Writing(Counting):
    def on_trial_result(self, trial: TrialView, result: dict[str, Any]) -> Decision:
        result["seen"] = True
        return Decision.CONTINUE


class Stalling(Counting):
    def choose_trial_to_run(self, pending: Sequence[T]) -> T | None:
        return next((trial for trial in pending if trial.status == "PENDING"), None)

    def on_trial_result(self, trial: TrialView, result: dict[str, Any]) -> Decision:
        return Decision.PAUSE


class Choosy(Counting):
    def choose_trial_to_run(self, pending: Sequence[T]) -> T | None:
        self.count += 1
        return pending[self.count % len(pending)] if pending else None


class Hoarding(Counting):
    def __init__(self) -> None:
        super().__init__()
        self.pending: Sequence[Any] = ()

    def choose_trial_to_run(self, pending: Sequence[T]) -> T | None:
        assert len(self.pending) < 99
        self.pending = pending
        return pending[0] if pending else None


class Talking(Counting):
    def on_trial_result(self, trial: TrialView, result: dict[str, Any]) -> Decision:
        return "STOP"  # type: ignore[return-value]


class Ordering(Counting):
    what: Any = Decision.STOP
    whom = "t99"

    def orders(self) -> list[Directive]:
        return [Directive(self.whom, self.what)] if self.count == 3 else []


class Resuming(Ordering):
    what = Decision.CONTINUE
    whom = "t00"


class Confused(Counting):
    def on_trial_result(self, trial: TrialView, result: dict[str, Any]) -> Verdict:
        return Exploit("nobody", {})


class Restarting(Counting):
    """Takes an attempt for a trial."""

    def on_trial_start(self, trial: TrialView) -> None:
        self.count += 1

    def on_trial_result(self, trial: TrialView, result: dict[str, Any]) -> Decision:
        return Decision.STOP if self.count >= 5 else Decision.CONTINUE


class Directed(Counting):
    def on_trial_result(self, trial: TrialView, result: dict[str, Any]) -> Decision:
        value = result.get("loss", 0.0)
        return Decision.STOP if isinstance(value, float) and value > 4 else Decision.CONTINUE


def test_a_scheduler_of_ones_own_needs_one_method() -> None:
    check_scheduler(Counting)


@pytest.mark.parametrize(
    ("make", "obligation"),
    [
        (Forgetful, "goes on from its state"),
        (Keeping, "keeps trial_ids"),
        (Writing, "are not changed"),
        (Directed, "nested|min of x"),
        (Stalling, "nobody waits for ever"),
        (Choosy, "chooses the same"),
        (Hoarding, "and not kept"),
        (Talking, "not 'STOP'"),
        (Ordering, "a trial that there is, not 't99'"),
        (Resuming, "an order is STOP or an Exploit"),
        (Confused, "a donor is a trial that there is"),
        (Restarting, "begins again"),
    ],
)
def test_the_suite_finds_faults(make: Callable[[], TrialScheduler], obligation: str) -> None:
    with pytest.raises(AssertionError, match=obligation):
        check_scheduler(make)
