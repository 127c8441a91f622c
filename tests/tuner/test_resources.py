"""What a trial asks for, in every form that is accepted, and what is refused."""

from __future__ import annotations

import math
import os
import re
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tuner as tune
from trainables.errors import InvalidSettingError
from tuner.error import ResourceError, SettingError
from tuner.resources import SHORT_NAMES, amount_of, memory_in_use, parse_resources, resources_of


def test_the_bundles_of_a_placement_group_are_one_request(tmp_path: Path) -> None:
    asked = tune.PlacementGroupFactory([{"CPU": 0.25}, {"CPU": 0.25}, {}])
    assert asked.required_resources == {"CPU": 0.5} and asked.head_cpus == 0.25
    assert parse_resources(asked) == {"cpu": 0.5}
    trials = tune.run(
        lambda config: tune.get_trial_resources(), resources_per_trial=asked, storage_path=tmp_path, verbose=0,
        executor="inline",
    ).trials  # fmt: skip
    assert trials[0].last_result["cpu"] == 0.5
    with pytest.raises(InvalidSettingError, match="asks for nothing"):
        tune.PlacementGroupFactory([{}])


def test_what_a_placement_group_asks_for_in_vain_is_told() -> None:
    two = [{"CPU": 1}, {"CPU": 2, "GPU": 0.5}]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # all of these are what happens
        tune.PlacementGroupFactory(two)
        tune.PlacementGroupFactory([{"CPU": 1}], "STRICT_SPREAD")
        assert repr(tune.PlacementGroupFactory(two, "STRICT_PACK")).endswith("}], strategy='STRICT_PACK')")
    summed = r"strategy='SPREAD'\) has no effect: .* one process, which gets the sum of its bundles, \{'CPU': 3.0, 'GPU"
    with pytest.warns(UserWarning, match=summed):
        tune.PlacementGroupFactory(two, strategy="SPREAD")
    with pytest.warns(UserWarning, match=r"PlacementGroupFactory\(name='mine', lifetime='detached'\) has no effect: "):
        tune.PlacementGroupFactory(two, name="mine", lifetime="detached")


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"strategy": "SPRED"}, InvalidSettingError, "accepted: PACK, SPREAD, STRICT_PACK, STRICT_SPREAD"),
        ({"strategy": None}, InvalidSettingError, r"PlacementGroupFactory\(strategy=None\) is not accepted"),
        (
            {"stratgy": "PACK"},
            InvalidSettingError,
            "unknown argument of PlacementGroupFactory 'stratgy'; did you mean 'strategy",
        ),
        *(
            (
                {"bundles": wrong},
                InvalidSettingError,
                rf"bundles={re.escape(repr(wrong))}\): accepted is a list of dicts",
            )
            for wrong in ({"CPU": 1}, "CPU", [3], None, 4, True, set())
        ),
        (
            {"bundles": iter([{"CPU": 1}])},
            InvalidSettingError,
            r"bundles=<list_iterator .*: accepted is a list of dicts",
        ),
    ],
)
def test_what_is_no_placement_group_is_refused(given: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        tune.PlacementGroupFactory(**{"bundles": [{"CPU": 1}], **given})


def test_resources_may_be_a_function_of_the_config(tmp_path: Path) -> None:
    def told(config: dict[str, Any]) -> dict[str, Any]:
        return dict(tune.get_trial_resources() or {})

    trainable = tune.with_resources(told, lambda config: {"cpu": config["cpus"]})
    space = {"cpus": tune.grid_search([0.5, 0.25])}
    trials = tune.run(trainable, config=space, storage_path=tmp_path, verbose=0, executor="inline").trials
    assert [trial.last_result["cpu"] for trial in trials] == [0.5, 0.25]
    with pytest.raises(ResourceError, match="asks for 5000 cpu"):
        tune.run(trainable, config={"cpus": 5000}, storage_path=tmp_path, verbose=0, executor="inline")


class Bundles:
    def __init__(self, *bundles: dict[str, float]) -> None:
        self.bundles = list(bundles)


@pytest.mark.parametrize(
    ("asked", "means"),
    [
        (None, {"cpu": 1.0}),
        ({"cpu": 2, "gpu": 0.5, "tpu": 1}, {"cpu": 2.0, "gpu": 0.5, "tpu": 1.0}),
        ({"CPU": 1, "GPU": 2}, {"cpu": 1.0, "gpu": 2.0}),
        ({"cpu": 1, "gpu": 0}, {"cpu": 1.0}),
        ({"cpu": 1, "extra_cpu": 3, "extra_gpu": 1}, {"cpu": 4.0, "gpu": 1.0}),
        ({"cpu": 1, "custom_resources": {"tpu": 2}}, {"cpu": 1.0, "tpu": 2.0}),
        ([{"CPU": 1}, {"CPU": 2, "GPU": 0.5}], {"cpu": 3.0, "gpu": 0.5}),
        (Bundles({"CPU": 1}, {"CPU": 1}), {"cpu": 2.0}),
        (lambda config: {"cpu": config["n"]}, {"cpu": 5.0}),
    ],
)
def test_every_form_is_understood(asked: Any, means: dict[str, float]) -> None:
    assert parse_resources(asked, {"n": 5}) == means


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"cpu": -1}, "cpu=-1"),
        ({"cpu": "two"}, "cpu='two'"),
        ({"cpu": True}, "cpu=True"),
        ({"cpu": float("nan")}, "cpu=nan"),
        ({"gpu": 1.5}, "gpu=1.5"),
        ({"cpu": 0}, "asks for nothing"),
        ({}, "asks for nothing"),
        ({"cpu": 1, "custom_resources": 3}, "custom_resources=3: a dict of amounts is accepted"),
        ("cpu", "accepted are a dict"),
        (3, "accepted are a dict"),
    ],
)
def test_what_makes_no_sense_is_an_error_that_names_it(asked: Any, message: str) -> None:
    with pytest.raises(ResourceError, match=message):
        parse_resources(asked)


