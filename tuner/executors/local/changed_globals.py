"""Globals of imported modules that the script changed: trials import the modules anew, and do not see the change.

Found without a false alarm: the trainable's code loads the name and does not write to it, its module assigns a constant
to it, the driver has another plain value, and the fork server, which has just imported the module, has that constant.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import reprlib
import sys
import textwrap
import types
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import cloudpickle

from trainables.quick_dataclass import dataclass
from tuner.executors.local.pickled import imports_of, names_of
from tuner.executors.local.preload import is_same

_MOST_FUNCTIONS = 2000
"""So many functions are looked into."""
_MOST_PARTS = 1000
"""A value of more parts is not compared."""
_MOST_LINES = 200
"""An assignment of more lines is not read."""
_CONSTRUCTORS = {each.__name__: each for each in (dict, list, set, tuple, frozenset, int, float, str, bool)}
_CONSTANT = (
    *(ast.Expression, ast.Constant, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.Name, ast.Call, ast.keyword, ast.Load),
    *(ast.UnaryOp, ast.USub, ast.UAdd, ast.Not, ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv),
)
"""What an expression may consist of that has the same value in every process."""
_WRITES = {
    *("add", "append", "appendleft", "clear", "discard", "extend", "insert"),
    *("pop", "popitem", "remove", "reverse", "setdefault", "sort", "update"),
}
"""Methods that change a container."""
CHANGED = (
    "Trials do not see a global that the script changed: %s, because trials import the module anew. "
    "Pass the value in config or with tune.with_parameters"
)
"""The warning about a `ChangedGlobal`."""
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80


@dataclass(frozen=True, slots=True)
class ChangedGlobal:
    """One global that is not what its module assigns to it."""

    module: str
    name: str
    fresh: Any
    """What the module assigns: trials have it, if a fresh import has."""
    now: str
    """The driver's value, for a message."""

    def __str__(self) -> str:
        return f"{self.module}.{self.name} is {self.now} in the script and {_SHORT.repr(self.fresh)} in the trials"


def changed_globals(pickled: Iterable[Any]) -> Iterator[ChangedGlobal]:
    """Find the globals that functions and classes of a trainable load and that were changed since their import.

    Args:
        pickled: functions and classes that the trainable's pickle has, by value or by name.
    """
    walk = _Walk(pickled)
    for (module, name), value in walk.loaded.items():
        if not _is_settings(value):
            continue
        for fresh in _constant(module, name):
            if not is_same(fresh, value) and _is_plain(fresh) and not walk.writes(name.rpartition(".")[2]):
                yield ChangedGlobal(module, name, fresh, _SHORT.repr(value))


class _Walk:
    """Functions that a trainable uses, and the globals of modules that they load."""

    def __init__(self, pickled: Iterable[Any]) -> None:
        self.functions: list[types.FunctionType] = []
        self.loaded: dict[tuple[str, str], Any] = {}
        self._by_value = {"__main__", *cloudpickle.list_registry_pickle_by_value()}
        self._todo = [(each, False) for each in pickled]
        self._package = next((_package(each) for each, _ in self._todo if isinstance(each, types.FunctionType)), "")
        seen: set[int] = set()
        while self._todo and len(self.functions) < _MOST_FUNCTIONS:
            owner, imported = self._todo.pop()
            if id(owner) not in seen and self._is_looked_into(owner):
                seen.add(id(owner))
                for function in _functions(owner):
                    self._look_into(function, imported or self._is_by_name(owner))
                    self._load_attributes(owner, names_of(function.__code__))

    def writes(self, name: str) -> bool:
        """Whether the trainable changes a global itself: then it is its own state, as a cache or a counter is."""
        return any(_writes(function, name) for function in self.functions)

    def _is_looked_into(self, owner: Any) -> bool:
        """Code of the user, and of the package that has the trainable."""
        return _package(owner) == self._package or _is_users(getattr(owner, "__module__", None))

    def _is_by_name(self, owner: Any) -> bool:
        """Whether trials import it, and not get it with its globals in the trainable's pickle."""
        found: Any = sys.modules.get(owner.__module__ or "")
        for name in owner.__qualname__.split("."):
            found = getattr(found, name, None)
        return found is owner and owner.__module__ not in self._by_value

    def _look_into(self, function: types.FunctionType, imported: bool) -> None:
        self.functions.append(function)
        names, modules = names_of(function.__code__), _imported(function)
        for cell in function.__closure__ or ():
            with suppress(ValueError):  # it is empty
                self._add(cell.cell_contents, imported, modules)
        own = function.__globals__
        for name in [each for each in names if each in own]:
            self._load(own.get("__name__") if imported else None, name, own[name], modules)
            self._load_attributes(own[name], names)
        for module in modules:  # which grows
            members = vars(module)
            for name in [each for each in names if each in members]:
                self._load(module.__name__, name, members[name], modules)
                self._load_attributes(members[name], names)

    def _load(self, module: str | None, name: str, value: Any, modules: list[types.ModuleType]) -> None:
        if not self._add(value, False, modules) and module is not None and not name.startswith("__"):
            self.loaded[module, name] = value

    def _load_attributes(self, owner: Any, names: Iterable[str]) -> None:
        """Attributes of a class in a module are globals too: `class Settings: width = 1`."""
        if isinstance(owner, type) and self._is_looked_into(owner) and self._is_by_name(owner):
            for name in [each for each in names if each in vars(owner) and not each.startswith("__")]:
                self.loaded[owner.__module__, f"{owner.__qualname__}.{name}"] = vars(owner)[name]

    def _add(self, value: Any, imported: bool, modules: list[types.ModuleType]) -> bool:
        """Look into a value later, if it is a module or code."""
        if isinstance(value, types.ModuleType):
            is_new = value not in modules and value.__name__ not in self._by_value
            if is_new and not _is_ours_or_pythons(value.__name__):
                modules.append(value)
        elif isinstance(value, (type, types.FunctionType)):
            self._todo.append((value, imported))
        else:
            return False
        return True


