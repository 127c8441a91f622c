"""Repeats of a config, whose mean is what the searcher hears."""

from __future__ import annotations

import math

from tests.tuner.search.searchers import Noting
from tuner.search import Repeater
from tuner.search.repeater import TRIAL_INDEX


def test_repeats_share_a_config_and_report_their_mean() -> None:
    inner = Noting()
    searcher = Repeater(inner, repeat=3)
    configs = [searcher.suggest(name) for name in "abcd"]
    assert [(c["x"], c[TRIAL_INDEX]) for c in configs if isinstance(c, dict)] == [
        (1.0, 0),
        (1.0, 1),
        (1.0, 2),
        (2.0, 0),
    ]
    searcher.on_trial_result("a", {"loss": 100.0, "training_iteration": 1})
    for name, loss in (("c", 1.0), ("a", math.nan), ("b", 5.0)):
        assert inner.told == []
        searcher.on_trial_complete(name, {"loss": loss, "training_iteration": 2})
    ((name, result, error),) = inner.told
    assert (name, result["loss"], error) == ("a", 3.0, False)


def test_repeats_that_all_fail_are_a_failure() -> None:
    inner = Noting()
    searcher = Repeater(inner, repeat=2, set_index=False)
    assert [searcher.suggest(name) for name in "ab"] == [{"x": 1.0, "nested": {"y": [1.0]}}] * 2
    for name in "ab":
        searcher.on_trial_complete(name, error=True)
    assert inner.told == [("a", None, True)]
