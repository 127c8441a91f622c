"""How groups are laid over nodes, without a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from tests.trainables.group.harness import save_all
from trainables import ScalingConfig
from trainables.data_parallel_trainer import DataParallelTrainer
from trainables.testing import example_job
from tuner.error import ResourceError
from tuner.executors.remote.groups import across, check_fits, launcher_job, meant_by, on_several, trial_of

TWO_BY_TWO = [{"cpu": 2.0}, {"cpu": 2.0}]


def group(**scaling: Any) -> Any:
    return DataParallelTrainer(save_all, scaling_config=ScalingConfig(**scaling)).as_trainable()


@pytest.mark.parametrize(
    ("scaling", "nodes", "fitting"),
    [
        ({"num_workers": 4}, TWO_BY_TWO, 1),
        ({"num_workers": 2}, TWO_BY_TWO, None),  # one node holds it
        ({"num_workers": 2, "placement_strategy": "SPREAD"}, TWO_BY_TWO, 2),
        ({"num_workers": 2, "placement_strategy": "STRICT_SPREAD"}, [{"cpu": 8.0}], 0),
        ({"num_workers": 4, "placement_strategy": "STRICT_PACK"}, TWO_BY_TWO, None),
        ({"num_workers": 4, "trainer_resources": {"CPU": 1}}, TWO_BY_TWO, 0),
        ({"num_workers": 3, "trainer_resources": {"CPU": 1}}, TWO_BY_TWO, 1),
        ({"num_workers": 3, "resources_per_worker": {"CPU": 1, "x": 1}}, [{"cpu": 2.0, "x": 9.0}, {"cpu": 9.0}], 0),
    ],
)
def test_a_group_is_on_several_nodes_where_it_does_not_fit_on_one(scaling: Any, nodes: Any, fitting: Any) -> None:
    trainable = group(**scaling)
    asked = {name.lower(): float(amount) for name, amount in trainable.trainer.scaling_config.total_resources.items()}

    found = on_several(meant_by(trainable)(asked), nodes, asked)

    assert (None if found is None else found.fitting(nodes)) == fitting
    one_holds_it = any(all(node.get(name, 0) >= amount for name, amount in asked.items()) for node in nodes)
    if fitting or (fitting is None and one_holds_it):
        check_fits(asked, nodes, trainable)
    else:
        with pytest.raises(ResourceError, match="node by node"):
            check_fits(asked, nodes, trainable)


def test_other_trainables_are_on_one_node() -> None:
    assert meant_by(save_all)({"cpu": 4.0}) is None
    with pytest.raises(ResourceError, match="no node of the cluster has that much"):
        check_fits({"cpu": 4.0}, TWO_BY_TWO, save_all)


def test_the_node_of_the_first_bundle_leads_and_the_others_follow_in_order(tmp_path: Any) -> None:
    job = example_job(tmp_path)
    addresses = {"a": "10.0.0.1", "b": "10.0.0.2", "c": "10.0.0.3"}

    assert across(job, ["b", "b"], addresses) is job
    led = across(job, ["b", "a", "b", "c"], addresses)

    assert led.group_nodes is not None
    assert led.group_nodes.nodes == (("10.0.0.2", 2), ("10.0.0.1", 1), ("10.0.0.3", 1))
    further = launcher_job(led, 2, 4711)
    assert (further.group_nodes.number, further.group_nodes.port, further.group_nodes.key) == (
        2,
        4711,
        led.group_nodes.key,
    )  # type: ignore[union-attr]
    assert further.trial_id != job.trial_id == trial_of(further.trial_id) == trial_of(job.trial_id)
