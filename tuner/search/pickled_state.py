"""What is kept of a plug-in that does not say itself what its state is."""

from __future__ import annotations

import pickle
from typing import Any

import cloudpickle


def picklable_state(plugin: object) -> dict[str, Any]:
    """A plug-in's attributes, without those that cannot be pickled (locks, open files, clients)."""
    state = dict(vars(plugin))
    if _picklable(state):
        return state
    return {name: value for name, value in state.items() if _picklable(value)}


def _picklable(value: object) -> bool:
    try:
        cloudpickle.dumps(value)
    except (TypeError, ValueError, AttributeError, NotImplementedError, RecursionError, pickle.PickleError):
        return False
    return True