def _functions(owner: Any) -> Iterator[types.FunctionType]:
    for part in vars(owner).values() if isinstance(owner, type) else (owner,):
        function = getattr(part, "__func__", getattr(part, "fget", part))  # of class and static methods, properties
        if isinstance(function, types.FunctionType):
            yield function


def _imported(function: types.FunctionType) -> list[types.ModuleType]:
    """Modules that a function imports when it runs, as far as the driver has them."""
    package = function.__globals__.get("__package__") or ""
    found = []
    for name, level, _ in imports_of(function.__code__):
        full = f"{package.rsplit('.', level - 1)[0]}.{name}".rstrip(".") if level else name
        module = sys.modules.get(full)
        if isinstance(module, types.ModuleType) and not _is_ours_or_pythons(full):
            found.append(module)
    return found


def _package(owner: Any) -> str:
    return str(getattr(owner, "__module__", None)).partition(".")[0]


def _is_ours_or_pythons(module: str) -> bool:
    package = module.partition(".")[0]
    return package in ("tuner", "trainables") or package in sys.stdlib_module_names


def _is_users(module: Any) -> bool:
    if not isinstance(module, str) or module not in sys.modules or _is_ours_or_pythons(module):
        return False
    if module == "__main__":
        return True  # a notebook's has no file
    file = getattr(sys.modules[module], "__file__", None)
    return file is not None and not {"site-packages", "dist-packages"} & set(Path(file).parts)


def _is_settings(value: Any) -> bool:
    """Whether a value is plain, or an object that is nothing but its attributes, such as parsed arguments."""
    parsed: Any = getattr(sys.modules.get("argparse"), "Namespace", ())
    if isinstance(value, (types.SimpleNamespace, parsed)) or dataclasses.is_dataclass(value):
        return True
    return _is_plain(value)


def _is_plain(value: Any) -> bool:
    """None, a bool, a number, a string, or a container of those."""
    todo, parts = [value], 0
    while todo:
        part = todo.pop()
        parts += 1
        if type(part) is dict:
            todo += [*part.keys(), *part.values()]
        elif type(part) in (list, tuple, set, frozenset):
            todo += part
        elif type(part) not in (types.NoneType, bool, int, float, complex, str, bytes):
            return False
        if parts + len(todo) > _MOST_PARTS:
            return False
    return True


def _constant(module: str, name: str, within: tuple[str, ...] = ()) -> Iterator[Any]:
    """Yield the value that a module's source assigns to a name, if the source shows it."""
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    if not file.endswith(".py") or name in within or _is_ours_or_pythons(module):
        return
    try:
        source = Path(file).read_text("utf-8")
    except (OSError, ValueError):
        return
    indent = ""
    *classes, last = name.split(".")
    for each in classes:
        begun = re.search(rf"^{indent}class {each}\b.*\n\s*?(?={indent}[ \t]+\S)([ \t]+)", source, re.MULTILINE)
        if begun is None:
            return
        indent = begun[1]
        body = source[begun.start(1) :]
        source = re.split(rf"^(?!{indent}|[ \t]*(?:#.*)?$)", body, maxsplit=1, flags=re.MULTILINE)[0]
    found = [*re.finditer(rf"^{indent}{re.escape(last)}\s*(:[^=\n]+)?=(?!=)", source, re.MULTILINE)]
    expression = _assigned(source[found[-1].start() :].lstrip()) if found else None
    if expression is None or not all(isinstance(node, _CONSTANT) for node in ast.walk(expression)):
        return
    known: dict[str, Any] = dict(_CONSTRUCTORS)
    for node in ast.walk(expression):
        if isinstance(node, ast.Name) and node.id not in known:
            known.update((node.id, value) for value in _constant(module, node.id, (*within, name)))
    try:
        yield eval(compile(expression, file, "eval"), {"__builtins__": {}}, known)
    except Exception:
        return  # it names what is no constant


def _assigned(source: str) -> ast.Expression | None:
    """The right side of the assignment with which `source` begins."""
    lines = source.split("\n", _MOST_LINES)
    for end in range(1, min(len(lines), _MOST_LINES) + 1):
        try:
            (statement,) = ast.parse("\n".join(lines[:end])).body
        except SyntaxError:
            continue  # it has more lines
        except ValueError:
            return None
        value = getattr(statement, "value", None)
        return None if value is None else ast.Expression(value)
    return None


def _writes(function: types.FunctionType, name: str) -> bool:
    """Whether a function assigns to a global, or to a part of it, or calls a method that changes it."""
    if name not in names_of(function.__code__):
        return False
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return False
    for node in ast.walk(tree):
        if isinstance(node, ast.Global) and name in node.names:
            return True
        if isinstance(node, (ast.Subscript, ast.Attribute)):
            inner = node
            while isinstance(inner, (ast.Subscript, ast.Attribute)) and _named(inner) != name:
                inner = inner.value  # type: ignore[assignment]
            written = not isinstance(node.ctx, ast.Load)
            method = isinstance(node, ast.Attribute) and node.attr in _WRITES and node is not inner
            if _named(inner) == name and (written or method):
                return True
    return False


def _named(node: ast.expr) -> str | None:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else None
