"""Plug-ins in words: the same in every process, before and after they were used."""

from __future__ import annotations

from typing import Any

import pytest

from tuner.schedulers import ASHAScheduler, FIFOScheduler
from tuner.search import BasicVariantGenerator, ConcurrencyLimiter, Repeater, Searcher
from tuner.search.described import described
from tuner.stopper import CombinedStopper, DictStopper, FunctionStopper, MaximumIterationStopper, at_most


def ends(trial_id: str, result: dict[str, Any]) -> bool:
    return False


class Own(Searcher):
    def __init__(self, depth: int, client: Any = None) -> None:
        super().__init__()
        self.depth, self._client = depth, client


@pytest.mark.parametrize(
    ("thing", "text"),
    [
        (None, "None"),
        ({"loss": at_most(0.1), "n": 3}, "{'loss': AtMost(limit=0.1), 'n': 3}"),
        (ends, "ends"),
        (FIFOScheduler(), "FIFOScheduler()"),
        (ASHAScheduler(metric="loss", mode="min"), "AsyncHyperBandScheduler()"),
        (ASHAScheduler(max_t=9, brackets=2), "AsyncHyperBandScheduler(max_t=9, brackets=2)"),
        (BasicVariantGenerator(max_concurrent=2), "BasicVariantGenerator(max_concurrent=2)"),
        (ConcurrencyLimiter(Own(3), 2), "ConcurrencyLimiter(searcher=Own(depth=3), max_concurrent=2)"),
        (Repeater(Own(3), 4), "Repeater(searcher=Own(depth=3), repeat=4)"),
        (Own(3, client=object()), "Own(depth=3, client=object())"),
        (MaximumIterationStopper(5), "MaximumIterationStopper(max_iter=5)"),
        (FunctionStopper(ends), "FunctionStopper(function=ends)"),
        (DictStopper({"n": 3}), "DictStopper(criteria={'n': 3})"),
        (
            CombinedStopper(MaximumIterationStopper(5), DictStopper({"n": 3})),
            "CombinedStopper(stoppers=[MaximumIterationStopper(max_iter=5), DictStopper(criteria={'n': 3})])",
        ),
    ],
    ids=lambda thing: type(thing).__name__,
)
def test_a_plug_in_in_words(thing: Any, text: str) -> None:
    assert described(thing) == text


def test_what_is_long_is_cut() -> None:
    assert len(described({str(number): number for number in range(1000)})) == 200
