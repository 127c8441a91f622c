"""Conformance suites: what every plug-in must do, run over yours.

    def test_my_scheduler() -> None:
        check_scheduler(lambda: MyScheduler(metric="loss", mode="min"))

    def test_my_searcher() -> None:
        check_searcher(lambda: MySearcher(metric="loss", mode="min"))

Each check plays a scripted life and raises AssertionError that says which obligation was not met. `prove` is for one's
own training: it is killed again and again, and has to end as if it had not been.

    def test_my_training_continues() -> None:
        prove(train, config={"lr": 0.1}, kills=3)
"""

from __future__ import annotations

from tuner.testing.proving import prove
from tuner.testing.schedulers import check_scheduler
from tuner.testing.scripted_life import TrialStub
from tuner.testing.searchers import check_searcher

__all__ = ["TrialStub", "check_scheduler", "check_searcher", "prove"]