# --- amounts

NAMES = st.sampled_from(["cpu", "CPU", "gpu", "GPU", "tpu", "num_cpus", "num_gpus", "extra_cpu", "licence"])
BUNDLES = st.dictionaries(NAMES, st.integers(0, 4), max_size=4)


def asks(bundles: list[dict[str, int]]) -> bool:
    return any(amount for bundle in bundles for amount in bundle.values())


@given(st.lists(BUNDLES, min_size=1, max_size=4).filter(asks))
def test_bundles_are_summed_under_the_short_names(bundles: list[dict[str, int]]) -> None:
    wanted: Counter[str] = Counter()
    for bundle in bundles:
        for name, amount in bundle.items():
            wanted[SHORT_NAMES.get(name, name)] += amount
    found = parse_resources(bundles)
    assert found == {name: float(amount) for name, amount in wanted.items() if amount}
    assert parse_resources(found) == found, "what it says is a request itself"
    assert parse_resources(tune.PlacementGroupFactory(bundles)) == found


@pytest.mark.parametrize(
    ("asked", "means"),
    [
        ({"cpu": 1, "memory": None}, {"cpu": 1.0}),
        ({"cpu": 1, "object_store_memory": 5, "extra_memory": 3}, {"cpu": 1.0}),
        ({"cpu": 1, "custom_resources": None, "extra_custom_resources": {"tpu": 1}}, {"cpu": 1.0, "tpu": 1.0}),
        ({"cpu": 0.1, "nested": {"deep": {"tpu": 2}}}, {"cpu": 0.1, "tpu": 2.0}),
        ({"gpu": 0.5}, {"gpu": 0.5}),
        ({"gpu": 3}, {"gpu": 3.0}),
        ([{"gpu": 0.5}, {"gpu": 0.5}], {"gpu": 1.0}),
        (lambda config: None, {"cpu": 1.0}),
        (lambda config: lambda inner: {"cpu": 7}, {"cpu": 7.0}),
    ],
)
def test_what_does_not_count_and_what_is_looked_into(asked: Any, means: dict[str, float]) -> None:
    assert parse_resources(asked) == means


