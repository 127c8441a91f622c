"""The user's script in the driver: how its functions and classes are pickled, and whether children may run it."""

from __future__ import annotations

import ast
import functools
import os
import sys
import threading
import types
import uuid
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle

from tuner.executors.local import trial_main
from tuner.executors.local.trial_main import Script

_MAIN = "__main__"
_keys: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
"""Of functions, as cloudpickle has them of classes."""


class _ModuleGlobals:
    """Placeholder in a pickle for the globals of a module's functions."""

    def __init__(self, name: str, module: types.ModuleType) -> None:
        names = ("__package__", "__path__", "__file__")  # those that cloudpickle sets
        self._given = {"__name__": name, **{each: vars(module)[each] for each in names if each in vars(module)}}

    def __reduce__(self) -> tuple[Any, ...]:
        return trial_main.module_globals, (self._given,)


class ScriptPickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles functions and classes of the script by value, and so that a trial finds them in its `__main__`.

    The same holds for modules that `cloudpickle.register_pickle_by_value` names.
    """

    def __init__(self, file: Any, protocol: int) -> None:
        super().__init__(file, protocol=protocol)
        for name in (_MAIN, *cloudpickle.list_registry_pickle_by_value()):
            if (module := sys.modules.get(name)) is not None:
                self.globals_ref[id(vars(module))] = _ModuleGlobals(name, module)
        self.names: dict[tuple[str, str], Any] = {}
        """What it has pickled, by module and name."""

    def reducer_override(self, obj: Any) -> Any:
        reduced = super().reducer_override(obj)
        module = getattr(obj, "__module__", None)
        if isinstance(obj, functools._lru_cache_wrapper) and module == _MAIN:  # cloudpickle pickles these by name
            arguments = obj.__wrapped__, obj.cache_parameters()
            reduced = trial_main.cached, arguments, None, None, None, trial_main.no_state
        if not (isinstance(reduced, tuple) and len(reduced) == 6 and module in sys.modules):
            return reduced  # an instance, or by reference
        found = _look_up(module, obj.__qualname__)
        if found is obj:
            return self._by_name(obj, reduced)
        if module == _MAIN and _is_copy(obj, found):
            return self._by_name(found, super().reducer_override(found))
        if module == _MAIN and obj.__qualname__.isidentifier():
            return self._by_name(obj, reduced, found=False)
        return reduced  # local: plain pickle does not find it in the driver either

    def _by_name(self, obj: Any, reduced: tuple[Any, ...], *, found: bool = True) -> tuple[Any, ...]:
        """Add to what cloudpickle makes of a function or class its place in the module.

        With `found=False` the module has something else of that name, or nothing. Then it gets a name that is free.
        """
        make, arguments, state, _, _, set_state = reduced
        name = obj.__qualname__.partition(".")[0]
        owner = _look_up(obj.__module__, name) if found else obj
        if found:
            self.names[obj.__module__, name] = owner
        else:
            self.names.setdefault((obj.__module__, name), owner)
        if not isinstance(obj, type):
            key = _keys.setdefault(obj, uuid.uuid4().hex)
            make, arguments = trial_main.make_function, (key, make, arguments)
        placed = set_state, state, obj.__qualname__, found, None if owner is obj else owner
        return make, arguments, placed, None, None, trial_main.place


def _look_up(module: str, qualname: str) -> Any:
    found: Any = sys.modules[module]
    for name in qualname.split("."):
        found = getattr(found, name, None)
    return found


def _is_copy(value: Any, of: Any) -> bool:
    """Return True if a function is a copy of one of the script, as configs that were journaled hold it."""
    functions = isinstance(value, types.FunctionType) and isinstance(of, types.FunctionType)
    return functions and value.__code__ == of.__code__


def runnable_script() -> Script | None:
    """Return the script if child processes may run it as `__mp_main__`; None if that might start the run again.

    They may where the statement that runs now is within `if __name__ == "__main__":`.
    """
    main = sys.modules[_MAIN]
    file, spec = getattr(main, "__file__", None), getattr(main, "__spec__", None)
    line = None if file is None else _running_line(vars(main), file)
    if file is None or line is None:
        return None
    module = getattr(spec, "name", "")
    if module.rpartition(".")[2] == _MAIN:
        return None  # of a package or a directory, which need no guard
    try:
        statements = ast.parse(Path(file).read_bytes()).body
    except (OSError, SyntaxError, ValueError):  # a directory, an archive, or edited since
        return None
    if any(_spans(guard.body, line) for guard in _guards(statements)):
        return os.path.abspath(file), module, os.getcwd()
    return None


def _running_line(namespace: dict[str, Any], file: str) -> int | None:
    """Line of the statement of the main module that the main thread runs; None if it runs none."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:
        code = frame.f_code
        if frame.f_globals is namespace and code.co_name == "<module>" and code.co_filename == file:
            return frame.f_lineno
        frame = frame.f_back
    return None


def _guards(statements: Iterable[ast.stmt]) -> Iterator[ast.If]:
    for statement in statements:
        if isinstance(statement, ast.If) and _is_guard(statement.test):
            yield statement


def _is_guard(test: ast.expr) -> bool:
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return any(map(_is_guard, test.values))
    if not (isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq) and len(test.ops) == 1):
        return False
    return {ast.unparse(test.left), ast.unparse(test.comparators[0])} == {"__name__", repr(_MAIN)}


def _spans(body: list[ast.stmt], line: int) -> bool:
    return body[0].lineno <= line <= (body[-1].end_lineno or 0)
