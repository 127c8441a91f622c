"""State of plug-ins: what searchers, schedulers and stoppers store, and how a resume restores it."""

from __future__ import annotations

import copy
import os
import pickle
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import cloudpickle

from tuner.error import SettingError

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
        """Everything that later answers depend on; what cannot be pickled is left out.

        Where something is, what the `save` (or `save_to_dir`) of a user's class writes is in it as well.
        """
        if self._remembered is None:
            state = picklable_state(self)
            if len(state) < len(vars(self)) and (files := _saved_by(self)):
                state[_FILES] = files
            return state
        return {name.lstrip("_"): _copied(getattr(self, name)) for name in self._remembered}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from what `get_state` returned."""
        if self._remembered is None:
            files = state.get(_FILES)
            self.__dict__.update({name: value for name, value in state.items() if name != _FILES})
            if files:
                _restore_from(self, files)
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


class SavedToDirectory(Stateful):
    """A plug-in whose state can be saved into a directory beside others', as Ray's searchers do."""

    CKPT_FILE_TMPL: ClassVar[str] = "searcher-state-{}.pkl"
    """The name of the file; {} stands for the word by which states are told apart."""

    def save_to_dir(self, checkpoint_dir: str | Path, session_str: str = "default", **_: Any) -> None:
        """Write the state to a file of that directory, at once and whole."""
        path = Path(checkpoint_dir) / self.CKPT_FILE_TMPL.format(session_str)
        aside = path.with_name(f".{path.name}.tmp")
        self.save(str(aside))
        if aside.exists():
            os.replace(aside, path)

    def restore_from_dir(self, checkpoint_dir: str | Path) -> None:
        """Read the newest of the states that `save_to_dir` wrote there. Raises SettingError where there is none."""
        found = sorted(Path(checkpoint_dir).glob(self.CKPT_FILE_TMPL.format("*")))
        if not found:
            raise SettingError(
                f"restore_from_dir({str(checkpoint_dir)!r}): there is no state that save_to_dir wrote. An experiment's "
                "own is in its journal: resume it, or give it as warm_start= to a new one"
            )
        self.restore(str(found[-1]))

    def has_checkpoint(self, dirpath: str | Path) -> bool:
        """Whether `save_to_dir` wrote a state there."""
        return any(Path(dirpath).glob(self.CKPT_FILE_TMPL.format("*")))


_FILES = "files of its own save"


def _by_hand(plugin: Stateful) -> tuple[str, str] | None:
    """The names of a pair of methods that a user's class saves its state with; None: it has none."""
    for pair in (("save_to_dir", "restore_from_dir"), ("save", "restore")):
        own = [getattr(type(plugin), name, None) for name in pair]
        ours = [getattr(SavedToDirectory, name) for name in pair]
        if all(method is not None and method is not base for method, base in zip(own, ours, strict=True)):
            return pair
    return None


def _saved_by(plugin: Stateful) -> dict[str, bytes]:
    """Name -> content of what a plug-in's own method saves."""
    pair = _by_hand(plugin)
    if pair is None:
        return {}
    with tempfile.TemporaryDirectory() as place:
        if pair[0] == "save":
            plugin.save(os.path.join(place, "state"))
        else:
            getattr(plugin, pair[0])(place, session_str="state")
        return {file.name: file.read_bytes() for file in Path(place).iterdir() if file.is_file()}


def _restore_from(plugin: Stateful, files: dict[str, bytes]) -> None:
    pair = _by_hand(plugin)
    if pair is None:
        return
    with tempfile.TemporaryDirectory() as place:
        for name, content in files.items():
            Path(place, name).write_bytes(content)
        getattr(plugin, pair[1])(os.path.join(place, "state") if pair[1] == "restore" else place)


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


def copied(plugin: Any) -> Any:
    """A copy of a plug-in that is changed apart from it; itself, where none can be made."""
    try:
        return copy.deepcopy(plugin)
    except UNPICKLABLE:
        return plugin


def picklable_state(plugin: object) -> dict[str, Any]:
    """A plug-in's attributes, without those that cannot be pickled (locks, open files, clients)."""
    return picklable_attributes(vars(plugin))


def picklable_attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Those of them that can be pickled."""
    state = dict(attributes)
    if _picklable(state):
        return state
    return {name: value for name, value in state.items() if _picklable(value)}


def _picklable(value: object) -> bool:
    try:
        cloudpickle.dumps(value)
    except UNPICKLABLE:
        return False
    return True
