"""Getting a trainable and its jobs out of the driver: what is pickled, and which modules it will import."""

from __future__ import annotations

import functools
import importlib
import inspect
import io
import logging
import opcode
import os
import pickle
import sys
import tempfile
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import cloudpickle

from trainables.bound_objects import BoundObjects
from trainables.pickling import CountingWriter
from trainables.quick_dataclass import dataclass
from tuner.error import SerializationError
from tuner.executors.local.script_pickling import ScriptPickler, runnable_script
from tuner.executors.local.trial_main import Script

log = logging.getLogger(__name__)

_PICKLE = 5
_LARGE = 16 * 2**20
"""From here on a trainable is told to carry something that nobody may have meant it to."""
_IMPORT_NAME = opcode.opmap["IMPORT_NAME"]
_LOAD_CONST = opcode.opmap["LOAD_CONST"]
_LOAD_SMALL_INT = opcode.opmap.get("LOAD_SMALL_INT", -1)
_EXTENDED_ARG = opcode.EXTENDED_ARG

FIRST: list[str] = []
"""Modules that every process of a trial imports before anything of the user's."""

Imports = dict[str, set[str]]
"""Modules to import, each with the names that are wanted from it (some may be modules themselves)."""


@dataclass(frozen=True, slots=True)
class TrainableFile:
    """A trainable on disk, written once for all trials."""

    path: Path
    """Of three pickles: `FIRST`, the script's classes and functions that the trainable uses, and the trainable."""
    imports: Imports
    """What loading and running the trainable will import."""
    script: Script | None = None
    """The user's script, if processes that trials start may run it."""
    code: tuple[Any, ...] = ()
    """Functions and classes that its pickle has, by value or by name."""

    def remove(self) -> None:
        """No trial will load it any more."""
        self.path.unlink(missing_ok=True)


def write_trainable(trainable: Any, directory: Path) -> TrainableFile:
    """Write a trainable into a fresh file of `directory`. Raises SerializationError, which names the variable."""
    noted = _Noting(CountingWriter())
    for module in FIRST:
        noted.note_module(module)
    try:
        noted.dump(trainable)
    except Exception as error:
        raise _unpicklable_trainable(trainable, error) from error
    for module in getattr(trainable, "preload", ()):  # a trainer's: what its group needs
        noted.note_module(module)
    noted.note_root(getattr(trainable, "train_loop", trainable))
    path = _write(trainable, list(noted.names.values()), directory)
    if path.stat().st_size > _LARGE:
        _warn_of_large(trainable)
    return TrainableFile(path, noted.imports, runnable_script(), tuple(noted.code))


