"""Searchers of other libraries, driven by hand."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import cloudpickle
from hypothesis import strategies as st

import tuner as tune
from tuner.search import Searcher, as_searcher
from tuner.search.fitting import misfit
from tuner.search.resolve import Space

FLAT: dict[str, Any] = {
    "u": tune.uniform(-1, 1),
    "qu": tune.quniform(0, 0.7, 0.1),
    "model": {"lu": tune.loguniform(1e-4, 1), "qlu": tune.qloguniform(0.1, 10, 0.1), "constant": 17},
    "n": tune.randn(3, 2),
    "qn": tune.qrandn(0, 1, 0.25),
    "i": tune.randint(0, 4),
    "one": tune.randint(5, 6),
    "qi": tune.qrandint(3, 21, 4),
    "li": tune.lograndint(1, 100),
    "qli": tune.qlograndint(8, 64, 8),
    "c": tune.choice(["a", 1, None]),
    "objects": tune.choice([{"k": 1}, [2, 3], len]),
    "same": tune.choice([1, True, 1.0]),
    "list": [tune.uniform(0, 1), ("fixed", tune.randint(0, 3))],
    "function": tune.sample_from(lambda spec: spec.config.u * 2),
}
"""Every kind of domain, none of which hangs on another."""
BRANCHED: dict[str, Any] = FLAT | {
    "branch": tune.choice([{"kind": "x"}, {"kind": "y", "deep": {"z": tune.uniform(5, 6)}}, tune.randint(3, 9)])
}


def check_config(space: dict[str, Any], config: Any) -> None:
    """Every value is one of its domain: on the grid of its multiples, and of the right type."""
    assert isinstance(config, dict)
    assert misfit(Space(space).root, config) is None, config
    for key, value in config.items():
        domain = space[key]
        if isinstance(domain, dict):
            check_config(domain, value)
        elif isinstance(domain, tune.search.sample.Integer):
            assert type(value) is int and (value - domain.least) % (domain.q or 1) == 0, (key, value)
        elif isinstance(domain, tune.search.sample.Float):
            assert type(value) is float, (key, value)
            assert domain.q is None or math.isclose(value, round(value / domain.q) * domain.q, abs_tol=1e-9), key


def numbers() -> st.SearchStrategy[Any]:
    low = st.integers(-50, 50)
    width = st.integers(1, 60)
    floats = st.builds(lambda a, w: tune.uniform(a, a + w), low, width)
    logs = st.builds(lambda a, w: tune.loguniform(10.0**-a, 10.0 ** (w - a)), st.integers(0, 6), st.integers(1, 9))
    stepped = st.builds(
        lambda a, w, q: tune.quniform(a * q, (a + w) * q, q), low, width, st.sampled_from([0.1, 0.25, 3])
    )
    ints = st.builds(lambda a, w: tune.randint(a, a + w), low, width)
    multiples = st.builds(lambda a, w, q: tune.qrandint(a, a + w + q, q), low, width, st.integers(1, 7))
    log_ints = st.builds(lambda a, w: tune.lograndint(a, a + w), st.integers(1, 50), width)
    normal = st.builds(tune.randn, st.floats(-5, 5), st.floats(0.1, 3))
    return st.one_of(floats, logs, stepped, ints, multiples, log_ints, normal)


def spaces(*, branches: bool) -> st.SearchStrategy[dict[str, Any]]:
    """Random spaces, nested; with conditional places or not."""
    leaf = numbers() | st.lists(st.sampled_from([1, 2.5, "a", None]), min_size=1, max_size=3, unique=True).map(
        tune.choice
    )
    inner = st.dictionaries(st.sampled_from("xyz"), leaf, min_size=1, max_size=2)
    place = leaf | inner
    if branches:
        place |= st.lists(inner | numbers(), min_size=1, max_size=3).map(tune.choice)
    return st.dictionaries(st.sampled_from("abcd"), place, max_size=4).map(
        lambda space: space | {"s": tune.uniform(0, 1)}
    )


def opened(searcher: Searcher, space: Any = None, samples: int = 100) -> Searcher:
    goal = {} if searcher.metric is not None else {"metric": "loss", "mode": "min"}
    return as_searcher(searcher, {} if space is None else space, num_samples=samples, seed=5, **goal)


def loss_of(config: Any) -> float:
    """Something to learn: numbers near 0 are good."""
    if isinstance(config, (dict, list, tuple)):
        return sum(map(loss_of, config.values() if isinstance(config, dict) else config))
    return min(abs(float(config)), 100.0) if isinstance(config, (int, float)) else 0.0


class Life:
    """Trials, two at a time; every fifth fails, every seventh reports NaN, and of those that failed some come back."""

    def __init__(self, searcher: Searcher) -> None:
        self.searcher = searcher
        self.configs: list[dict[str, Any]] = []
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def step(self) -> None:
        number = len(self.configs)
        config = self.searcher.suggest(f"t{number}")
        assert isinstance(config, dict), f"suggestion {number}: {config!r}"
        self.configs.append(copy.deepcopy(config))
        self.calls.append(("replay_suggest", (f"t{number}", copy.deepcopy(config))))
        if number:
            self._end(number - 1)

    def _end(self, number: int) -> None:
        loss = math.nan if number % 7 == 6 else loss_of(self.configs[number])
        failed = number % 5 == 3
        self._tell(number, None if failed else {"loss": loss, "training_iteration": 1}, failed)
        if number % 10 == 8:
            self._tell(number, {"loss": loss, "training_iteration": 2}, False)

    def _tell(self, number: int, result: dict[str, Any] | None, error: bool) -> None:
        self.calls.append(("on_trial_complete", (f"t{number}", result, error)))
        self.searcher.on_trial_complete(f"t{number}", result, error)


def check_prefixes(make: Callable[[], Searcher], space: Any = None, *, trials: int = 12) -> None:
    """Cut anywhere, a searcher goes on with the same suggestion: from its state, and from the journal's calls."""
    life, states = Life(opened(make(), space)), []
    for _ in range(trials):
        states.append((cloudpickle.dumps(life.searcher.get_state()), len(life.calls)))
        life.step()
    for number, (state, calls) in enumerate(states):
        stored, replayed = opened(make(), space), opened(make(), space)
        stored.set_state(cloudpickle.loads(state))
        assert stored.suggest(f"t{number}") == life.configs[number], f"from the state, suggestion {number}"
        if number % 3 == 0:
            for method, arguments in copy.deepcopy(life.calls[:calls]):
                assert getattr(replayed, method)(*arguments) in (True, None)
            assert replayed.suggest(f"t{number}") == life.configs[number], f"after a replay, suggestion {number}"


def learned(searcher: Searcher, trials: int, *, at_once: int = 1) -> float:
    """The best value of Branin's function after so many trials; its minimum is 0.398."""
    space = {"x": tune.uniform(-5, 10), "y": tune.uniform(0, 15)}
    asked, best, live = opened(searcher, space, trials), math.inf, []
    for number in range(trials):
        live.append((f"t{number}", asked.suggest(f"t{number}")))
        if len(live) == at_once:
            name, config = live.pop(0)
            loss = branin(config["x"], config["y"])
            asked.on_trial_complete(name, {"loss": loss, "training_iteration": 1})
            best = min(best, loss)
    return best


def branin(x: float, y: float) -> float:
    return (
        (y - 5.1 / (4 * math.pi**2) * x * x + 5 / math.pi * x - 6) ** 2
        + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x)
        + 10
    )
