"""Domains in namespaces, dataclasses and other mappings are searched; where none is searched, one is refused."""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import json
import pickle
import types
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

import tuner as tune
from tests.tuner.search.spaces import LR, Attributes, drawn, trial_config
from tuner.error import SettingError
from tuner.search.bayesopt import BayesOptSearch
from tuner.search.containers import OpenSpace, close, lay_open
from tuner.search.domains import Domain
from tuner.search.hidden_domains import holds_domain
from tuner.search.optuna import OptunaSearch
from tuner.search.resolve import HashDraw, Space


@dataclasses.dataclass
class Args:
    lr: Any = 0.1
    layers: Any = 2


@dataclasses.dataclass(frozen=True)
class Frozen:
    lr: Any = 0.1
    inner: Any = dataclasses.field(default_factory=Args)


@dataclasses.dataclass(frozen=True, slots=True)
class Slots:
    lr: Any = 0.1


@dataclasses.dataclass
class WithInitVar:
    lr: Any
    scale: dataclasses.InitVar[float] = 2.0

    def __post_init__(self, scale: float) -> None:
        self.scaled = (self.lr, scale)


class Pair(NamedTuple):
    lr: Any
    layers: Any = 2


class Strict(dict[str, Any]):
    """A dict of which an attribute that it has not is a KeyError."""

    __getattr__ = dict.__getitem__


class FrozenMapping(Mapping[str, Any]):
    def __init__(self, items: Mapping[str, Any]) -> None:
        self._items = dict(items)

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FrozenMapping) and self._items == other._items


class Fixed(FrozenMapping):
    """A mapping that is always the same."""

    def __init__(self) -> None:
        super().__init__({"lr": LR})

    def __deepcopy__(self, memo: dict[int, Any]) -> Fixed:
        return self


class Holder:
    def __init__(self, value: Any) -> None:
        self.value = value