def _write(trainable: Any, names: list[Any], directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    fd, name = tempfile.mkstemp(prefix="trainable-", suffix=".pickle", dir=directory)
    try:
        with os.fdopen(fd, "wb") as file:
            pickle.dump(FIRST, file)
            pickler = _Whole(file, _PICKLE)
            pickler.dump(names)  # first: a process that a trial starts needs no more, and the rest may be large
            pickler.dump(trainable)
    except BaseException:
        os.unlink(name)
        raise
    return Path(name)


def check_picklable(trainable: Any) -> None:
    """Raise SerializationError, as `write_trainable` would; nothing is written, and a large array is not copied."""
    try:
        _Whole(CountingWriter(), _PICKLE).dump(trainable)
    except Exception as error:
        raise _unpicklable_trainable(trainable, error) from error


def _unpicklable_trainable(trainable: Any, error: Exception) -> SerializationError:
    return SerializationError(
        f"the trainable cannot be sent to its trials: {_culprit(trainable) or _named(trainable)}: {error}. "
        "Create it inside the trainable, or pass what it is made from in the config"
    )


def pickle_job(value: Any, what: str) -> bytes:
    """Pickle a job. Classes and functions of `__main__` go by value, because a trial has another `__main__`."""
    try:
        data = pickle.dumps(value, _PICKLE)
        if b"__main__" not in data and not cloudpickle.list_registry_pickle_by_value():
            return data  # ten times faster than the other way, and what nearly every config is
    except Exception:  # lambdas, local classes: cloudpickle knows how, or says what is wrong
        pass
    buffer = io.BytesIO()
    try:
        ScriptPickler(buffer, _PICKLE).dump(value)
    except Exception as error:
        raise SerializationError(f"{what} cannot be sent to its process: {error}") from error
    return buffer.getvalue()


class _Whole(ScriptPickler):
    """Takes what `with_parameters` has bound along, once; a module of any class goes by its name."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, BoundObjects):
            return obj.inlined()
        if isinstance(obj, types.ModuleType) and type(obj) is not types.ModuleType:  # lazy ones, torch.ops, ours
            return importlib.import_module, (obj.__name__,)
        return super().reducer_override(obj)


class _Noting(_Whole):
    """Notes, while it pickles, what the reader of the pickle will import."""

    def __init__(self, file: Any) -> None:
        super().__init__(file, _PICKLE)
        self.imports: Imports = {}
        self.code: list[Any] = []
        self._optimizes = False

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, (type, types.FunctionType)):
            self.code.append(obj)
        if isinstance(obj, types.FunctionType):
            self.note_module(obj.__module__)
            if _by_value(obj):
                self._note_function(obj)
        elif isinstance(obj, types.ModuleType):
            self.note_module(obj.__name__)
        elif isinstance(obj, (type, types.BuiltinFunctionType)):
            self.note_module(getattr(obj, "__module__", None))
        return super().reducer_override(obj)

    def note_root(self, trainable: Any) -> None:
        """Look also at what the trainable calls in its own module: pickled by reference, it was not looked into."""
        module, todo, seen = getattr(trainable, "__module__", None), [trainable], {id(None)}
        while todo:
            owner = todo.pop()
            for function in () if id(owner) in seen else _functions(owner):
                self._note_function(function)
                used = (function.__globals__.get(name) for name in names_of(function.__code__))
                todo.extend(part for part in used if getattr(part, "__module__", None) == module)
            seen.add(id(owner))
        if self._optimizes and any(name.partition(".")[0] == "torch" for name in self.imports):
            self.note_module("torch._dynamo")  # 800 modules, a second: torch loads them with the first optimizer

    def note_module(self, module: object, names: tuple[str, ...] = ()) -> None:
        """The reader will import this, and wants these names from it."""
        if isinstance(module, str) and module not in ("__main__", "builtins", ""):
            self.imports.setdefault(module, set()).update(names)

    def _note_function(self, function: types.FunctionType) -> None:
        if "optim" in names_of(function.__code__):
            self._optimizes = True
        package = function.__globals__.get("__package__") or ""
        for name, level, names in imports_of(function.__code__):
            if level:  # from . import x
                base = package.split(".")
                name = ".".join([*base[: len(base) - level + 1], *([name] if name else [])]) if package else ""
            self.note_module(name, names)


def _functions(owner: Any) -> Iterator[types.FunctionType]:
    if isinstance(owner, types.FunctionType):
        yield owner
    elif isinstance(owner, type):
        for value in vars(owner).values():
            if isinstance(value, types.FunctionType):
                yield value


def _by_value(function: types.FunctionType) -> bool:
    module = sys.modules.get(function.__module__ or "")
    if module is None or module.__name__ == "__main__":
        return True
    return getattr(module, function.__qualname__, None) is not function and "<locals>" in function.__qualname__


def imports_of(code: types.CodeType) -> Iterator[tuple[str, int, tuple[str, ...]]]:
    """Every `import` in a code object and in those within it: (module, level, names)."""
    level: Any = 0
    names: Any = None
    high = 0
    instructions = code.co_code
    for i in range(0, len(instructions), 2):
        operation, argument = instructions[i], instructions[i + 1] | high
        high = 0
        if operation == _EXTENDED_ARG:
            high = argument << 8
        elif operation == _LOAD_CONST:
            level, names = names, code.co_consts[argument]
        elif operation == _LOAD_SMALL_INT:
            level, names = names, argument
        elif operation == _IMPORT_NAME:
            wanted = tuple(n for n in names if n != "*") if isinstance(names, tuple) else ()
            yield code.co_names[argument], level if isinstance(level, int) else 0, wanted
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from imports_of(constant)


def names_of(code: types.CodeType) -> dict[str, None]:
    """All names that a code object and those within it look up, in their order."""
    names = dict.fromkeys(code.co_names)
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            names |= names_of(part)
    return names


def _fails(value: Any) -> bool:
    try:
        cloudpickle.dumps(value, protocol=_PICKLE)
    except Exception:
        return True
    return False


def _culprit(value: Any, depth: int = 4) -> str | None:
    """Which variable inside `value` cannot be pickled, in words."""
    for name, part in _parts(value):
        if _fails(part):
            deeper = _culprit(part, depth - 1) if depth else None
            return deeper or f"{name} of {_named(value)} ({type(part).__module__}.{type(part).__qualname__})"
    return None


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, types.MethodType):
        yield "the object", value.__self__
        value = value.__func__
    if isinstance(value, types.FunctionType):
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            try:
                yield f"closure variable {name!r}", cell.cell_contents
            except ValueError:
                pass  # not assigned yet
        for name in value.__code__.co_names:
            if name in value.__globals__ and not isinstance(value.__globals__[name], types.ModuleType):
                yield f"global variable {name!r}", value.__globals__[name]
        for number, default in enumerate(value.__defaults__ or ()):
            yield f"default value {number}", default
    elif isinstance(value, functools.partial):
        yield "the function", value.func
        for number, argument in enumerate(value.args):
            yield f"argument {number}", argument
        yield from ((f"argument {name!r}", argument) for name, argument in value.keywords.items())
    elif isinstance(value, Mapping):
        yield from ((f"key {key!r}", part) for key, part in value.items())
    elif isinstance(value, (list, tuple, set)):
        yield from ((f"element {i}", part) for i, part in enumerate(value))
    else:
        attributes = getattr(value, "__dict__", None) or {}
        yield from ((f"attribute {name!r}", part) for name, part in attributes.items() if not name.startswith("__"))


def _warn_of_large(trainable: Any) -> None:
    """Name the largest variable that goes along unasked; what `with_parameters` bound was asked for."""
    whole = inspect.unwrap(trainable.func if isinstance(trainable, functools.partial) else trainable)
    owners = list(_functions(whole)) or [whole]
    parts = [(_size(part), name, owner) for owner in owners for name, part in _parts(owner)]
    size, name, owner = max(parts, key=lambda found: found[0], default=(0, "", None))
    if size > _LARGE / 2:
        log.warning(
            "%s of %s is %.1f MiB and goes along with the trainable, stored once for all trials; "
            "tune.with_parameters says that it is meant to",
            name,
            _named(owner),
            size / 2**20,
        )


def _size(value: Any) -> int:
    counter = CountingWriter()
    try:
        cloudpickle.Pickler(counter, protocol=_PICKLE).dump(value)
    except Exception:
        return 0  # by itself it cannot be pickled, for instance a function of this very module
    return counter.size


def _named(value: Any) -> str:
    return str(getattr(value, "__qualname__", None) or f"a {type(value).__qualname__}")
