"""`check_searcher`: the conformance suite for searchers."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from typing import Any

import cloudpickle

from tuner.search import as_searcher
from tuner.search.sample import choice, loguniform, qrandint, sample_from, uniform
from tuner.search.searcher import Searcher
from tuner.search.space import merge_constants

TRIALS, AT_ONCE = 18, 3

SPACE: dict[str, Any] = {
    "x": uniform(-1.0, 1.0),
    "model": {"lr": loguniform(1e-4, 1e-1), "layers": qrandint(2, 8, 2)},
    "optimizer": choice([{"kind": "adam"}, {"kind": "sgd", "momentum": uniform(0.5, 0.99)}]),
    "twice": sample_from(lambda config: config["x"] * 2),
    "epochs": 10,
}
"""Nested, with a branch, a function and a constant."""


def check_searcher(
    make: Callable[[], Searcher], space: Mapping[str, Any] | Callable[..., Any] | None = None, *, replays: bool = True
) -> None:
    """Play a life of eighteen trials with a searcher, and assert its obligations.

    Args:
        make: returns a new searcher, the same each time; it searches `loss` by `min` if it was not told otherwise.
        space: what it is given as `config`; `SPACE` if None, {} for a searcher with a space of its own.
        replays: False for one that cannot be brought back by replaying, but by its state only.

    Raises:
        AssertionError: an obligation of `Searcher` is not met; the message says which.
    """
    played = _Life(make, space).play()
    expected = played.configs
    assert len(expected) == TRIALS, "it suggests as often as it is asked"
    assert _Life(make, space).play().configs == expected, "the same calls give the same suggestions"
    assert _Life(make, space, clobber=True).play().configs == expected, "what it suggested is the caller's"
    assert played.searcher.suggest("late") == Searcher.FINISHED, "after the last sample it is finished"
    assert played.searcher.suggest("later") == Searcher.FINISHED, "and stays so"
    for cut in range(0, TRIALS, 5):
        _check_state(make, space, cut, expected)
        if replays:
            _check_replay(make, space, cut, expected)
    _check_nested_metric(make, space)


class _Life:
    """Trials in threes, some of which fail, come back, or report nothing that can be used."""

    def __init__(
        self,
        make: Callable[[], Searcher],
        space: Any,
        *,
        metric: str = "loss",
        spelling: Callable[[float], dict[str, Any]] | None = None,
        clobber: bool = False,
    ) -> None:
        self._clobber = clobber
        self._make, self._space, self._metric = make, SPACE if space is None else space, metric
        self._spelling = spelling or (lambda loss: {metric: loss})
        self.searcher = self.fresh()
        self.configs: list[dict[str, Any]] = []
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self._live: list[int] = []

    def fresh(self) -> Searcher:
        """A searcher that knows what is searched, and nothing else."""
        made = self._make()
        if made.metric is None and not made.needs_metric:
            return as_searcher(made, self._space, num_samples=TRIALS, seed=7)
        return as_searcher(
            made, self._space, num_samples=TRIALS, metric=made.metric or self._metric, mode=made.mode or "min", seed=7
        )

    def play(self, stop: int = TRIALS) -> _Life:
        while len(self.configs) < stop:
            number = len(self.configs)
            suggestion = self.searcher.suggest(f"t{number}")
            self.searcher.prepare(f"t{number + 1}")
            if suggestion is None:
                assert self._live, "without unfinished trials it has a suggestion, or is finished"
                self._end(self._live.pop(0))
                continue
            assert isinstance(suggestion, dict), f"trial {number}: a suggestion is a dict, not {suggestion!r}"
            config = merge_constants(self._space, suggestion)
            self.configs.append(copy.deepcopy(config))
            self.calls.append(("replay_suggest", (f"t{number}", copy.deepcopy(config)), {}))
            if self._clobber:
                suggestion.clear()
            self._live.append(number)
            for iteration in (1, 2):
                self._tell("on_trial_result", f"t{number}", self._result(number, iteration))
            if len(self._live) == AT_ONCE:
                self._end(self._live.pop(0))
        return self

    def _tell(self, method: str, *arguments: Any, **named: Any) -> None:
        before = copy.deepcopy((arguments, named))
        getattr(self.searcher, method)(*arguments, **named)
        assert repr((arguments, named)) == repr(before), f"{method} does not change what it is told"
        self.calls.append((method, before[0], before[1]))

    def _result(self, number: int, iteration: int, loss: float | None = None) -> dict[str, Any]:
        if loss is None:
            loss = _loss(self.configs[number]) + 1.0 / iteration
        return {"training_iteration": iteration, "note": "text", **self._spelling(loss)}

    def _end(self, number: int) -> None:
        name, last, later = f"t{number}", self._result(number, 2), self._result(number, 3)
        ends: dict[int, dict[str, Any]] = {
            1: {"result": None, "error": True},
            2: {"result": self._result(number, 2, math.nan)},
            3: {"result": {"training_iteration": 2}},
            4: {"result": last, "error": True},
            5: {"result": None},
        }
        self._tell("on_trial_complete", name, **ends.get(number % 7, {"result": last}))
        if number % 7 == 4:  # failed, and continued
            self._tell("on_trial_result", name, later)
            self._tell("on_trial_complete", name, result=later)


def _loss(value: Any) -> float:
    if isinstance(value, (Mapping, list, tuple)):
        return sum(map(_loss, value.values() if isinstance(value, Mapping) else value))
    return float(value) ** 2 if isinstance(value, (int, float)) else float(len(str(value)))


def _check_state(make: Callable[[], Searcher], space: Any, cut: int, expected: list[dict[str, Any]]) -> None:
    life = _Life(make, space).play(cut)
    state = cloudpickle.loads(cloudpickle.dumps(life.searcher.get_state()))
    life.searcher = life.fresh()
    life.searcher.set_state(state)
    assert life.play().configs == expected, f"it goes on from its state as if nothing had been (cut after {cut} trials)"


def _check_replay(make: Callable[[], Searcher], space: Any, cut: int, expected: list[dict[str, Any]]) -> None:
    life = _Life(make, space).play(cut)
    life.searcher = life.fresh()
    for method, arguments, named in copy.deepcopy(life.calls):
        answer = getattr(life.searcher, method)(*arguments, **named)
        if method == "replay_suggest":
            assert answer is True, f"{arguments[0]}: its own suggestion is recognised"
    assert life.play().configs == expected, f"it goes on after a replay as if nothing had been (cut after {cut} trials)"


def _check_nested_metric(make: Callable[[], Searcher], space: Any) -> None:
    if make().metric is not None or not make().needs_metric:
        return  # its metric is its own affair
    spellings: tuple[Callable[[float], dict[str, Any]], ...] = (
        lambda loss: {"eval/loss": loss},
        lambda loss: {"eval": {"loss": loss}},
        lambda loss: {"eval.loss": loss},
    )
    lives = [_Life(make, space, metric="eval/loss", spelling=spelling).play().configs for spelling in spellings]
    assert lives[0] == lives[1] == lives[2], "a nested metric is found however it is spelled"
