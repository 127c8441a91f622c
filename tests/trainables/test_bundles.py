"""Bundles of resources, in every place where they are accepted, and what a trial was given in the same form."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tuner as tune
from trainables.bundles import PlacementGroupFactory, TrialResources
from trainables.config import ScalingConfig
from trainables.errors import InvalidSettingError
from tuner.compat.ray_1_resources import Resources
from tuner.resources import parse_resources, resource_dict_to_pg_factory
from tuner.schedulers import ResourceChangingScheduler

AMOUNTS = st.dictionaries(st.sampled_from(["CPU", "GPU", "tpu"]), st.integers(0, 4), max_size=3)


@given(st.lists(AMOUNTS, min_size=1, max_size=4).filter(lambda bundles: any(map(sum, (b.values() for b in bundles)))))
def test_a_factory_is_what_it_was_given_and_travels(bundles: list[dict[str, int]]) -> None:
    made = PlacementGroupFactory(bundles)
    assert made.head_bundle_is_empty is not any(bundles[0].values())
    assert made.bundles == [
        {name: amount for name, amount in bundle.items() if amount} for bundle in bundles[made.head_bundle_is_empty :]
    ]
    assert sum(made.required_resources.values()) == sum(map(sum, (bundle.values() for bundle in bundles)))
    again = pickle.loads(pickle.dumps(made))
    assert again == made and hash(again) == hash(made) and repr(again) == repr(made)
    assert eval(repr(made)) == made


def test_what_is_to_place_a_group_is_refused_by_name() -> None:
    with pytest.raises(InvalidSettingError, match=r"to_placement_group\(\) is not here: trials are processes"):
        PlacementGroupFactory([{"CPU": 1}]).to_placement_group()
    with pytest.raises(InvalidSettingError, match="CPU=-1: a number from 0"):
        PlacementGroupFactory([{"CPU": -1}])


@pytest.mark.parametrize(
    "scaling",
    [
        ScalingConfig(num_workers=2),
        ScalingConfig(
            num_workers=2, use_gpu=True, resources_per_worker={"CPU": 2, "GPU": 0.5}, trainer_resources={"CPU": 1}
        ),
        ScalingConfig(num_workers=3, placement_strategy="STRICT_PACK"),
    ],
    ids=str,
)
def test_a_scaling_config_is_bundles_and_back(scaling: ScalingConfig) -> None:
    made = scaling.as_placement_group_factory()
    assert made.required_resources == {name: amount for name, amount in scaling.total_resources.items() if amount}
    assert made.strategy == scaling.placement_strategy
    again = ScalingConfig.from_placement_group_factory(made)
    assert again.as_placement_group_factory() == made and again.num_workers == scaling.num_workers


def test_workers_that_are_not_alike_are_no_scaling_config() -> None:
    with pytest.raises(InvalidSettingError, match="workers that are alike"):
        ScalingConfig.from_placement_group_factory(PlacementGroupFactory([{}, {"CPU": 1}, {"CPU": 2}]))


def test_a_dict_is_one_bundle() -> None:
    assert resource_dict_to_pg_factory({"cpu": 2, "gpu": 0.5, "custom_resources": {"tpu": 1}}).bundles == [
        {"CPU": 2.0, "GPU": 0.5, "tpu": 1.0}
    ]
    assert resource_dict_to_pg_factory().bundles == [{"CPU": 1.0}]


def told(config: dict[str, Any]) -> dict[str, Any]:
    given = tune.get_trial_resources()
    assert given is not None
    assert given.required_resources["CPU"] == given["cpu"] == given["CPU"] == given.get("CPU") == given.head_cpus
    assert given.bundles == [given.required_resources] and not given.gpu and given.get("GPU", 7) == 7
    assert given == PlacementGroupFactory(given.bundles, strategy=given.strategy) and given == dict(given)
    assert given != PlacementGroupFactory([{"CPU": 64}]) and not given.head_bundle_is_empty
    with pytest.raises(InvalidSettingError, match="give PlacementGroupFactory.its bundles. wherever"):
        given.to_placement_group()
    return {"cpu": given.cpu}


class Asking(tune.Trainable):
    """Says itself what it needs."""

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> Any:
        return PlacementGroupFactory([{"CPU": config["n"]}]) if config["n"] < 1 else Resources(cpu=0.25, gpu=0)

    def step(self) -> dict[str, Any]:
        return {"cpu": self.trial_resources.required_resources["CPU"], "done": True}


HALF = PlacementGroupFactory([{"CPU": 0.25}, {"CPU": 0.25}])


@pytest.mark.parametrize(
    ("trainable", "given", "cpus"),
    [
        (told, {"resources_per_trial": HALF}, [0.5, 0.5]),
        (tune.with_resources(told, HALF), {}, [0.5, 0.5]),
        (tune.with_resources(told, ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.25})), {}, [0.5, 0.5]),
        (tune.with_resources(told, lambda config: PlacementGroupFactory([{"CPU": config["n"]}])), {}, [0.5, 1.0]),
        (Asking, {}, [0.5, 0.25]),
        (Asking, {"resources_per_trial": HALF}, [0.5, 0.5]),
        (tune.with_resources(Asking, HALF), {}, [0.5, 0.5]),
    ],
)
def test_resources_are_given_in_every_place(
    trainable: Any, given: dict[str, Any], cpus: list[float], tmp_path: Path
) -> None:
    space = {"n": tune.grid_search([0.5, 1])}
    trials = tune.run(trainable, config=space, storage_path=tmp_path, verbose=0, executor="inline", **given).trials
    assert [trial.last_result["cpu"] for trial in trials] == cpus


def example_of_rays(controller: Any, trial: Any, result: dict[str, Any], scheduler: Any) -> Any:
    base = scheduler._base_trial_resources
    total = controller._resource_updater.get_num_cpus()
    assert total == controller.trial_executor._resource_updater.get_num_cpus() >= 1
    share = max(base.required_resources.get("CPU", 0), 0.5 / len(controller.get_live_trials()))
    return PlacementGroupFactory([{"CPU": share, "GPU": 0}])


class Grows(tune.Trainable):
    """Tells what it has."""

    def step(self) -> dict[str, Any]:
        return {"cpu": self.trial_resources.cpu, "done": self.iteration == 2}

    def save_checkpoint(self, directory: str) -> dict[str, Any]:
        return {}

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Nothing is kept."""


