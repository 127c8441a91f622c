"""Unpickling of what an experiment has stored: settings, search spaces, states of plug-ins.

A stored pickle names classes by the module that they were in when it was written; it is read for good.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

MOVED = {"tuner.reason": "tuner.experiment.reason"}
"""Module that stored pickles name -> where its classes are now."""


class _StoredUnpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str) -> Any:
        return super().find_class(MOVED.get(module_name, module_name), global_name)


def loads(data: bytes) -> Any:
    """What a stored pickle holds. It executes what it names: only for experiments that are trusted."""
    return _StoredUnpickler(io.BytesIO(data)).load()
