"""New trials: when a searcher is asked, what is made of its answer, and what is refused."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tuner as tune
from tests.tuner.driver.harness import DriverHarness, Proposer
from trainables import tagged
from tuner.driver.plugins import TrialSource
from tuner.error import ResourceError, SerializationError, SettingError
from tuner.experiment import events as ev
from tuner.experiment.blobs import Blobs
from tuner.experiment.naming import TrialNames
from tuner.experiment.state import ExperimentState
from tuner.schedulers import FIFOScheduler, ResourceChangingScheduler
from tuner.search import ConcurrencyLimiter, Searcher


class Proposes(Searcher):
    """Says the same again and again, and writes down when it is asked and told."""

    def __init__(self, *what: Any) -> None:
        super().__init__("accuracy", "max")
        self.what = list(what)
        self.calls: list[str] = []

    def suggest(self, trial_id: str) -> Any:
        self.calls.append("ask")
        return self.what.pop(0) if len(self.what) > 1 else self.what[0]

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        self.calls.append("tell")


def source_of(searcher: Searcher, **more: Any) -> TrialSource:
    settings: dict[str, Any] = {
        "space": {}, "num_samples": 3, "prefix": "ab", "trainable_name": "train",
        "names": TrialNames(None, None), "blobs": None, **more,
    }  # fmt: skip
    return TrialSource(searcher, settings.pop("scheduler", FIFOScheduler()), **settings)


def state_of(root: Path, *facts: ev.AnyFact) -> ExperimentState:
    state = ExperimentState(root)
    for fact in facts:
        state.apply(fact)
    return state


def test_a_config_becomes_a_trial_with_the_next_number(tmp_path: Path) -> None:
    source = source_of(Proposer(2), space={"x": tune.uniform(0, 9), "depth": 4})
    state = state_of(tmp_path)
    for number in range(2):
        fact = source.create(state)
        assert isinstance(fact, ev.TrialCreated)
        assert (fact.index, fact.trial, fact.name) == (number, f"ab_0000{number}", f"train_ab_0000{number}")
        assert tagged.loads(bytes(fact.config)) == {"x": number + 1, "depth": 4}, "constants of the space go in"
        assert tagged.loads(bytes(fact.evaluated)) == {"x": number + 1}, "and are not what was searched"
        state.apply(fact)
    assert source.create(state) == ev.SearchEnded(3)


def test_users_names_and_resources_go_into_the_fact(tmp_path: Path) -> None:
    source = source_of(
        Proposer(),
        names=TrialNames(lambda trial: f"x={trial.config['x']}", lambda trial: f"dir{trial.index}_{trial.trial_id}"),
        resources_for=lambda config: {"cpu": float(config["x"])},
    )
    fact = source.create(state_of(tmp_path))
    assert isinstance(fact, ev.TrialCreated)
    assert (fact.name, fact.dirname, fact.resources) == ("x=1", "dir0_ab_00000", {"cpu": 1.0})


def test_what_can_never_run_is_refused_before_there_is_a_trial(tmp_path: Path) -> None:
    def refuses(config: Any) -> dict[str, float]:
        raise ResourceError("no host has that")

    state = state_of(tmp_path)
    with pytest.raises(ResourceError):
        source_of(Proposer(), resources_for=refuses).create(state)
    assert len(state.trials) == 0


def test_the_scheduler_may_change_the_first_config_and_its_keys_count_as_searched(tmp_path: Path) -> None:
    class Perturbs(FIFOScheduler):
        def first_config(self, config: dict[str, Any]) -> dict[str, Any]:
            return {**config, "rate": 0.5}

    fact = source_of(Proposer(), space={"x": tune.uniform(0, 9)}, scheduler=Perturbs()).create(state_of(tmp_path))
    assert isinstance(fact, ev.TrialCreated)
    assert tagged.loads(bytes(fact.config)) == {"x": 1, "rate": 0.5}
    assert tagged.loads(bytes(fact.evaluated)) == {"x": 1, "rate": 0.5}


class Changes(FIFOScheduler):
    changed_params = ("rate", "opt", "net/width", "absent")


@pytest.mark.parametrize("wrapped", [False, True])
def test_what_a_scheduler_changes_later_counts_as_searched_although_it_is_fixed(tmp_path: Path, wrapped: bool) -> None:
    space = {"x": tune.uniform(0, 9), "rate": 0.5, "opt": {"name": "sgd"}, "net": {"width": 4, "depth": 2}, "rates": 1}
    scheduler = ResourceChangingScheduler(Changes()) if wrapped else Changes()
    fact = source_of(Proposer(), space=space, scheduler=scheduler).create(state_of(tmp_path))
    assert isinstance(fact, ev.TrialCreated)
    assert tagged.loads(bytes(fact.evaluated)) == {"x": 1, "rate": 0.5, "opt/name": "sgd", "net/width": 4}


def test_none_is_not_now_and_finished_is_never_again(tmp_path: Path) -> None:
    searcher = Proposes(None, {"x": 1}, Searcher.FINISHED)
    source, state = source_of(searcher), state_of(tmp_path)
    assert source.create(state) is None and source.more_to_come(state)
    created = source.create(state)
    assert isinstance(created, ev.TrialCreated)
    state.apply(created)
    ended = source.create(state)
    assert ended == ev.SearchEnded(3)
    state.apply(ended)
    assert source.create(state) is None and not source.more_to_come(state)
    assert searcher.calls == ["ask"] * 3, "who has ended is not asked again"


@given(ended_with=st.none() | st.integers(-1, 6), wanted=st.integers(-1, 6), stopped=st.booleans())
def test_a_search_that_ended_is_asked_again_only_for_more_than_there_were_to_be(
    ended_with: int | None, wanted: int, stopped: bool
) -> None:
    source = source_of(Proposer(), num_samples=wanted)
    source.stopped = stopped
    state = state_of(Path("nowhere"), *([] if ended_with is None else [ev.SearchEnded(ended_with)]))
    endless_now = wanted < 0
    assert source.more_to_come(state) == (not stopped and (ended_with is None or endless_now or wanted > ended_with))


def test_a_population_is_waited_for_only_where_there_is_one_and_it_has_an_end(tmp_path: Path) -> None:
    class Compares(FIFOScheduler):
        population = True

    state = state_of(tmp_path)
    assert source_of(Proposer(), scheduler=Compares()).wants_population(state)
    assert not source_of(Proposer(), scheduler=Compares(), num_samples=-1).wants_population(state)
    assert not source_of(Proposer()).wants_population(state)
    state.apply(ev.SearchEnded(3))
    assert not source_of(Proposer(), scheduler=Compares()).wants_population(state)


def test_how_many_there_will_be_is_what_the_searcher_knows(tmp_path: Path) -> None:
    class Knows(Proposer):
        total: Any = 2

    state = state_of(tmp_path)
    source = source_of(Knows(2))
    assert source.total_samples == 2 and not source.all_created(state)
    for _ in range(2):
        fact = source.create(state)
        assert fact is not None
        state.apply(fact)
    assert source.all_created(state)
    unknown = source_of(Proposer(2))
    assert unknown.total_samples == -1 and not unknown.all_created(state)


@pytest.mark.parametrize("what", [3, "lr=1", [("lr", 1)], ("FINISHED",), False])
@pytest.mark.parametrize("wrap", [lambda searcher: searcher, lambda searcher: ConcurrencyLimiter(searcher, 2)])
def test_a_suggestion_that_is_no_config_names_the_searcher_and_what_it_returned(
    tmp_path: Path, what: Any, wrap: Any
) -> None:
    with pytest.raises(SettingError) as caught:
        source_of(wrap(Proposes(what))).create(state_of(tmp_path))
    assert str(caught.value).startswith(f"Proposes.suggest('ab_00000') returned {what!r}, which is not accepted")


def test_a_value_that_cannot_be_written_down_is_named_by_its_key(tmp_path: Path) -> None:
    source = source_of(Proposes({"model": {"lock": threading.Lock()}}), blobs=Blobs(tmp_path / "blobs"))
    with pytest.raises(SerializationError, match=r"config value .*model.*lock.*Create it inside the trainable"):
        source.create(state_of(tmp_path))


class Unreadable:
    """Can be pickled, and not unpickled."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


