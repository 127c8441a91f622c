"""Sharded state: each rank saves its own part, any number of ranks loads it; also while training goes on.

    save_sharded(state, directory)          load_sharded(state, directory)          async_save(state, directory)

All ranks of the default process group call these together; a process without a group is the only rank. The files are
those of `torch.distributed.checkpoint`: `__<rank>_<n>.distcp` by each rank and `.metadata` by rank 0, so that a state
of 4 ranks loads on 2 or 8. The directory may be one that all ranks see (`AtomicDirectory`), or each rank's own, which
it reports (`train.report(..., checkpoint=...)`): the names are disjoint, and the parts are merged. What is written is
made durable by whoever publishes the directory.
"""

from __future__ import annotations

import contextlib
import copy
import os
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.tensor import DTensor

from trainables.errors import CheckpointError, CheckpointNotFoundError, PublishError, RanksError
from trainables.threads import Threads
from trainables.torch.ranks import has_group, rank_and_size
from trainables.torch.sharded_files import DirectReader
from trainables.validation import invalid

State = dict[str, Any]
METADATA = ".metadata"


def save_sharded(state: State, directory: str | os.PathLike[str]) -> None:
    """Write this rank's part of a state; returns when all ranks have written theirs.

    Args:
        state: name -> tensor, `DTensor` (of FSDP, of tensor parallelism), plain value, a dict or list of these, or at
            the top level an object with `state_dict()`. Sparse tensors are not accepted. A tensor that all ranks hold
            is written by one of them; of a plain value that of rank 0 counts. For a sharded model and its optimizer
            give what `torch.distributed.checkpoint.state_dict.get_state_dict(model, optimizer)` returns.
        directory: made when it is missing.

    Raises:
        InvalidSettingError: what is no such state, or no path.
        PublishError: a rank could not write.
        RanksError: a rank is gone, or there is no process group yet.

    Example:
        >>> import tempfile
        >>> directory = tempfile.mkdtemp()
        >>> save_sharded({"model": torch.nn.Linear(2, 1).state_dict(), "step": 3}, directory)
        >>> state = {"model": torch.nn.Linear(2, 1).state_dict(), "step": 0}
        >>> load_sharded(state, directory)
        >>> state["step"]
        3
    """
    _write(_taken(state, "save_sharded"), _path(directory, "save_sharded"), _group())


def load_sharded(state: State, directory: str | os.PathLike[str]) -> None:
    """Load into the tensors and objects of a state what any number of ranks had saved.

    Args:
        state: as for `save_sharded`, of the shapes that are wanted here: tensors are filled in place, plain values
            replaced, objects with `load_state_dict` get theirs. What the checkpoint holds beyond it is not read.
        directory: with the files of all ranks. Like `torch.load`, it unpickles: load what you trust.

    Raises:
        CheckpointNotFoundError: there is no `.metadata`.
        CheckpointError: something is missing in the checkpoint, or has another shape; a file is damaged. What fails at
            one rank fails at all.
        RanksError: a rank is gone, or there is no process group yet.
    """
    if not isinstance(state, dict):
        raise invalid("load_sharded: state", state, "a dict")
    path, group = _path(directory, "load_sharded"), _group()
    parts = {name: value.state_dict() if isinstance(value, Stateful) else value for name, value in state.items()}
    failure = _failure_of_reading(parts, path)
    if group is not None:
        failure = _first_failure(failure, group, f"loading {path}")
    if failure is not None:
        raise failure
    for name in sorted(state):  # in one order everywhere: objects may have the ranks speak to each other
        value = state[name]
        if isinstance(value, Stateful):
            value.load_state_dict(parts[name])
        else:
            state[name] = parts[name]


class AsyncSave:
    """Handle of an asynchronous sharded save."""

    def __init__(self, directory: str, future: Future[None]) -> None:
        self.directory = directory
        self._future = future
        self._told = False

    def done(self) -> bool:
        """Whether all is written, or has failed."""
        return self._future.done()

    def wait(self) -> None:
        """Return when all ranks have written their parts. Raises what `save_sharded` raises."""
        self._told = True
        self._future.result()

    def settle(self) -> None:
        """Like `wait`, but an error that was raised before is not raised again."""
        if self._told:
            wait([self._future])
        else:
            self.wait()