@pytest.mark.parametrize("value", [-1, -0.001, math.nan, math.inf, True, "1", None, [1]], ids=str)
def test_an_amount_is_a_finite_number_from_0(value: Any) -> None:
    with pytest.raises(ResourceError, match="tpu=.*: a number from 0 is accepted as the amount of a resource"):
        amount_of("tpu", value)


@pytest.mark.parametrize("value", [0, 0.0, 1, 2.5, 10**6])
def test_an_amount_is_a_float(value: float) -> None:
    assert amount_of("tpu", value) == value and type(amount_of("tpu", value)) is float


@pytest.mark.parametrize("gpus", [1.5, 2.25])
def test_more_than_one_gpu_is_whole_ones_also_as_a_sum(gpus: float) -> None:
    for asked in ({"gpu": gpus}, [{"gpu": 1}, {"gpu": gpus - 1}]):
        with pytest.raises(ResourceError, match=rf"gpu={gpus:g}: a share of one GPU"):
            parse_resources(asked)


# --- bundles and trainables


def test_placement_groups_are_told_apart_by_their_bundles() -> None:
    one, same = (tune.PlacementGroupFactory([{"CPU": 1, "GPU": 1}, {"tpu": 2}]) for _ in range(2))
    turned = tune.PlacementGroupFactory([{"GPU": 1, "CPU": 1}, {"tpu": 2}], "STRICT_PACK")
    other = tune.PlacementGroupFactory([{"tpu": 2}, {"CPU": 1, "GPU": 1}])
    packed = tune.PlacementGroupFactory(turned.bundles)
    assert one == same == packed != other and turned != packed and one != [{"CPU": 1, "GPU": 1}, {"tpu": 2}]
    assert len({one, same, packed, turned, other}) == 3
    assert eval(repr(one), vars(tune)) == one


@pytest.mark.parametrize(
    ("bundles", "cores"), [([{"CPU": 2}, {"CPU": 4}], 2.0), ([{}, {"CPU": 4}], 0.0), ([{"GPU": 1}], 0.0)]
)
def test_the_head_is_the_first_bundle(bundles: Any, cores: float) -> None:
    assert tune.PlacementGroupFactory(bundles).head_cpus == cores


def test_what_a_factory_was_given_is_its_own() -> None:
    bundle = {"CPU": 1.0}
    made = tune.PlacementGroupFactory([bundle])
    bundle["CPU"] = 9.0
    assert made.required_resources == {"CPU": 1.0}


def function(config: dict[str, Any]) -> int:
    """Trains."""
    return int(config["x"])


class Trains(tune.Trainable):
    def step(self) -> dict[str, Any]:
        return {}


def test_the_same_function_has_resources_beside_it() -> None:
    made = tune.with_resources(function, {"cpu": 2})
    assert resources_of(made) == {"cpu": 2} and resources_of(function) is None
    assert made({"x": 3}) == 3
    again = tune.with_resources(made, {"cpu": 5})
    assert (resources_of(again), resources_of(made)) == ({"cpu": 5}, {"cpu": 2})


def test_the_same_class_has_resources_and_its_name() -> None:
    made = tune.with_resources(Trains, {"cpu": 2})
    assert issubclass(made, Trains) and (made.__name__, made.__module__) == ("Trains", Trains.__module__)
    assert resources_of(made) == {"cpu": 2} and resources_of(Trains) is None
    by_config = tune.with_resources(Trains, lambda config: {"cpu": config["n"]})
    assert parse_resources(resources_of(by_config), {"n": 3}) == {"cpu": 3.0}, "a function, and no method"


def test_resources_that_are_none_are_said_when_they_are_given() -> None:
    for wrong in ({}, {"cpu": -1}, 3, "cpu"):
        with pytest.raises(ResourceError):
            tune.with_resources(function, wrong)


def test_a_trainer_has_its_own_way_to_say_it() -> None:
    class Trainer:
        def as_trainable(self) -> Any:
            return function

    with pytest.raises(SettingError, match=r"with_resources\(Trainer, ...\) is not accepted: a trainer's"):
        tune.with_resources(Trainer(), {"cpu": 1})


def test_memory_in_use_is_what_the_kernel_says() -> None:
    found = memory_in_use()
    assert found is not None
    used, total = found
    assert 0 < used < total <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