def test_a_value_that_cannot_be_read_back_is_refused_before_a_trial_has_it(tmp_path: Path) -> None:
    source = source_of(Proposes({"x": Unreadable()}), blobs=Blobs(tmp_path / "blobs"))
    with pytest.raises(SerializationError, match="config value .*x"):
        source.create(state_of(tmp_path))


# --- in a run ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_samples", [4, -1])
def test_inline_asks_for_a_config_when_the_trial_before_has_ended(tmp_path: Path, num_samples: int) -> None:
    def train(config: dict[str, Any]) -> None:
        tune.report({"accuracy": 0.5})

    searcher = Proposes(*[{"x": 1}] * 4, Searcher.FINISHED)
    tune.run(
        train, storage_path=str(tmp_path), name="e", executor="inline", verbose=0, search_alg=searcher,
        num_samples=num_samples,
    )  # fmt: skip
    assert searcher.calls[:8] == ["ask", "tell"] * 4


def test_a_stopper_that_stops_everything_ends_the_search(tmp_path: Path) -> None:
    harness = DriverHarness(tmp_path / "e", slots=1)
    harness.plugins.source.num_samples = 9
    harness.plugins.source.stopped = True
    harness.turn()
    assert harness.executor.launched == [] and not harness.plugins.source.more_to_come(harness.state)
