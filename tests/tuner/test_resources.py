"""What a trial asks for, in every form that is accepted, and what is refused."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tuner.error import ResourceError, SettingError
from tuner.resources import parse_resources


def test_the_bundles_of_a_placement_group_are_one_request(tmp_path: Path) -> None:
    asked = tune.PlacementGroupFactory([{"CPU": 0.25}, {"CPU": 0.25}, {}])
    assert asked.required_resources == parse_resources(asked) == {"cpu": 0.5} and asked.head_cpus == 0.25
    trials = tune.run(
        lambda config: tune.get_trial_resources(), resources_per_trial=asked, storage_path=tmp_path, verbose=0,
        executor="inline",
    ).trials  # fmt: skip
    assert trials[0].last_result["cpu"] == 0.5
    with pytest.raises(ResourceError, match="asks for nothing"):
        tune.PlacementGroupFactory([{}])


def test_what_a_placement_group_asks_for_in_vain_is_told() -> None:
    two = [{"CPU": 1}, {"CPU": 2, "GPU": 0.5}]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # all of these are what happens
        tune.PlacementGroupFactory(two)
        tune.PlacementGroupFactory([{"CPU": 1}], "STRICT_SPREAD")
        assert repr(tune.PlacementGroupFactory(two, "STRICT_PACK")).endswith("}], strategy='STRICT_PACK')")
    summed = r"strategy='SPREAD'\) has no effect: .* one process, which gets the sum of its bundles, \{'cpu': 3.0, 'gpu"
    with pytest.warns(UserWarning, match=summed):
        tune.PlacementGroupFactory(two, strategy="SPREAD")
    with pytest.warns(UserWarning, match=r"PlacementGroupFactory\(name='mine', lifetime='detached'\) has no effect: "):
        tune.PlacementGroupFactory(two, name="mine", lifetime="detached")


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"strategy": "SPRED"}, SettingError, "accepted: PACK, SPREAD, STRICT_PACK, STRICT_SPREAD"),
        ({"strategy": None}, SettingError, r"PlacementGroupFactory\(strategy=None\) is not accepted"),
        (
            {"stratgy": "PACK"},
            SettingError,
            "unknown argument of PlacementGroupFactory 'stratgy'; did you mean 'strategy",
        ),
        *(
            ({"bundles": wrong}, ResourceError, rf"bundles={re.escape(repr(wrong))}\): accepted is a list of dicts")
            for wrong in ({"CPU": 1}, "CPU", [3], None, 4, True, set())
        ),
        ({"bundles": iter([{"CPU": 1}])}, ResourceError, r"bundles=<list_iterator .*: accepted is a list of dicts"),
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
        ("cpu", "accepted are a dict"),
        (3, "accepted are a dict"),
    ],
)
def test_what_makes_no_sense_is_an_error_that_names_it(asked: Any, message: str) -> None:
    with pytest.raises(ResourceError, match=message):
        parse_resources(asked)
