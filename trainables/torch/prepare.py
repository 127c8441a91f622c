"""`prepare_model`, `prepare_data_loader` and relatives: device, DDP or FSDP, data shards, mixed precision.

All of it works in a plain script too, where there is one process.
"""

from __future__ import annotations

import functools
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from types import MethodType, NoneType
from typing import TYPE_CHECKING, Any

from trainables import knobs, session
from trainables.errors import InvalidSettingError
from trainables.validation import flag, invalid, one_of

if TYPE_CHECKING:
    import torch
    from torch.utils.data import DataLoader

STRATEGIES = (None, "ddp", "fsdp")


class _Mixed:
    """What `accelerate` has set for this process."""

    enabled = False
    scaler: Any = None
    """Scales losses, where gradients of half precision would vanish otherwise."""


_mixed = _Mixed()


def get_device() -> torch.device:
    """The device of this process: its first GPU in a trainer with `use_gpu=True`, else the CPU."""
    return get_devices()[0]


def get_devices() -> list[torch.device]:
    """The devices of this process; several where `resources_per_worker` says so."""
    import torch

    given = session.get_trial_resources()
    gpus = given.get("gpu", 0.0) if given is not None else float(torch.cuda.is_available())
    if not gpus:
        return [torch.device("cpu")]
    each = gpus / session.get_local_world_size()
    first = int(session.get_local_rank() * each)
    return [torch.device("cuda", first + i) for i in range(max(1, int(each)))]


def prepare_model(
    model: torch.nn.Module,
    move_to_device: bool | torch.device = True,
    parallel_strategy: str | None = "ddp",
    parallel_strategy_kwargs: Mapping[str, Any] | None = None,
    wrap_ddp: bool | None = None,
    ddp_kwargs: Mapping[str, Any] | None = None,
) -> torch.nn.Module:
    """Move a model to this process's device and make it train in parallel; alone, it stays as it is.

    Args:
        model: a module, the same in every process; what differs is taken from rank 0.
        move_to_device: False leaves it where it is; a device says where.
        parallel_strategy: "ddp" wraps it in DistributedDataParallel, "fsdp" shards its parameters (FSDP2: `fully_shard`
            on each direct child that has parameters, then on the model), None does neither.
        parallel_strategy_kwargs: for DistributedDataParallel, or for `fully_shard`.
        wrap_ddp, ddp_kwargs: older names: False is `parallel_strategy=None`.

    Raises InvalidSettingError.
    """
    import torch

    if not isinstance(model, torch.nn.Module):
        raise invalid("prepare_model: model", model, "a torch.nn.Module")
    if wrap_ddp is not None:
        parallel_strategy = "ddp" if flag("prepare_model: wrap_ddp", wrap_ddp) else None
    one_of("prepare_model: parallel_strategy", parallel_strategy, STRATEGIES)
    kwargs = dict(parallel_strategy_kwargs or ddp_kwargs or {})
    device = get_device() if isinstance(move_to_device, bool) else torch.device(move_to_device)
    if move_to_device:
        model = model.to(device)
    if _mixed.enabled:
        _autocast(model, device)
    if session.get_world_size() == 1 or parallel_strategy is None:
        return model
    if parallel_strategy == "ddp":
        if not any(parameter.requires_grad for parameter in model.parameters()):
            return model  # there is nothing to be averaged, and DDP refuses it
        if device.type == "cuda":
            kwargs = {"device_ids": [device], "output_device": device, **kwargs}
        return torch.nn.parallel.DistributedDataParallel(model, **kwargs)
    return _sharded(model, device, kwargs)


