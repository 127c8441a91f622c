"""What the workers of a training do together: wait for one another, and hand on a value."""

from __future__ import annotations

import sys
from typing import Any, TypeVar

from trainables import session
from trainables.errors import SessionError

__all__ = ["barrier", "broadcast_from_rank_zero"]

T = TypeVar("T")


def barrier() -> None:
    """Return when every worker has called it. Alone, at once. Raises SessionError outside of a TorchTrainer."""
    if session.get_world_size() > 1:
        _process_group("barrier").barrier()


def broadcast_from_rank_zero(data: T) -> T:
    """Give every worker what rank 0 gives; all of them call it.

    Args:
        data: of rank 0; what the others give is not looked at. It is pickled, and meant to be small.

    Raises SessionError outside of a TorchTrainer.

    >>> broadcast_from_rank_zero({"port": 3000})
    {'port': 3000}
    """
    if session.get_world_size() == 1:
        return data
    values: list[Any] = [data]
    _process_group("broadcast_from_rank_zero").broadcast_object_list(values, src=0)
    handed_on: T = values[0]
    return handed_on


def _process_group(name: str) -> Any:
    torch: Any = sys.modules.get("torch")
    group = None if torch is None else torch.distributed
    if group is None or not group.is_available() or not group.is_initialized():
        raise SessionError(f"{name}(): these workers have no process group; a TorchTrainer's have one")
    return group