MADE: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "namespace": (lambda: Namespace(lr=LR, layers=2), lambda lr: Namespace(lr=lr, layers=2)),
    "simple namespace": (lambda: types.SimpleNamespace(lr=LR), lambda lr: types.SimpleNamespace(lr=lr)),
    "dataclass": (lambda: Args(LR), Args),
    "frozen dataclass": (lambda: Frozen(LR), Frozen),
    "frozen dataclass with slots": (lambda: Slots(LR), Slots),
    "ordered dict": (lambda: collections.OrderedDict(lr=LR), lambda lr: collections.OrderedDict(lr=lr)),
    "default dict": (lambda: collections.defaultdict(list, lr=LR), lambda lr: collections.defaultdict(list, lr=lr)),
    "user dict": (lambda: collections.UserDict(lr=LR), lambda lr: collections.UserDict(lr=lr)),
    "chain map": (lambda: collections.ChainMap({"lr": LR}), lambda lr: collections.ChainMap({"lr": lr})),
    "named tuple": (lambda: Pair(LR), Pair),
    "attributes": (lambda: Attributes(lr=LR), lambda lr: Attributes(lr=lr)),
    "strict": (lambda: Strict(lr=LR), lambda lr: Strict(lr=lr)),
    "proxy": (lambda: types.MappingProxyType({"lr": LR}), lambda lr: types.MappingProxyType({"lr": lr})),
    "frozen mapping": (lambda: FrozenMapping({"lr": LR}), lambda lr: FrozenMapping({"lr": lr})),
    "omegaconf": (
        lambda: OmegaConf.create({"lr": LR, "b": {"c": 1}}, flags={"allow_objects": True}),
        lambda lr: OmegaConf.create({"lr": lr, "b": {"c": 1}}),
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", MADE)
def test_the_trial_gets_the_type_of_container_with_a_value_in_it(kind: str) -> None:
    make, expected = MADE[kind]
    before = make()
    for key in ("1", "2"):
        found = trial_config({"args": before}, key)["args"]
        assert type(found) is type(before)
        assert found == expected(drawn(key=key))
        assert not holds_domain(found)
        assert pickle.loads(cloudpickle.dumps(found)) == found
    assert before == make(), "what the user wrote is left as it was"


def test_the_space_itself_may_be_any_mapping() -> None:
    for make, expected in (MADE["user dict"], MADE["attributes"], MADE["ordered dict"]):
        found = trial_config(make())
        assert type(found) is type(make())
        assert found == expected(drawn("lr"))


def test_containers_in_containers_lists_choices_and_grids() -> None:
    space = {
        "deep": Namespace(inner=Frozen(1, Args(LR)), other=[Args(LR), (Pair(LR), 5)]),
        "choice": tune.choice([Args(tune.uniform(2, 3)), {"x": tune.uniform(4, 5)}]),
        "grid": tune.grid_search([Namespace(a=tune.uniform(6, 7)), 8]),
    }
    laid_open = lay_open(space)
    configs = [Space(laid_open).resolve(HashDraw(str(key)), key % 2) for key in range(20)]
    trials = [close(laid_open, config) for config in configs]
    first = trials[0]["deep"]
    assert (type(first.inner), type(first.inner.inner), type(first.other[0])) == (Frozen, Args, Args)
    assert type(first.other[1][0]) is Pair
    assert first.inner.inner.lr == configs[0]["deep"]["inner"]["inner"]["lr"]
    for config, trial in zip(configs, trials, strict=True):
        assert type(trial["choice"]) is (Args if "lr" in config["choice"] else dict)
        assert type(trial["grid"]) is (Namespace if isinstance(config["grid"], dict) else int)
    assert {type(trial["choice"]) for trial in trials} == {Args, dict}
    assert {type(trial["grid"]) for trial in trials} == {Namespace, int}


def test_a_value_that_a_scheduler_took_out_of_its_domain_keeps_its_container() -> None:
    laid_open = lay_open({"a": tune.choice([Args(LR), 5])})
    assert close(laid_open, {"a": {"lr": 1.5, "layers": 2}}) == {"a": Args(1.5)}


def test_functions_of_the_space_see_into_containers() -> None:
    found = trial_config({"args": Args(LR), "double": tune.sample_from(lambda config: config.args.lr * 2)})
    assert found["double"] == 2 * found["args"].lr
    found = trial_config({"a": 3, "args": Namespace(x=tune.sample_from(lambda config: config.a + 1))})
    assert found["args"].x == 4


def test_a_space_without_a_domain_in_such_containers_stays_as_it_is() -> None:
    space = {"lr": LR, "args": Namespace(a=1), "list": [Args(3)], "choice": tune.choice([Namespace(a=1)])}
    assert lay_open(space) is space
    found = trial_config(space)
    assert found["args"] is space["args"]
    assert found["list"] is space["list"]


def test_a_space_that_is_laid_open_is_pickled_as_it_was_written() -> None:
    laid_open = lay_open({"args": Args(LR)})
    assert isinstance(laid_open, OpenSpace)
    for again in (pickle.loads(pickle.dumps(laid_open)), copy.deepcopy(laid_open)):
        assert again.given == {"args": Args(LR)}
        assert close(again, {"args": {"lr": 0.5, "layers": 2}}) == {"args": Args(0.5)}
    assert lay_open(laid_open) is laid_open


def cyclic() -> Namespace:
    made = Namespace(lr=LR)
    made.itself = [made]
    return made


REFUSED: dict[str, Callable[[], Any]] = {
    "set": lambda: {LR},
    "frozen set": lambda: frozenset([LR]),
    "deque": lambda: collections.deque([LR]),
    "object": lambda: Holder(LR),
    "object in an object": lambda: Holder([Holder({"a": LR})]),
    "array of objects": lambda: np.array([LR, 1], dtype=object),
    "partial function": lambda: functools.partial(Holder, value=LR),
    "class of a domain in an object": lambda: Holder({"grid_search": [1, 2]}),
    "list of another class": lambda: collections.UserList([LR]),
    "view": lambda: {"lr": LR}.values(),
    "mapping that cannot be changed": Fixed,
    "init var": lambda: WithInitVar(LR),
    "itself": cyclic,
    "object in a namespace": lambda: Namespace(a=Holder(LR)),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_domain_where_none_is_searched_is_refused_with_its_key(kind: str) -> None:
    value = REFUSED[kind]()
    for space, key in (
        ({"args": value}, "args"),
        ({"a": [1, {"b": value}]}, "a/1/b"),
        ({"args": tune.choice([1, value])}, "args"),
        ({"args": tune.grid_search([1, value])}, "args"),
    ):
        with pytest.raises(SettingError, match=f"^{key}.*(holds a domain|contains itself)"):
            tune.Tuner(train, param_space=space)


def test_objects_without_a_domain_are_accepted() -> None:
    values = [Holder(5), {1, 2}, np.zeros(3), np.array([Holder(1)]), lambda: LR, Holder, functools.partial(Holder, 1)]
    space = {"values": values, "lr": LR}
    assert lay_open(space) is space


def test_values_of_a_choice_that_a_config_cannot_tell_apart_are_refused() -> None:
    with pytest.raises(SettingError, match="args: .*same keys and different types, Args and dict"):
        lay_open({"args": tune.choice([Args(LR), {"lr": LR, "layers": 3}])})


def test_a_searchers_own_space_and_a_function_of_the_space_refuse_them() -> None:
    for make in (
        lambda space: OptunaSearch(space, metric="loss", mode="min"),
        lambda space: BayesOptSearch(space, metric="loss", mode="min"),
    ):
        with pytest.raises(SettingError, match="a/args: Args holds a domain"):
            make({"lr": LR, "a": {"args": Args(LR)}})
    with pytest.raises(SettingError, match="args: Args holds a domain"):
        trial_config({"args": tune.sample_from(lambda: Args(LR))})


def leaves() -> st.SearchStrategy[Any]:
    return st.sampled_from([LR, tune.choice([1, 2]), tune.randint(0, 9), 5, "text", None])


NAMES = st.sampled_from(["a", "b", "c"])


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    items = st.dictionaries(NAMES, inner, max_size=3)
    return st.one_of(
        items,
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        items.map(lambda made: Namespace(**made)),
        items.map(lambda made: types.SimpleNamespace(**made)),
        items.map(collections.UserDict),
        items.map(collections.OrderedDict),
        items.map(Attributes),
        st.builds(Args, inner, inner),
        st.builds(Frozen, inner, inner),
        st.builds(Pair, inner, inner),
    )


def plain(value: Any) -> Any:
    """The same in dicts and lists, with the type of each container beside it."""
    if isinstance(value, (Args, Frozen)):
        return type(value), {each.name: plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, (Namespace, types.SimpleNamespace)):
        return type(value), {name: plain(item) for name, item in vars(value).items()}
    if isinstance(value, Mapping):
        return type(value), {name: plain(item) for name, item in value.items()}
    return (type(value), [plain(item) for item in value]) if isinstance(value, (list, tuple)) else value


def matches(space: Any, value: Any) -> bool:
    if isinstance(space, Domain):
        return space.is_valid(value)
    if isinstance(space, tuple) and isinstance(value, tuple):
        return space[0] is value[0] and matches(space[1], value[1])
    if isinstance(space, dict) and isinstance(value, dict):
        return list(space) == list(value) and all(matches(item, value[name]) for name, item in space.items())
    if isinstance(space, list) and isinstance(value, list):
        return len(space) == len(value) and all(map(matches, space, value))
    return bool(space == value)


@given(st.dictionaries(NAMES, st.recursive(leaves(), containers, max_leaves=12), min_size=1))
def test_what_a_trial_gets_has_the_form_of_the_space(space: dict[str, Any]) -> None:
    found = trial_config(space)
    assert matches(plain(space), plain(found))
    assert not holds_domain(found)


SEEN: list[Any] = []


def train(config: dict[str, Any]) -> None:
    SEEN.append(config)
    tune.report({"loss": config["args"].lr})


@pytest.mark.parametrize("search_alg", [None, "optuna"])
def test_a_run_and_its_resume_give_dataclasses_to_trials_and_write_plain_files(
    search_alg: str | None, tmp_path: Path
) -> None:
    SEEN.clear()
    given: dict[str, Any] = {
        "config": {"args": Frozen(LR, Namespace(depth=tune.randint(1, 4)))},
        "executor": "inline",
        "storage_path": tmp_path,
        "name": "e",
        "metric": "loss",
        "mode": "min",
        "seed": 1,
        "search_alg": search_alg,
        "resources_per_trial": lambda config: {"cpu": 1 if config["args"].inner.depth else 1},
    }
    tune.run(train, **given, num_samples=2)
    analysis = tune.run(train, **given, num_samples=4, resume=True)
    restored = tune.Tuner.restore(tmp_path / "e", train, run_config=tune.RunConfig(executor="inline")).fit()
    assert len(SEEN) == 4
    assert [type(config["args"].inner) for config in SEEN] == [Namespace] * 4
    assert [type(config["args"]) for config in SEEN] == [Frozen] * 4
    for trial, config in zip(analysis.trials, SEEN, strict=True):
        expected = {"args": {"lr": config["args"].lr, "inner": {"depth": config["args"].inner.depth}}}
        assert trial.config == expected
        assert set(trial.evaluated_params) == {"args/lr", "args/inner/depth"}
        assert json.loads((Path(trial.local_path) / "params.json").read_text()) == expected
    assert [result.config for result in restored] == [trial.config for trial in analysis.trials]


class Reports(tune.Trainable):
    def step(self) -> dict[str, Any]:
        return {"loss": self.args.lr, "done": True}

    def setup(self, config: dict[str, Any]) -> None:
        self.args = config["args"]


@pytest.mark.parametrize("kind", ["strict", "attributes", "dataclass"])
def test_a_class_trainable_gets_a_copy_of_them(kind: str, tmp_path: Path) -> None:
    space = {"args": MADE[kind][0](), "proxy": types.MappingProxyType({"x": LR})}
    analysis = tune.run(Reports, config=space, executor="inline", storage_path=tmp_path, name="e")
    assert analysis.trials[0].last_result["loss"] == analysis.trials[0].config["args"]["lr"]


def test_a_define_by_run_function_that_returns_a_domain_is_refused(tmp_path: Path) -> None:
    def space(trial: Any) -> dict[str, Any]:
        return {"args": {"lr": LR}}

    search = OptunaSearch(space, metric="loss", mode="min")
    with pytest.raises(SettingError, match=r"returned args/lr=uniform\(0.0, 1.0\), a domain instead of a value"):
        tune.run(train, search_alg=search, executor="inline", storage_path=tmp_path, name="e")
