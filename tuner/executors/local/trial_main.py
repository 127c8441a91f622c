"""Main module of a trial's process.

`pickle` and `multiprocessing` look up classes and functions of the user's script in `sys.modules["__main__"]`. A trial
does not run the script. Its main module gets each name when the class or function is unpickled, whatever wraps it:
`ScriptPickler` of `tuner.executors.local.script_pickling` pickles them so.

A process that a trial starts with `spawn` or `forkserver` runs the file of the trial's main module. That file is
generated, and calls `run_names`: it runs the user's script as `__mp_main__` where that is safe, as `multiprocessing`
does, and unpickles the trial's names where it is not.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import pickle
import sys
import tempfile
import types
from collections.abc import Callable, Mapping
from typing import IO, Any

Script = tuple[str, str, str]
"""A script that a child process may run as `__mp_main__`: its file, its module's name after `-m` or "", and the working
directory in which it was started. A plain tuple, because `marshal` takes no other."""

NAMES_SCRIPT = """\
from tuner.executors.local.trial_main import run_names
run_names(globals(), script={script!r}, trainable={trainable!r}, jobs={jobs!r}, needed={needed!r})
"""


class _UnpickledNames:
    """Functions and classes of the script that this process has unpickled."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        self.namespace = namespace
        """Globals of the script's functions. Modules that are pickled by value have their own."""
        self.functions: dict[str, Any] = {}
        """Functions by their key. The pickles of the trainable and of a config that hold one function share it."""
        self.complete: dict[int, Any] = {}
        """Functions and classes that have their state, by id. A later pickle does not set it again."""
        self.placed: set[str] = set()
        self.jobs: list[bytes] = []
        """Pickles of jobs whose configs hold functions or classes of the script that the trainable does not use."""


_names: _UnpickledNames | None = None
"""None: this process has a main module of its own, which unpickling leaves alone."""


class TrialMain(types.ModuleType):
    """Main module of a trial's process. Its attribute `__file__` is the generated script for child processes.

    The script's functions have the script's own path as their global variable `__file__`.
    """

    @property
    def __file__(self) -> str:  # type: ignore[override]
        assert _names_script is not None
        return _names_script.path()

    def __reduce__(self) -> tuple[Any, ...]:
        return importlib.import_module, ("__main__",)


class _NamesScript:
    """Generated script that gives a child process the names of the user's script; written when it is asked for."""

    def __init__(self, trainable: str, script: Script | None) -> None:
        self._trainable, self._script = trainable, script
        self._text, self._path = "", ""

    def path(self) -> str:
        """Return the script's path. It lies beside the trainable's pickle, and is removed with it at the run's end."""
        assert _names is not None
        text = NAMES_SCRIPT.format(
            script=self._script, trainable=self._trainable, jobs=_names.jobs, needed=sorted(_names.placed)
        )
        if text != self._text:  # the first time, or this process has unpickled more since
            fd, self._path = tempfile.mkstemp(prefix="names-", suffix=".py", dir=os.path.dirname(self._trainable))
            with os.fdopen(fd, "w", encoding="utf-8") as file:
                file.write(text)
            self._text = text
        return self._path


_names_script: _NamesScript | None = None


def install(trainable: str, script: Script | None) -> None:
    """Give this process the main module of a trial.

    Args:
        trainable: path of the trainable's pickle.
        script: the user's script, if children may run it.
    """
    global _names, _names_script
    main = TrialMain("__main__")
    _names, _names_script = _UnpickledNames(vars(main)), _NamesScript(os.path.abspath(trainable), script)
    sys.modules["__main__"] = sys.modules["__mp_main__"] = main


def unpickler_of(file: IO[bytes]) -> pickle.Unpickler:
    """Import the modules that precede the user's. Return what loads the script's names, and then the trainable."""
    for module in pickle.load(file):
        importlib.import_module(module)
    return pickle.Unpickler(file)  # one for both: the second refers to the first


def load_job(packed: bytes) -> Any:
    """Unpickle a job; classes and functions of the script that its config holds are found by name, too."""
    before = set() if _names is None else set(_names.placed)
    job = pickle.loads(packed)
    if _names is not None and not _names.placed <= before:
        _names.jobs.append(packed)
    return job


# --- what the pickles call -----------------------------------------------------------------------------------


