"""The adapter for searchers of other libraries, with the lightest of them."""

from __future__ import annotations

import copy
import pickle
import sys
from types import SimpleNamespace
from typing import Any

import cloudpickle
import pytest

import tuner as tune
from tests.tuner.search.library_harness import opened
from trainables.errors import MissingExtraError
from tuner.error import SettingError
from tuner.search import create_searcher
from tuner.search.hyperopt import HyperOptSearch

pytest.importorskip("hyperopt", reason="hyperopt is not installed: pip install hyperopt")

SPACE = {"x": tune.uniform(0, 1), "m": {"n": tune.randint(0, 9)}}


def make(**kwargs: Any) -> HyperOptSearch:
    return HyperOptSearch(**{"metric": "loss", "mode": "min", "n_initial_points": 2, **kwargs})


def test_a_missing_package_is_named_when_the_searcher_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hyperopt", None)
    with pytest.raises(ImportError, match=r'hyperopt is not installed: pip install .*\[hyperopt\]"') as raised:
        create_searcher("hyperopt")
    assert isinstance(raised.value, MissingExtraError)


def test_the_state_is_the_log_of_what_was_asked_and_told() -> None:
    searcher: Any = opened(make(points_to_evaluate=[{"x": 0.5, "m": {"n": 3}}]), SPACE)
    searcher.suggest("a")
    searcher.on_trial_complete("a", {"loss": 2.0})
    searcher.suggest("b")
    searcher.on_trial_complete("b", error=True)
    kept = searcher.unwrapped.get_state()
    (first, second, third, fourth) = kept["log"]
    assert first == ("asked", "a", {"x": 0.5, "m/n": 3}, False) and second == ("told", 0, 2.0)
    assert third[:2] == ("asked", "b") and third[3] is True and fourth == ("told", 1, None)
    assert len(pickle.dumps(kept)) < 1000


def test_what_is_stored_with_the_experiment_has_no_optimizer_in_it() -> None:
    searcher = opened(make(), SPACE)
    searcher.suggest("a")
    for copied in (cloudpickle.loads(cloudpickle.dumps(searcher)), copy.deepcopy(searcher)):
        assert copied.unwrapped._optimizer is None
        assert copied.suggest("b") == cloudpickle.loads(cloudpickle.dumps(searcher)).suggest("b")


def test_the_seed_is_the_searchers_else_the_experiments() -> None:
    own = [make(random_state_seed=1), make(random_state_seed=1), make(random_state_seed=2), make(), make()]
    first = [opened(searcher, SPACE).suggest("a") for searcher in own]
    assert first[0] == first[1] and first[3] == first[4] and len({str(each) for each in first}) == 3


def test_earlier_trials_are_learned_from() -> None:
    searcher: Any = opened(make(), SPACE)

    def trial(config: Any, **result: Any) -> Any:
        return SimpleNamespace(trial_id="old", config=config, last_result=result)

    assert searcher.learn_from(trial({"x": 0.1, "m": {"n": 1}, "more": 3}, loss=1.0)) is None
    assert searcher.learn_from(trial({"x": 0.1, "m": {"n": 1}})) == "old has no loss"
    assert "x=5 is not a value of" in searcher.learn_from(trial({"x": 5, "m": {"n": 1}}, loss=1.0))
    searcher.add_evaluated_point({"x": 0.2, "m": {"n": 2}}, 3.0)
    searcher.add_evaluated_point({"x": 0.2, "m/n": 3}, 3.0, error=True)
    with pytest.raises(SettingError, match="add_evaluated_point: it has no m"):
        searcher.add_evaluated_point({"x": 0.2}, 3.0)
    assert searcher.unwrapped._live()._trials.losses() == [1.0, 3.0, None]


def test_it_needs_a_space_a_metric_and_a_mode() -> None:
    with pytest.raises(SettingError, match="HyperOptSearch has no search space: give it a space"):
        make().suggest("a")
    with pytest.raises(SettingError, match="HyperOptSearch needs metric= and mode="):
        HyperOptSearch(SPACE).suggest("a")
    with pytest.raises(SettingError, match="space=3 is not accepted; it is a dict of domains"):
        make(space=3)


def test_an_experiment_is_searched_with_it(tmp_path: Any) -> None:
    def train(config: Any) -> None:
        tune.report({"loss": (config["x"] - 0.3) ** 2})

    def run(name: str, **kwargs: Any) -> Any:
        return tune.run(
            train, config=SPACE, name=name, storage_path=tmp_path, num_samples=6, executor="inline", verbose=0,
            **kwargs,
        )  # fmt: skip

    first = run("first", search_alg=make())
    assert [trial.status for trial in first.trials] == ["TERMINATED"] * 6
    searcher = make()
    searcher.warm_start = first
    run("second", search_alg=searcher)
    assert len(searcher._values) == 12
