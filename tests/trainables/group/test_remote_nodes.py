"""A group on several nodes, without a cluster: each node is an address of the loopback and a directory of its own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import cloudpickle

import trainables as train
from tests.failures.checkpoint_faults import in_child
from tests.trainables.group.harness import (
    ADDRESSES,
    NodesLink,
    files,
    leftovers,
    note,
    notes,
    run_nodes,
    save_all,
    saved,
)
from trainables import ScalingConfig
from trainables.data_parallel_trainer import DataParallelTrainer
from trainables.job import Replicated
from trainables.store import manifest
from trainables.torch import TorchTrainer
from trainables.wire import Finished, Preempted, Report, SaveUploaded


def test_what_ranks_on_several_hosts_save_is_one_checkpoint_of_the_leaders(tmp_path: Path) -> None:
    for node in range(2):
        (tmp_path / f"given{node}").mkdir()
        (tmp_path / f"given{node}" / "from").write_text("before")

    link = run_nodes(save_all, tmp_path, checkpoint_path=lambda node: tmp_path / f"given{node}")

    assert link.end == Finished()
    assert link.ended() == [0]
    assert [(result["step"], result.get("rank")) for result in link.results] == [(0, 0), (1, 0), (2, None)]
    assert [ref.name for ref in link.published] == [f"checkpoint_00000{i}" for i in (1, 2, 3)]
    whole = {"all": "0", "of_0": "1", "of_1": "1", "of_2": "1"}
    assert files(link.directory(0) / "checkpoint_000002") == whole
    sizes = {path.name: path.stat().st_size for path in (link.directory(0) / "checkpoint_000003").glob("dir_*")}
    assert sizes == {"dir_0": 0, "dir_1": 0, "dir_2": 3_000_000}
    assert (link.directory(0) / "checkpoint_000003" / "deep" / "empty").is_dir()
    seen = notes(tmp_path)
    assert [each["at"] for each in seen] == [[0, 0, 1, 0], [1, 0, 2, 1], [2, 1, 2, 1]]
    assert [each["here"] for each in seen] == [str(link.directory(node)) for node in (0, 1, 1)]
    assert all(each["newest"] == whole and each["start"] == {"from": "before"} and each["size"] == 3 for each in seen)
    assert not list(link.directory(1).iterdir())
    assert not leftovers(tmp_path)


def test_ranks_of_every_host_bring_what_they_saved_to_the_replica(tmp_path: Path) -> None:
    copies = tmp_path / "copies"
    (copies / "e").mkdir(parents=True)
    (copies / "e" / "owner").write_text("of this run")
    replicated = Replicated(
        cloudpickle.dumps({"place": str(copies)}), "e/train_t1", ("e/owner", "this run"), "e/next", timeout_s=100
    )

    def save(config: dict[str, Any]) -> None:
        rank = train.get_context().get_world_rank()
        train.report({}, checkpoint=saved(**{f"of_{rank}": str(rank), "all": str(rank)}))

    link = run_nodes(save, tmp_path, replicated=replicated)

    assert link.end == Finished()
    assert link.ended() == [0]
    (report,) = (message for message in link.messages if isinstance(message, Report))
    assert report.saving is not None and report.saving.uploading
    (uploaded,) = (message for message in link.messages if isinstance(message, SaveUploaded))
    published = manifest.read(link.directory(0) / "checkpoint_000001")
    assert uploaded.sent == {entry.name: entry.blake3 for entry in published.manifest.files}
    assert files(copies / "e" / "train_t1" / "checkpoint_000001") == {"all": "0", "of_0": "0", "of_1": "1", "of_2": "2"}
    assert not list(link.directory(1).iterdir())
    assert not leftovers(tmp_path)


def stop_alike(config: dict[str, Any]) -> None:
    context = train.get_context()
    calls = 1
    while not context.should_stop():
        calls += 1
        train.report({"calls": calls})
    note(config, calls=calls)


def test_every_rank_of_every_node_leaves_at_the_same_call(tmp_path: Path) -> None:
    trainable = DataParallelTrainer(stop_alike, scaling_config=ScalingConfig(num_workers=3)).as_trainable()
    nodes = ((ADDRESSES[0], 1), (ADDRESSES[1], 2))

    class Halting(NodesLink):
        def call(self, report: Any, *more: Any) -> Any:
            if report.iteration == 3:
                self.halt()
            return super().call(report, *more)

    link = Halting(trainable, tmp_path, nodes, config={"train_loop_config": {"root": str(tmp_path)}}).run()

    assert link.end == Preempted()
    assert link.ended() == [0]
    calls = [each["calls"] for each in notes(tmp_path)]
    assert len(calls) == 3
    assert len(set(calls)) == 1


def of_torch(config: dict[str, Any]) -> None:
    import torch
    import torch.distributed as dist

    total = torch.tensor([float(dist.get_rank() + 1)])
    dist.all_reduce(total)
    note(config, total=total.item(), env=[os.environ[name] for name in ("RANK", "LOCAL_RANK", "GROUP_RANK")])
    train.report({"total": total.item()})


def test_the_ranks_of_torch_meet_across_nodes_and_are_numbered_node_by_node(tmp_path: Path) -> None:
    def lead() -> None:
        trainable = TorchTrainer(of_torch, scaling_config=ScalingConfig(num_workers=3)).as_trainable()
        nodes = ((ADDRESSES[1], 1), (ADDRESSES[0], 2))  # not in the order of their addresses

        link = NodesLink(trainable, tmp_path, nodes, config={"train_loop_config": {"root": str(tmp_path)}}).run()

        assert link.end == Finished(), link.end
        assert link.ended() == [0]
        assert link.results[0]["total"] == 6

    assert in_child(lead) == 0  # ranks of torch are forked off a process that has no threads of other tests
    assert [each["env"] for each in notes(tmp_path)] == [["0", "0", "0"], ["1", "0", "1"], ["2", "1", "1"]]
