"""A group on several nodes, without a cluster: each node is an address of the loopback and a directory of its own.

Covers node_launcher and file_transfer too.
"""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
import traceback
from collections.abc import Callable
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import cloudpickle
import psutil
import pytest

import trainables as train
from tests.failures.checkpoint_faults import in_child
from trainables import Checkpoint, ScalingConfig
from trainables.data_parallel_trainer import DataParallelTrainer
from trainables.errors import PublishError, RanksError
from trainables.group.framework import Framework, GroupSpec
from trainables.group.leader import Leader
from trainables.group.rank_messages import Raised
from trainables.group.remote_nodes import RankExited, RankSaid, RemoteNode
from trainables.job import GroupNodes, Replicated
from trainables.runtime.attempt import Attempt
from trainables.runtime.worker import run_job
from trainables.store import manifest, staging
from trainables.testing import MemoryLink, example_job
from trainables.torch import TorchTrainer
from trainables.wire import AttemptErrored, Finished, Listening, Preempted, Report, SaveFailed, SaveUploaded

KEY = b"sixteen bytes ok"
ADDRESSES = ("127.0.0.1", "127.0.0.2")


class Cluster(MemoryLink):
    """A driver in memory that starts the processes of the further nodes when the first one listens."""

    def __init__(self, trainable: Any, root: Path, nodes: tuple[tuple[str, int], ...], **job: Any) -> None:
        super().__init__()
        self.trainable, self.root, self.nodes, self.job = trainable, root, nodes, job
        self.further: list[int] = []

    def run(self) -> Cluster:
        run_job(self.job_of(0), self.trainable, self, own_process=False)
        return self

    def post(self, message: Any) -> None:
        super().post(message)
        if isinstance(message, Listening):
            self.further = [self._start(node, message.port) for node in range(1, len(self.nodes))]

    def job_of(self, node: int, port: int = 0) -> Any:
        given = {name: value(node) if callable(value) else value for name, value in self.job.items()}
        root = self.root if given.pop("shared", False) else self.root / f"node{node}"
        return example_job(root, group_nodes=GroupNodes(self.nodes, node, KEY, port), **given)

    def _start(self, node: int, port: int) -> int:
        pid = os.fork()
        if pid:
            return pid
        try:
            run_job(self.job_of(node, port), self.trainable, MemoryLink(), own_process=False)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)

    def ended(self) -> list[int]:
        """Wait for the further nodes; their statuses."""
        return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in self.further]

    def directory(self, node: int) -> Path:
        return self.root / f"node{node}" / "train_t1"


def run(function: Callable[..., Any], root: Path, *, ranks: tuple[int, ...] = (1, 2), **job: Any) -> Cluster:
    trainable = DataParallelTrainer(function, scaling_config=ScalingConfig(num_workers=sum(ranks))).as_trainable()
    job.setdefault("config", {"train_loop_config": {"root": str(root)}})
    return Cluster(trainable, root, tuple(zip(ADDRESSES, ranks, strict=True)), **job).run()


def files(directory: Path) -> dict[str, str]:
    found = (path for path in sorted(directory.rglob("*")) if path.is_file() and path.name != ".manifest.json")
    return {str(path.relative_to(directory)): path.read_text() for path in found}


def saved(**names: str) -> Checkpoint:
    directory = Path(tempfile.mkdtemp())
    for name, text in names.items():
        (directory / name).write_text(text)
    return Checkpoint.from_directory(directory, move=True)


def note(config: dict[str, Any], **what: Any) -> None:
    Path(config["root"], f"rank{train.get_context().get_world_rank()}").write_text(json.dumps(what))


def notes(root: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(root.glob("rank?"))]


def leftovers(root: Path) -> list[Path]:
    return [*root.rglob(f"{staging.PREFIX}*"), *root.rglob("group-*")]


def save_all(config: dict[str, Any]) -> None:
    context = train.get_context()
    rank = context.get_world_rank()
    found = train.get_checkpoint()
    start = None if found is None else files(Path(found.path))
    for step in range(2):
        train.report({"step": step, "rank": rank}, checkpoint=saved(**{f"of_{rank}": str(step), "all": str(rank)}))
    newest = train.get_checkpoint()
    assert newest is not None
    with newest.as_directory() as directory:
        note(
            config, at=[rank, context.get_local_rank(), context.get_local_world_size(), context.get_node_rank()],
            start=start, newest=files(Path(directory)), size=context.get_world_size(), here=str(Path.cwd()),
        )  # fmt: skip
    with train.checkpoint_dir() as path:
        Path(path, "deep", "empty").mkdir(parents=True)
        Path(path, f"dir_{rank}").write_bytes(os.urandom(3_000_000) if rank == 2 else b"")
    train.report({"step": 2})


def test_what_ranks_on_several_hosts_save_is_one_checkpoint_of_the_leaders(tmp_path: Path) -> None:
    for node in range(2):
        (tmp_path / f"given{node}").mkdir()
        (tmp_path / f"given{node}" / "from").write_text("before")

    link = run(save_all, tmp_path, checkpoint_path=lambda node: tmp_path / f"given{node}")

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

    link = run(save, tmp_path, replicated=replicated)

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