def test_a_function_as_in_rays_example_changes_what_trials_get(tmp_path: Path) -> None:
    scheduler = ResourceChangingScheduler(resources_allocation_function=example_of_rays)
    (trial,) = tune.run(
        Grows,
        scheduler=scheduler,
        resources_per_trial=PlacementGroupFactory([{"CPU": 0.25}]),
        storage_path=tmp_path,
        verbose=0,
        executor="inline",
    ).trials
    assert trial.last_result["cpu"] == 0.5


def test_a_trial_may_report_what_it_was_given() -> None:
    assert parse_resources(TrialResources(cpu=2.0)) == {"cpu": 2.0}
    with pytest.raises(KeyError):
        TrialResources(cpu=2.0)["tpu"]


def test_what_a_trial_was_given_has_what_a_request_of_rays_has() -> None:
    rays = {"bundles", "head_bundle_is_empty", "head_cpus", "required_resources", "strategy", "to_placement_group"}
    for kind in (TrialResources, PlacementGroupFactory):
        made = TrialResources(cpu=2.0) if kind is TrialResources else PlacementGroupFactory([{"CPU": 2}])
        assert {name for name in rays if hasattr(made, name)} == rays
        assert (made.bundles, made.head_cpus, made.required_resources) == ([{"CPU": 2.0}], 2.0, {"CPU": 2.0})
