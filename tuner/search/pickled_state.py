"""State of plug-ins: what searchers, schedulers and stoppers store, and how a resume restores it."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import cloudpickle

UNPICKLABLE = (TypeError, ValueError, AttributeError, NotImplementedError, RecursionError, pickle.PickleError)
"""What pickling raises for a value that cannot be."""


class Stateful:
    """Base of searchers, schedulers and stoppers: a state that is pickled, stored and taken up by a resume."""

    _remembered: ClassVar[tuple[str, ...] | None] = None
    """The attributes that later answers depend on, by name; None: all that can be pickled.

    In the state they are called so without their underscore. Of what the constructor was given, and keeps as `_given_x`
    beside `_x`, the state changes nothing.
    """

    def get_state(self) -> dict[str, Any]:
        """Everything that later answers depend on; what cannot be pickled is left out."""
        if self._remembered is None:
            return picklable_state(self)
        return {name.lstrip("_"): _copied(getattr(self, name)) for name in self._remembered}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from what `get_state` returned."""
        if self._remembered is None:
            self.__dict__.update(state)
        for name in self._remembered or ():
            value = getattr(self, name)
            if hasattr(value, "set_state"):
                value.set_state(state[name.lstrip("_")])
            elif getattr(self, f"_given{name}", None) is None:
                setattr(self, name, _as_before(value, state[name.lstrip("_")]))

    def save(self, checkpoint_path: str | Path) -> None:
        """Write the state to a file."""
        Path(checkpoint_path).write_bytes(cloudpickle.dumps(self.get_state()))

    def restore(self, checkpoint_path: str | Path) -> None:
        """Read the state from a file that `save` wrote. The file is unpickled: only use your own."""
        self.set_state(cloudpickle.loads(Path(checkpoint_path).read_bytes()))


def _copied(value: Any) -> Any:
    """What stays as it is when the plug-in goes on; a set is sorted, so that equal states have equal bytes."""
    if hasattr(value, "get_state"):
        return value.get_state()
    if isinstance(value, set):
        return sorted(value)
    return value.copy() if isinstance(value, (dict, list)) else value


def _as_before(value: Any, stored: Any) -> Any:
    """What was stored, as the kind of container that the attribute has."""
    if isinstance(value, dict):
        return dict(stored) if isinstance(stored, dict) else dict.fromkeys(stored)
    return type(value)(stored) if isinstance(value, (list, set)) and isinstance(stored, Iterable) else stored


def picklable_state(plugin: object) -> dict[str, Any]:
    """A plug-in's attributes, without those that cannot be pickled (locks, open files, clients)."""
    state = dict(vars(plugin))
    if _picklable(state):
        return state
    return {name: value for name, value in state.items() if _picklable(value)}


def _picklable(value: object) -> bool:
    try:
        cloudpickle.dumps(value)
    except UNPICKLABLE:
        return False
    return True
