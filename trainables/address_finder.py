"""Who finds the checkpoint of an address: the package installs him, so that nothing that the driver imports has to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_find: Callable[[Any], Any] | None = None


def install(find: Callable[[Any], Any]) -> None:
    """Say who is asked; he returns None where an address names no experiment."""
    global _find
    _find = find


def found(address: Any) -> Any:
    """The checkpoint that an address means; None: it names no experiment. Raises CheckpointNotFoundError."""
    return None if _find is None else _find(address)
