"""Rank, world size, and small collective agreements of a distributed job. Imports torch only if it is there."""

from __future__ import annotations

import atexit
import datetime
import sys
from typing import Any

from trainables import knobs
from trainables.errors import RanksError
from trainables.torch.shutdown import wait_for_gloo
from trainables.validation import invalid, whole_number

atexit.register(wait_for_gloo)


def has_group() -> bool:
    """Whether the default process group is initialized. A process that never imported torch has none."""
    module = sys.modules.get("torch.distributed")
    return module is not None and module.is_available() and bool(module.is_initialized())


def rank_and_size() -> tuple[int, int]:
    """(rank, number of ranks): of the default process group, else (0, 1).

    Raises RanksError under torchrun with several ranks before `torch.distributed.init_process_group(...)`: each rank
    would take itself for the only one.
    """
    if has_group():
        import torch.distributed as dist

        return dist.get_rank(), dist.get_world_size()
    size = knobs.torchrun_world_size() or 1
    if size > 1:
        raise RanksError(
            f"WORLD_SIZE is {size} and there is no process group: call torch.distributed.init_process_group(...) "
            "first, or pass num_replicas and rank"
        )
    return 0, 1


def rank_or_zero() -> int:
    """The rank, of the process group, else as torchrun says, else 0."""
    if has_group():
        return rank_and_size()[0]
    return knobs.torchrun_rank() or 0


def checked_ranks(num_replicas: int | None, rank: int | None) -> tuple[int, int]:
    """Both as numbers, of the process group where they are not given."""
    if num_replicas is None or rank is None:
        group_rank, group_size = rank_and_size()
        num_replicas = group_size if num_replicas is None else num_replicas
        rank = group_rank if rank is None else rank
    num_replicas = whole_number("num_replicas", num_replicas, least=1)
    rank = whole_number("rank", rank, least=0)
    if rank >= num_replicas:
        raise invalid("rank", rank, f"a whole number from 0 to {num_replicas - 1} (num_replicas={num_replicas})")
    return num_replicas, rank


class Agreement:
    """How all ranks of the default process group agree on small things, over the CPU whatever the group's backend is.

    Building one is a collective call. A rank that dies meanwhile is an error for the others and no hang: its
    connections close, and a host that vanishes silently is given up after `timeout_s` seconds.
    """

    def __init__(self, *, timeout_s: float) -> None:
        import torch.distributed as dist

        self._timeout_s = timeout_s
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self._group = dist.new_group(backend="gloo", timeout=datetime.timedelta(seconds=timeout_s))

    def gather(self, value: Any, doing: str) -> list[Any]:
        """Everybody's value, by rank; nobody gets past it before all have come. `doing` is for the error's message.

        Raises RanksError.
        """
        import torch.distributed as dist

        values: list[Any] = [None] * self.size
        try:
            dist.all_gather_object(values, value, group=self._group)
        except RuntimeError as error:
            raise self._gone(doing) from error
        return values

    def tell(self, value: Any, source: int, doing: str) -> Any:
        """The value of the rank `source`, at every rank. Raises RanksError."""
        import torch.distributed as dist

        box = [value]
        try:
            dist.broadcast_object_list(box, src=source, group=self._group)
        except RuntimeError as error:
            raise self._gone(doing) from error
        return box[0]

    def _gone(self, doing: str) -> RanksError:
        return RanksError(
            f"rank {self.rank} of {self.size} was left alone while {doing}: another rank is gone, or did not come "
            f"within {self._timeout_s:g} s. What was saved before is complete; start the job again"
        )