def module_globals(given: dict[str, Any]) -> dict[str, Any]:
    """Return the globals of functions of a module that is pickled by value; cloudpickle would set those `given`."""
    namespace = _namespace_of(given["__name__"])
    if namespace is None:
        return given
    namespace.update((name, value) for name, value in given.items() if name != "__name__")
    return namespace


def _namespace_of(module: str) -> dict[str, Any] | None:
    """Return what the names of a module are looked up in; None: this process imports it, or has a main module."""
    if _names is None:
        return None
    if module == "__main__":
        return _names.namespace
    if module not in sys.modules and "." not in module and importlib.util.find_spec(module) is None:
        sys.modules[module] = types.ModuleType(module)  # `path/file.py:name` of a config, on another host
    return vars(sys.modules[module]) if module in sys.modules else None


def make_function(key: str, make: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Return the function with that key; make it if this process has none."""
    if _names is None:
        return make(*arguments)
    function = _names.functions.get(key)
    if function is None:
        function = _names.functions[key] = make(*arguments)
    return function


def cached(function: Callable[..., Any], parameters: Mapping[str, Any]) -> Any:
    """Return a function behind `functools.lru_cache`, with an empty cache."""
    return functools.lru_cache(**parameters)(function)


def no_state(value: Any, state: Any) -> None:
    """For `place`: what `cached` makes is complete."""


def place(value: Any, packed: tuple[Callable[[Any, Any], None], Any, str, bool, Any]) -> None:
    """Set the state of a function or class, and make it known by its name.

    Args:
        value: the function or class.
        packed: what sets its state, the state, the qualified name, whether the driver finds `value` by it, and what has
            the first part of the name if it is not `value` (`Outer` for `Outer.Inner`).
    """
    set_state, state, qualname, found, owner = packed
    if _names is None:
        set_state(value, state)
    elif id(value) not in _names.complete:
        set_state(value, state)
        _names.complete[id(value)] = value
        if isinstance(value, type):
            value.__qualname__ = qualname  # which cloudpickle leaves out
        namespace, name = _namespace_of(value.__module__), qualname.partition(".")[0]
        if namespace is None:
            return
        if found or name not in namespace:
            namespace[name] = value if owner is None else owner
        if namespace.get("__spec__") is None:  # else a child imports the module
            _names.placed.add(name if value.__module__ == "__main__" else f"{value.__module__}.{name}")


# --- in a child of a trial -----------------------------------------------------------------------------------


def run_names(
    into: dict[str, Any], *, script: Script | None, trainable: str, jobs: list[bytes], needed: list[str]
) -> None:
    """Fill the globals of a generated script in a child process. An error is printed once, not by each child.

    Args:
        into: the globals.
        script: the user's script, if children may run it.
        trainable: path of the trainable's pickle.
        jobs: pickles of jobs whose configs hold functions or classes of the script.
        needed: names that the trial has.
    """
    global _names
    _names = _UnpickledNames({"__name__": "__main__"})
    marker = into["__file__"] + ".failed"
    try:
        with open(trainable, "rb") as file:
            unpickler = unpickler_of(file)
            found = _run_script(script, marker) if script is not None else {}
            if not found.keys() >= set(needed):
                unpickler.load()
                for packed in jobs:
                    pickle.loads(packed)
                found.update(_names.namespace)
    except (Exception, SystemExit):
        _print_once(marker, "a process started by this trial cannot load the functions and classes of the script")
        sys.exit(1)
    into.update((name, value) for name, value in found.items() if not (name.startswith("__") and name.endswith("__")))


def _run_script(script: Script, marker: str) -> dict[str, Any]:
    """Return the globals that the script has as `__mp_main__`; none if it cannot be run."""
    import runpy

    file, module, directory = script
    before = os.getcwd()
    try:
        os.chdir(directory)
        if module:
            return runpy.run_module(module, run_name="__mp_main__", alter_sys=True)
        return runpy.run_path(file, run_name="__mp_main__")
    except (Exception, SystemExit):
        _print_once(marker, f"{file} failed in a process of this trial, which uses the names that the trial has")
        return {}
    finally:
        os.chdir(before)


def _print_once(marker: str, what: str) -> None:
    """Print the error that is handled, unless another child of the trial has done so."""
    import traceback

    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return
    sys.stderr.write(f"{what}:\n{traceback.format_exc()}")
    sys.stderr.flush()