def test_hosts_that_share_the_directory_send_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trainables.group.file_transfer import LeaderFiles

    monkeypatch.setattr(LeaderFiles, "send", lambda *_: os._exit(9))
    monkeypatch.setattr(LeaderFiles, "fetch", lambda *_: os._exit(9))

    link = run(save_all, tmp_path, shared=True)

    assert link.end == Finished()
    assert link.ended() == [0]
    assert [each["newest"]["of_2"] for each in notes(tmp_path)] == ["1"] * 3
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

    class Halting(Cluster):
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


def fail_in_rank(config: dict[str, Any]) -> None:
    context = train.get_context()
    train.report({"i": 1})
    if context.get_world_rank() == 2:
        if config["how"] == "raise":
            raise ValueError("wrong over there")
        if config["how"] == "full":

            def full(*_: Any) -> Path:
                raise PublishError(28, "no room")

            staging.hand_over = full
        elif config["how"] == "launcher":
            os.kill(os.getppid(), signal.SIGKILL)
        else:
            os.kill(os.getpid(), signal.SIGKILL)
    train.report({"i": 2}, checkpoint=saved(model="x"))


@pytest.mark.parametrize(
    ("how", "kind", "text"),
    [
        ("raise", "ValueError", "wrong over there"),
        ("kill", "RanksError", "on 127.0.0.2) was killed by signal 9"),
        ("launcher", "RanksError", "node 127.0.0.2 was lost, and with it ranks 1 to 2"),
        ("full", "PublishError", "no room"),
    ],
)
def test_what_goes_wrong_on_another_node_ends_the_whole_group(tmp_path: Path, how: str, kind: str, text: str) -> None:
    config = {"train_loop_config": {"root": str(tmp_path), "how": how}}
    before = psutil.Process().children(recursive=True)

    link = run(fail_in_rank, tmp_path, config=config, max_publish_failures=1)

    assert isinstance(link.end, AttemptErrored)
    assert (link.end.type, text in link.end.message) == (kind, True), link.end.message
    assert link.ended() == [-9 if how == "launcher" else 0]
    assert len(link.results) == (2 if how == "full" else 1)
    assert bool(link.of(SaveFailed)) == (how == "full")
    if how != "launcher":  # what it leaves is ended by its keeper
        new = [child for child in psutil.Process().children(recursive=True) if child not in before]
        assert not [child for child in new if child.status() != "zombie"]
        assert not leftovers(tmp_path)


def wait_for_ever(config: dict[str, Any]) -> None:
    note(config, pid=os.getpid(), parent=os.getppid())
    train.report({})
    signal.pause()


def test_a_leader_that_is_killed_takes_the_ranks_of_the_other_nodes_along(tmp_path: Path) -> None:
    read, write = os.pipe()  # each process holds its end
    leader = os.fork()
    if not leader:
        run(wait_for_ever, tmp_path)
        os._exit(0)
    os.close(write)
    end = time.monotonic() + 60
    while len(list(tmp_path.glob("rank?"))) < 3 or not all(path.stat().st_size for path in tmp_path.glob("rank?")):
        assert time.monotonic() < end
        time.sleep(0.01)
    here, *there = notes(tmp_path)

    os.kill(leader, signal.SIGKILL)
    os.waitpid(leader, 0)
    os.kill(here["pid"], signal.SIGKILL)  # its keeper's business otherwise

    assert {each["parent"] for each in there} != {leader}
    assert not os.read(read, 1)  # returns when nobody holds the other end
    os.close(read)
    assert not leftovers(tmp_path / "node1")


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

        link = Cluster(trainable, tmp_path, nodes, config={"train_loop_config": {"root": str(tmp_path)}}).run()

        assert link.end == Finished(), link.end
        assert link.ended() == [0]
        assert link.results[0]["total"] == 6

    assert in_child(lead) == 0  # ranks of torch are forked off a process that has no threads of other tests
    assert [each["env"] for each in notes(tmp_path)] == [["0", "0", "0"], ["1", "0", "1"], ["2", "1", "1"]]


def test_a_group_says_what_each_of_its_bundles_needs() -> None:
    scaling = ScalingConfig(num_workers=3, trainer_resources={"CPU": 1}, resources_per_worker={"CPU": 2, "x": 0.5})
    group = DataParallelTrainer(of_torch, scaling_config=scaling).as_trainable()

    assert group.bundles({"cpu": 7.0, "x": 1.5}) == [{"cpu": 3, "x": 0.5}, {"cpu": 2, "x": 0.5}, {"cpu": 2, "x": 0.5}]
    assert group.bundles({"cpu": 5.0, "x": 1.0}) == [{"cpu": 3, "x": 0.5}, {"cpu": 2, "x": 0.5}]
    assert group.bundles({"cpu": 7.0}) is None


def test_last_words_from_other_nodes_are_heard_while_a_cause_is_looked_for(tmp_path: Path) -> None:
    """One that raised by itself is not taken for one that died without a word."""
    leader = Leader(Attempt(example_job(tmp_path), MemoryLink(), clock=time), GroupSpec(Framework(), 2))
    ours, theirs = Pipe()
    leader._nodes.remote = [RemoteNode(1, "127.0.0.2", range(1, 2), ours)]
    theirs.send(RankSaid(1, Raised("ValueError", "no", "ValueError: no"), 0))
    theirs.send(RankExited(1, 1))

    with pytest.raises(RanksError, match="the first to fail"):
        leader._fail(leader._ranks[0], Raised("RanksError", "the first to fail", ""))

    assert leader._ranks[1].last is not None and leader._ranks[1].gone
