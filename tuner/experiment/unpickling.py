"""Unpickling of what an experiment has stored: settings, search spaces, states of plug-ins.

A stored pickle names classes by the module that they were in when it was written; it is read for good.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any

MOVED = {"tuner.reason": "tuner.experiment.reason"}
"""Module that stored pickles name -> where its classes are now."""


class _StoredUnpickler(pickle.Unpickler):
    def __init__(self, data: bytes, known: Callable[[Any], Any]) -> None:
        super().__init__(io.BytesIO(data))
        self._known = known

    def persistent_load(self, pid: Any) -> Any:
        return self._known(pid)

    def find_class(self, module_name: str, global_name: str) -> Any:
        return super().find_class(MOVED.get(module_name, module_name), global_name)


def _nothing(name: Any) -> Any:
    raise pickle.UnpicklingError(f"the pickle names {name!r}, which is not in it")


def loads(data: bytes, known: Callable[[Any], Any] = _nothing) -> Any:
    """What a stored pickle holds. It executes what it names: only for experiments that are trusted.

    Args:
        known: gives what the pickle only names (`persistent_id`).
    """
    return _StoredUnpickler(data, known).load()