def prepare_data_loader(
    data_loader: DataLoader[Any], add_dist_sampler: bool = True, move_to_device: bool = True, auto_transfer: bool = True
) -> Any:
    """A loader of this process's share of the data, whose batches lie on its device.

    The loader has a random generator of its own, seeded from torch's: each `iter(loader)` draws a number from the
    loader's generator, by default torch's global one, so that a training that continues in the middle of an epoch, and
    makes one iterator more than one that was not interrupted, would draw differently from there on. With an own one the
    model's random numbers do not depend on how often the data was begun.

    Args:
        data_loader: a DataLoader; use what is returned in its place.
        add_dist_sampler: give each process its share, by a DistributedSampler that shuffles if the loader did: call
            `loader.sampler.set_epoch(epoch)` before each epoch. A DistributedSampler, a sampler of
            `trainables.torch`, or an iterable dataset is left as it is.
        move_to_device: move batches (tensors, and dicts, lists and tuples of them).
        auto_transfer: to a GPU, without waiting for it where the loader has `pin_memory=True`.

    Raises InvalidSettingError for a loader with a batch sampler or a sampler of the user's own, when there are several
    processes: only its author knows how it is shared.
    """
    import torch
    from torch.utils.data import DataLoader, IterableDataset, RandomSampler

    if not isinstance(data_loader, DataLoader):
        raise invalid("prepare_data_loader: data_loader", data_loader, "a torch.utils.data.DataLoader")
    shares = add_dist_sampler and session.get_world_size() > 1
    if shares and not isinstance(data_loader.dataset, IterableDataset):
        data_loader = _shared(data_loader)
    if data_loader.generator is None:
        # Seeded by a draw from the global one: a run with a seed is the same again.
        own = torch.Generator()
        own.manual_seed(int(torch.empty((), dtype=torch.int64).random_().item()))
        data_loader.generator = own
        if isinstance(data_loader.sampler, RandomSampler) and data_loader.sampler.generator is None:
            data_loader.sampler.generator = own  # it draws a seed for each epoch
    if not move_to_device:
        return data_loader
    device = get_device()
    if device.type == "cpu":
        return data_loader
    return DeviceLoader(data_loader, device, ahead=auto_transfer)


