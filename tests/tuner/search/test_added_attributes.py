"""What a user's subclass keeps in attributes of its own: in the state, and at a replay."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any
from urllib.parse import quote

import cloudpickle
import pytest

import tuner as tune
from tuner.search import BasicVariantGenerator, ConcurrencyLimiter, Searcher
from tuner.search.added_attributes import added_attributes
from tuner.search.hyperopt import HyperOptSearch
from tuner.search.optuna import OptunaSearch

SPACE = {"x": tune.uniform(0, 5)}


def counting(cls: type[Searcher]) -> Any:
    class Counting(cls):  # type: ignore[misc, valid-type]
        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            self.calls, self._lock = 0, threading.Lock()

        def suggest(self, trial_id: str) -> Any:
            self.calls += 1
            return super().suggest(trial_id)

    return Counting


def ready(searcher: Searcher) -> Any:
    searcher.set_search_properties("loss", "min", SPACE, num_samples=9, seed=3)
    return searcher


@pytest.mark.parametrize("cls", [BasicVariantGenerator, OptunaSearch, HyperOptSearch])
def test_only_what_a_subclass_adds_and_can_be_pickled_is_in_the_state(cls: type[Searcher]) -> None:
    if cls is HyperOptSearch:
        pytest.importorskip("hyperopt", reason="hyperopt is not installed: pip install hyperopt")
    ours, theirs = ready(cls()), ready(counting(cls)())
    for searcher in (ours, theirs):
        searcher.suggest("a")
        searcher.on_trial_complete("a", {"loss": 1.0, "training_iteration": 1})
        searcher.suggest("b")
    assert added_attributes(ours) == {} and added_attributes(theirs) == {"calls": 2}
    assert "attributes of a subclass" not in ours.get_state()
    again = ready(counting(cls)())
    again.set_state(cloudpickle.loads(cloudpickle.dumps(theirs.get_state())))
    assert again.calls == 2 and again.suggest("c") == theirs.suggest("c")


def test_a_subclass_of_a_wrapper_keeps_its_own_beside_the_searcher() -> None:
    limiter = ready(counting(ConcurrencyLimiter)(searcher=BasicVariantGenerator(), max_concurrent=2))
    limiter.suggest("a")
    assert added_attributes(limiter) == {"calls": 1}


def test_a_state_of_before_is_taken_up() -> None:
    state = ready(BasicVariantGenerator()).get_state()
    searcher = ready(counting(BasicVariantGenerator)())
    searcher.set_state(state)
    assert searcher.calls == 0


@pytest.mark.parametrize("mixed_in", [False, True])
def test_a_replay_asks_who_has_a_suggest_of_its_own(mixed_in: bool) -> None:
    made = counting(BasicVariantGenerator)
    searcher = ready((type("Mixed", (made, BasicVariantGenerator), {}) if mixed_in else made)())
    config = ready(BasicVariantGenerator()).suggest("a")
    assert searcher.replay_suggest("a", config) is True and searcher.calls == 1
    assert searcher.replay_suggest("b", {"x": -1.0}) is False and searcher.calls == 2


def test_who_defines_a_replay_too_is_asked_that() -> None:
    class Own(BasicVariantGenerator):
        def suggest(self, trial_id: str) -> Any:
            raise AssertionError("not at a replay")

        def replay_suggest(self, trial_id: str, config: dict[str, Any]) -> bool:
            return True

    assert ready(Own()).replay_suggest("a", {"x": 1.0})


def test_what_a_storage_of_the_users_has_is_not_asked_for_a_second_time(tmp_path: Path) -> None:
    def made() -> Any:
        return ready(counting(OptunaSearch)(storage=f"sqlite:///{quote(str(tmp_path))}/s.db", study_name="s"))

    first = made()
    configs = {name: first.suggest(name) for name in ("a", "b")}
    first.on_trial_complete("a", {"loss": 1.0, "training_iteration": 1})
    second = made()
    assert [second.replay_suggest(name, config) for name, config in configs.items()] == [True, True]
    assert second.calls == 2 and second.suggest("c") not in configs.values()
    import optuna

    assert len(optuna.load_study(study_name="s", storage=f"sqlite:///{quote(str(tmp_path))}/s.db").trials) == 3
