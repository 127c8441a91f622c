"""Groups for tests: one on this machine under a driver in memory, and one whose nodes are addresses of the loopback."""

from __future__ import annotations

import json
import os
import pickle
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trainables as train
from trainables import ScalingConfig, session
from trainables.checkpoint import Checkpoint
from trainables.data_parallel_trainer import DataParallelTrainer
from trainables.group.framework import Framework, GroupSpec
from trainables.group.leader import Leader
from trainables.job import GroupNodes
from trainables.runtime.attempt import Attempt
from trainables.runtime.worker import run_job
from trainables.store import staging
from trainables.testing import MemoryLink, example_job, run_trial
from trainables.wire import AttemptErrored, Listening

RankFunction = Callable[[int], Any]


def run_group(
    function: RankFunction,
    root: Path,
    *,
    size: int = 2,
    timeout_s: float = 100,
    link: MemoryLink | None = None,
    **job: Any,
) -> MemoryLink:
    """Run `function(rank)` in every rank of a group, under a driver in memory."""

    def train(config: dict[str, Any]) -> None:
        attempt = session.current()
        assert isinstance(attempt, Attempt)
        backend = Framework()
        backend.timeout_s = timeout_s
        leader = Leader(attempt, GroupSpec(backend, size, metadata={"of": "all"}))
        returned = leader.run(lambda: function(session.get_world_rank()))
        (root / "returned").write_bytes(pickle.dumps(returned))

    return run_trial(train, root, link=link, **job)


def trial_dir(root: Path) -> Path:
    return root / "train_t1"


def files(directory: Path) -> dict[str, str]:
    found = (path for path in sorted(directory.rglob("*")) if path.is_file() and path.name != ".manifest.json")
    return {str(path.relative_to(directory)): path.read_text() for path in found}


def saved(**names: str) -> Checkpoint:
    """A checkpoint of small files, handed over."""
    directory = Path(tempfile.mkdtemp())
    for name, text in names.items():
        (directory / name).write_text(text)
    return Checkpoint.from_directory(directory, move=True)


def error_of(link: MemoryLink) -> AttemptErrored:
    assert isinstance(link.end, AttemptErrored), link.end
    return link.end


def leftovers(root: Path) -> list[Path]:
    return [*root.rglob(f"{staging.PREFIX}*"), *root.rglob("group-*")]


KEY = b"sixteen bytes ok"


ADDRESSES = ("127.0.0.1", "127.0.0.2")


class NodesLink(MemoryLink):
    """A driver in memory that starts the processes of the further nodes when the first one listens."""

    def __init__(self, trainable: Any, root: Path, nodes: tuple[tuple[str, int], ...], **job: Any) -> None:
        super().__init__()
        self.trainable, self.root, self.nodes, self.job = trainable, root, nodes, job
        self.further: list[int] = []

    def run(self) -> NodesLink:
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


def run_nodes(function: Callable[..., Any], root: Path, *, ranks: tuple[int, ...] = (1, 2), **job: Any) -> NodesLink:
    trainable = DataParallelTrainer(function, scaling_config=ScalingConfig(num_workers=sum(ranks))).as_trainable()
    job.setdefault("config", {"train_loop_config": {"root": str(root)}})
    return NodesLink(trainable, root, tuple(zip(ADDRESSES, ranks, strict=True)), **job).run()


def note(config: dict[str, Any], **what: Any) -> None:
    Path(config["root"], f"rank{train.get_context().get_world_rank()}").write_text(json.dumps(what))


def notes(root: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(root.glob("rank?"))]


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