def prepare_optimizer(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """The optimizer, which steps on scaled gradients after `accelerate(amp=True)` on a GPU; else as it is."""
    import torch

    if not isinstance(optimizer, torch.optim.Optimizer):
        raise invalid("prepare_optimizer: optimizer", optimizer, "a torch.optim.Optimizer")
    if _mixed.scaler is not None:
        scaler, step = _mixed.scaler, optimizer.step

        @functools.wraps(step)  # with the mark of an lr scheduler that was made before
        def scaled(own: Any, closure: Any = None) -> Any:
            if closure is not None:
                raise InvalidSettingError("step(closure) does not work with mixed precision: call step() without one")
            outermost, own.step = own.step, step
            try:
                result = scaler.step(own)
                scaler.update()
            finally:
                own.step = outermost
            return result

        # Bound, as an lr scheduler expects it that is made afterwards, and wraps it.
        optimizer.step = MethodType(scaled, optimizer)  # type: ignore[method-assign]
    return optimizer


def backward(tensor: torch.Tensor) -> None:
    """`tensor.backward()`, on a scaled loss where `accelerate(amp=True)` needs it."""
    if _mixed.scaler is not None:
        tensor = _mixed.scaler.scale(tensor)
    tensor.backward()  # type: ignore[no-untyped-call]


def accelerate(amp: bool = False) -> torch.amp.GradScaler | None:
    """Train in mixed precision. Call it first, then `prepare_model`, `prepare_optimizer`, and `backward(loss)`.

    Args:
        amp: the model's forward pass runs under autocast: float16 on a GPU, with scaled losses; bfloat16 on a CPU.

    Returns:
        What scales the losses, None where nothing does: `TrainState(scaler=...)` has its state in a checkpoint.
    """
    import torch

    flag("accelerate: amp", amp)
    _mixed.enabled, _mixed.scaler = amp, None
    if amp and get_device().type == "cuda":
        _mixed.scaler = torch.amp.GradScaler("cuda")
    scaler: torch.amp.GradScaler | None = _mixed.scaler
    return scaler


def enable_reproducibility(seed: int = 0) -> None:
    """Seed python's, numpy's and torch's generators with the same number in every process; deterministic kernels only.

    A trial is seeded anyway, each rank with a number of its own; this makes also what a GPU computes the same each
    time, at the cost of speed. An operation that has no deterministic form raises.
    """
    import torch

    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise invalid("enable_reproducibility: seed", seed, "a whole number from 0 to 2**32 - 1")
    random.seed(seed)
    torch.manual_seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    knobs.default("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it cuBLAS refuses to be deterministic


class DeviceLoader:
    """A DataLoader whose batches are on a device; everything else is the loader's."""

    def __init__(self, loader: DataLoader[Any], device: torch.device, *, ahead: bool) -> None:
        self.loader, self.device = loader, device
        self._without_waiting = ahead and loader.pin_memory

    def __iter__(self) -> Iterator[Any]:
        for batch in self.loader:
            yield moved(batch, self.device, non_blocking=self._without_waiting)

    def __len__(self) -> int:
        return len(self.loader)

    def __getattr__(self, name: str) -> Any:
        if name == "loader":
            raise AttributeError(name)  # while it is unpickled
        return getattr(self.loader, name)


def moved(batch: Any, device: torch.device, *, non_blocking: bool = False) -> Any:
    """A batch on a device: tensors, and dicts, lists and (named) tuples of them; anything else as it is."""
    return _changed(batch, lambda tensor: tensor.to(device, non_blocking=non_blocking))


def _changed(value: Any, change: Callable[[Any], Any]) -> Any:
    """A value with each tensor in it changed: in dicts, lists and (named) tuples."""
    import torch

    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _changed(part, change) for key, part in value.items()}
    if isinstance(value, list | tuple):
        parts = [_changed(part, change) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def _shared(loader: DataLoader[Any]) -> DataLoader[Any]:
    """The same loader over this process's share of the dataset."""
    from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler, SequentialSampler

    from trainables.torch.interruptable import Interruptable

    share = (DistributedSampler, Interruptable)
    if isinstance(loader.sampler, share) or isinstance(loader.batch_sampler, share):
        return loader
    if type(loader.batch_sampler) not in (BatchSampler, NoneType):
        raise invalid("prepare_data_loader: batch_sampler", loader.batch_sampler, _OWN_SAMPLER)
    if type(loader.sampler) not in (RandomSampler, SequentialSampler):
        raise invalid("prepare_data_loader: sampler", loader.sampler, _OWN_SAMPLER)
    sampler: Any = DistributedSampler(
        loader.dataset,
        num_replicas=session.get_world_size(),
        rank=session.get_world_rank(),
        shuffle=isinstance(loader.sampler, RandomSampler),
        drop_last=False,
    )
    kept = "batch_size num_workers collate_fn pin_memory drop_last timeout worker_init_fn generator".split()
    if loader.num_workers:
        kept += ["prefetch_factor", "persistent_workers", "multiprocessing_context"]
    return DataLoader(loader.dataset, sampler=sampler, **{name: getattr(loader, name) for name in kept})


_OWN_SAMPLER = (
    "shuffle=True or False, which is replaced by a DistributedSampler; with a sampler of your own let it give each "
    "rank its share, and say add_dist_sampler=False"
)


def _autocast(model: torch.nn.Module, device: torch.device) -> None:
    import torch

    forward: Callable[..., Any] = model.forward
    dtype = torch.float16 if device.type == "cuda" else torch.bfloat16
    half = (torch.float16, torch.bfloat16)

    def in_mixed_precision(*arguments: Any, **named: Any) -> Any:
        with torch.autocast(device.type, dtype=dtype):
            found = forward(*arguments, **named)
        # In full: losses are computed outside of autocast.
        return _changed(found, lambda tensor: tensor.float() if tensor.dtype in half else tensor)

    model.forward = in_mixed_precision


def _sharded(model: torch.nn.Module, device: torch.device, kwargs: dict[str, Any]) -> torch.nn.Module:
    """FSDP2. Unlike DDP it takes each rank's own values, so rank 0's are sent to all first."""
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            dist.broadcast(tensor, src=0)
    if "mesh" not in kwargs:
        kwargs["mesh"] = init_device_mesh(device.type, (dist.get_world_size(),))
    for child in model.children():
        if any(True for _ in child.parameters()) and not isinstance(child, torch.nn.ModuleList | torch.nn.ModuleDict):
            fully_shard(child, **kwargs)
    fully_shard(model, **kwargs)
    return model
