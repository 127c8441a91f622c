"""A trainer's group on two hosts that share no disk: who is where, what is saved, and what the loss of a host costs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from clusters import DRAIN, is_of_trial, until

from tests.servers.cluster import PATIENCE_S, RESULTS, Cluster, Driver, ray_cluster

pytestmark = [pytest.mark.root, pytest.mark.timeout(600)]

_BEGIN_S = 3 * PATIENCE_S
"""For torch to be loaded on each host, and its ranks to meet."""
SCRIPT = """
import json, os, socket, sys, time
from pathlib import Path

import torch
import torch.distributed as dist
import trainables as train
from trainables import CheckpointConfig, RunConfig, ScalingConfig, SyncConfig
from trainables.torch import TorchTrainer, prepare_model
from tuner.executors import RayExecutor

settings = json.loads(sys.argv[1])
# torch asks for the name of every address that connects, and no name server is reached from these hosts.
WITHOUT_NAMES = {"RES_OPTIONS": "timeout:1 attempts:1"}


def train_func(config):
    context, signs = train.get_context(), Path(config["signs"])
    rank, host = context.get_world_rank(), socket.gethostname()
    torch.manual_seed(1)
    model, first = torch.nn.Linear(3, 1), 1
    with (signs / f"starts-{rank}").open("a") as file:
        found = train.get_checkpoint()
        if found is not None:
            with found.as_directory() as directory:
                seen = sorted(name for name in os.listdir(directory) if not name.startswith("."))
                model.load_state_dict(torch.load(Path(directory, "model.pt")))
                first = int(Path(directory, f"of_{rank}").read_text()) + 1
            assert seen == ["model.pt", "of_0", "of_1", "of_2", "of_3"], seen
        place = [context.get_local_rank(), context.get_local_world_size(), context.get_node_rank()]
        file.write(json.dumps([first, host, place]) + "\\n")
    print("rank", rank, "begins on", host)
    whole = prepare_model(model, parallel_strategy_kwargs={"find_unused_parameters": True})
    optimizer = torch.optim.SGD(whole.parameters(), lr=0.1)
    for step in range(first, 7):
        while step > 3 and not (signs / "go").exists():
            if context.should_stop():
                return
            time.sleep(0.05)
        optimizer.zero_grad()
        inputs = torch.randn(8, 3, generator=torch.Generator().manual_seed(100 * step + rank))
        whole(inputs).square().sum().backward()
        optimizer.step()
        with train.checkpoint_dir() as directory:
            Path(directory, f"of_{rank}").write_text(str(step))
            if rank == 0:
                torch.save(model.state_dict(), Path(directory, "model.pt"))
        weights = torch.cat([part.detach().flatten() for part in model.parameters()]).tolist()
        train.report({"step": step, "weights": [value.hex() for value in weights]})


if __name__ == "__main__":
    result = TorchTrainer(
        train_func,
        train_loop_config={"signs": settings["signs"]},
        scaling_config=ScalingConfig(num_workers=4, trainer_resources=settings["leads"]),
        run_config=RunConfig(
            name=settings["name"], storage_path=settings["storage"],
            executor=RayExecutor(address=settings["address"], runtime_env={"env_vars": WITHOUT_NAMES}),
            checkpoint_config=CheckpointConfig(num_to_keep=1),
            sync_config=SyncConfig(upload_dir=settings["upload_dir"]),
        ),
    ).fit()
    with result.checkpoint.as_directory() as directory:
        kept = sorted(name for name in os.listdir(directory) if not name.startswith("."))
    rows = [json.loads(line)["step"] for line in Path(result.path, "result.json").read_text().splitlines()]
    said = Path(result.path, "stdout").read_text()
    print("FOUND", json.dumps({"weights": result.metrics["weights"], "kept": kept, "steps": rows, "said": said}))