def async_save(state: State, directory: str | os.PathLike[str]) -> AsyncSave:
    """Copy a state aside and return; it is written behind the next steps. What is stored are the values at this call.

    The copies are made into buffers that are allocated by the first call and used again by the next ones (pinned, where
    the state is on a GPU); they need as much memory as this rank's part. A call waits until the save before it is
    written, and raises if it had failed and nobody had asked. Before the directory is reported or published, call
    `wait()`.

    Args and errors are those of `save_sharded`.

    Example:
        >>> import tempfile
        >>> weights = torch.zeros(3)
        >>> saving = async_save({"weights": weights}, tempfile.mkdtemp())
        >>> _ = weights.fill_(7)  # the next step
        >>> saving.wait()
        >>> load_sharded(state := {"weights": torch.ones(3)}, saving.directory)
        >>> state["weights"]
        tensor([0., 0., 0.])
    """
    taken, path, group = _taken(state, "async_save"), _path(directory, "async_save"), _group()
    staged = _background.stage(taken)
    return _background.submit(staged, path, group)


class _Background:
    """The buffers of a process, and the thread that writes them out."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[Any, ...], torch.Tensor] = {}
        self._writing: AsyncSave | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._pid = 0

    def stage(self, state: State) -> State:
        """A copy of the state that later steps do not touch."""
        if self._pid != os.getpid():  # a forked child has the buffers, and no thread
            self._thread, self._writing, self._pid = None, None, os.getpid()
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.settle()
        before, self._buffers = self._buffers, {}
        with torch.no_grad():
            staged: State = self._copied(state, (), before)
        for device in {value.device for value in _tensors(state) if value.is_cuda}:
            torch.cuda.synchronize(device)
        return staged

    def submit(self, staged: State, path: str, group: Any) -> AsyncSave:
        if self._thread is None:
            self._thread = Threads(1, thread_name_prefix="sharded-save")
        self._writing = AsyncSave(path, self._thread.submit(_write, staged, path, group))
        return self._writing

    def _copied(self, value: Any, name: tuple[Any, ...], before: Mapping[tuple[Any, ...], torch.Tensor]) -> Any:
        if isinstance(value, DTensor):
            # Not `from_local`, which moves the copy back to the mesh's devices.
            local = self._buffer(value.to_local(), name, before)
            return DTensor(local, value._spec, requires_grad=False)  # type: ignore[no-untyped-call]
        if isinstance(value, torch.Tensor):
            return self._buffer(value, name, before)
        if isinstance(value, Mapping):
            return {key: self._copied(inner, (*name, key), before) for key, inner in value.items()}
        if type(value) in (list, tuple):
            return type(value)(self._copied(inner, (*name, index), before) for index, inner in enumerate(value))
        return copy.deepcopy(value)

    def _buffer(
        self, value: torch.Tensor, name: tuple[Any, ...], before: Mapping[tuple[Any, ...], torch.Tensor]
    ) -> torch.Tensor:
        buffer = before.get(name)
        if buffer is None or buffer.shape != value.shape or buffer.dtype != value.dtype:
            buffer = torch.empty(value.shape, dtype=value.dtype, device="cpu", pin_memory=value.is_cuda)
        self._buffers[name] = buffer
        return buffer.copy_(value.detach(), non_blocking=True)


_background = _Background()
_groups: list[tuple[Any, Any]] = []
"""At most one pair: the default process group, and ours with its ranks."""


def _group() -> Any:
    """A group of our own over the CPU, whatever the default one's backend is; None: this process is the only rank.

    Nobody else speaks over it, so that a save behind the training does not come in between. The first call is
    collective.
    """
    if not has_group():
        rank_and_size()  # raises where there ought to be one
        return None
    default = dist.group.WORLD
    if not _groups or _groups[0][0] is not default:
        _groups[:] = [(default, dist.new_group(backend="gloo"))]
    return _groups[0][1]


def _failure_of_reading(state: State, path: str) -> CheckpointError | None:
    """Read what this rank wants, alone: nothing of a load has to be planned together."""
    if not os.path.exists(os.path.join(path, METADATA)):
        return CheckpointNotFoundError(f"{path} holds no sharded state: {METADATA} is missing")
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.distributed is disabled")  # that is no mistake
            load(state, storage_reader=DirectReader(path), no_dist=True)
    except (CheckpointException, OSError, ValueError, RuntimeError) as error:
        first = next(iter(error.failures.values()))[0] if isinstance(error, CheckpointException) else error
        rank = dist.get_rank() if has_group() else 0
        failure = CheckpointError(f"loading {path} failed at rank {rank}: {type(first).__name__}: {first}")
        failure.__cause__ = first
        return failure
    return None


def _first_failure(failure: CheckpointError | None, group: Any, doing: str) -> CheckpointError | None:
    """At every rank its own failure, else that of the first rank that has one; nobody gets past it before all came."""
    size = dist.get_world_size(group)
    failed = torch.tensor(size if failure is None else dist.get_rank(group))
    try:
        dist.all_reduce(failed, op=dist.ReduceOp.MIN, group=group)
        if int(failed) == size:
            return None
        box = [str(failure)]
        dist.broadcast_object_list(box, src=int(failed), group=group)
    except RuntimeError as error:
        raise RanksError(f"{doing}: another rank is gone, or did not come in time: {error}") from error
    return CheckpointError(box[0]) if failure is None else failure


def _write(state: State, path: str, group: Any) -> None:
    writer = FileSystemWriter(path, sync_files=False)
    with _explained(f"saving into {path}"):
        if group is None:
            _write_alone(state, writer)
        else:
            save(state, storage_writer=writer, process_group=group)


def _write_alone(state: State, writer: FileSystemWriter) -> None:
    """What `save` does with one rank, without the warning that there is only one."""
    planner = DefaultSavePlanner()
    planner.set_up_planner(state, writer.storage_meta(), True)
    writer.set_up_storage_writer(True)
    plans, metadata = planner.create_global_plan([writer.prepare_local_plan(planner.create_local_plan())])
    (plan,) = writer.prepare_global_plan(plans)
    writer.finish(metadata, [writer.write_data(planner.finish_plan(plan), planner).wait()])


@contextlib.contextmanager
def _explained(doing: str) -> Iterator[None]:
    try:
        yield
    except CheckpointException as error:
        rank, (first, _) = min(error.failures.items(), key=lambda failure: failure[0])
        raise PublishError(f"{doing} failed at rank {rank}: {type(first).__name__}: {first}") from first
    except OSError as error:  # of a process that is alone
        raise PublishError(f"{doing} failed: {error}") from error
    except (ValueError, RuntimeError) as error:
        if not has_group():
            raise PublishError(f"{doing} failed: {error}") from error
        raise RanksError(f"{doing}: another rank is gone, or did not come in time: {error}") from error


def _taken(state: Any, caller: str) -> State:
    """The state with the objects in it replaced by theirs."""
    if not isinstance(state, Mapping) or not state:
        raise invalid(f"{caller}: state", state, "a dict of tensors, of values, and of objects with state_dict()")
    taken = {name: value.state_dict() if hasattr(value, "state_dict") else value for name, value in state.items()}
    for value in _tensors(taken):
        if value.layout != torch.strided:
            raise invalid(f"{caller}: state", value.layout, "dense tensors; `to_dense()` makes one")
    return taken


def _path(directory: Any, caller: str) -> str:
    if not isinstance(directory, str | os.PathLike) or not os.fspath(directory):
        raise invalid(f"{caller}: directory", directory, "a path")
    return os.path.abspath(os.fspath(directory))


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _tensors(inner)