"""


class Training:
    """One run of the script; its ranks tell where they begin."""

    def __init__(self, cluster: Cluster, name: str, leads: dict[str, float], *, upload_dir: str | None = None) -> None:
        self.signs = cluster.shared / f"group-{name}-{len(list(cluster.shared.iterdir()))}"
        self.signs.mkdir()
        settings = {"signs": str(self.signs), "name": name, "leads": leads}
        settings |= {"storage": RESULTS, "address": cluster.address, "upload_dir": upload_dir}
        self.script: Driver = cluster.hosts[0].popen(SCRIPT, json.dumps(settings))

    def starts(self, attempt: int) -> list[tuple[int, str, list[int]]]:
        """(first step, host, [local rank, local world size, node rank]) of the ranks that have begun that attempt."""
        lines = [path.read_text().splitlines() for path in sorted(self.signs.glob("starts-*"))]
        return [tuple(json.loads(each[attempt - 1])) for each in lines if len(each) >= attempt]

    def begun(self, attempt: int) -> list[tuple[int, str, list[int]]]:
        """The same, of all four, as soon as they have."""
        until(f"attempt {attempt} begins", lambda: len(self.starts(attempt)) == 4, of=self.script, within_s=_BEGIN_S)
        return self.starts(attempt)

    def go(self) -> None:
        (self.signs / "go").touch()

    def found(self) -> dict[str, Any]:
        output = self.script.ends(3 * PATIENCE_S)
        line = next(line for line in output.splitlines() if line.startswith("FOUND "))
        result: dict[str, Any] = json.loads(line.removeprefix("FOUND "))
        return result


def check_places(begun: list[tuple[int, str, list[int]]], first: int, hosts: set[str]) -> None:
    assert [start[0] for start in begun] == [first] * 4
    assert [start[2] for start in begun] == [[0, 2, 0], [1, 2, 0], [0, 2, 1], [1, 2, 1]]
    assert [start[1] for start in begun[:2]] == [begun[0][1]] * 2
    assert {start[1] for start in begun} == hosts


def test_a_group_over_two_hosts_survives_the_loss_of_one_and_ends_with_the_same_weights(cluster: Cluster) -> None:
    lose_a_host(cluster, {}, leader=None)


@pytest.mark.soak
def test_a_group_survives_the_loss_of_the_host_that_leads(tmp_path: Path) -> None:
    leads = {"leads": 1.0}
    with ray_cluster(tmp_path, resources=[{}, leads]) as cluster:
        lose_a_host(cluster, leads, leader="host2")


@pytest.mark.soak
def test_a_host_that_is_drained_has_the_whole_group_leave_and_go_on_elsewhere(cluster: Cluster) -> None:
    driver, other = cluster.hosts
    training = Training(cluster, "drained", {})
    check_places(training.begun(1), 1, {"host1", "host2"})
    saved = driver.path(f"{RESULTS}/drained")
    until("step 3 is saved", lambda: list(saved.glob("*/checkpoint_000003")), of=training.script)
    third = cluster.add_host()

    driver.run(DRAIN, cluster.address, other.address)
    other.harmed = True  # it will be gone

    check_places(training.begun(2), 4, {"host1", third.hostname})
    training.go()
    assert training.found()["steps"] == [1, 2, 3, 4, 5, 6]


@pytest.mark.soak
@pytest.mark.parametrize("how", ["frozen", "cut off"])
@pytest.mark.parametrize("leader", ["host1", "host2"])
def test_a_group_whose_host_does_not_answer_goes_on_elsewhere_and_leaves_nothing(
    tmp_path: Path, how: str, leader: str
) -> None:
    leads = {"leads": 1.0}
    with ray_cluster(tmp_path, resources=[leads, {}] if leader == "host1" else [{}, leads]) as cluster:
        lose_a_host(cluster, leads, leader=leader, how=how)


def lose_a_host(cluster: Cluster, leads: dict[str, float], *, leader: str | None, how: str = "killed") -> None:
    """Lose host2 in the middle; the host of rank 0 is the first one with what `leads` says."""
    driver, other = cluster.hosts
    undisturbed = Training(cluster, "undisturbed", leads)
    undisturbed.go()
    check_places(undisturbed.begun(1), 1, {"host1", "host2"})
    expected = undisturbed.found()
    assert expected["kept"] == ["model.pt", "of_0", "of_1", "of_2", "of_3"]
    assert expected["steps"] == [1, 2, 3, 4, 5, 6]
    assert all(expected["said"].count(f"rank {rank} begins on") == 1 for rank in range(4))

    training = Training(cluster, "disturbed", leads)
    begun = training.begun(1)
    check_places(begun, 1, {"host1", "host2"})
    assert leader in (None, begun[0][1])
    saved = driver.path(f"{RESULTS}/disturbed")
    until("step 3 is saved", lambda: list(saved.glob("*/checkpoint_000003")), of=training.script)
    if how == "killed":
        other.kill()
    else:
        old = [pid for pid in other.processes() if is_of_trial(pid)]
        assert len(old) > 3
        other.freeze() if how == "frozen" else other.cut()
        cluster.wait_for(other, alive=False)
    third = cluster.add_host(resources=leads)
    check_places(training.begun(2), 4, {"host1", third.hostname})
    if how != "killed":
        other.thaw() if how == "frozen" else other.mend()
        until("its old processes are gone", lambda: not set(old) & set(other.processes()), of=training.script)
        assert len(training.starts(2)) == 4 and not training.starts(3)
    training.go()
    found = training.found()

    assert found["weights"] == expected["weights"]
    assert found["steps"] == [1, 2, 3, 4, 5, 6]
    assert found["kept"] == expected["kept"]
    assert not [path for path in third.path(RESULTS).rglob("*") if path.name.startswith((".staging", "group-"))]
    assert not any(os.path.exists(path) for path in third.path("/tmp").glob("group-*"))
    assert Path(saved).is_dir()
