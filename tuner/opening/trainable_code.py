"""A fingerprint of the code that a trainable runs, by which a resume tells whether it has been edited since.

It covers what the user wrote: the function, or the methods of the class and of its bases, and whatever functions and
classes of the same module these name. It is of compiled code without places and comments: lines may move, a cell of a
notebook may run again, a lambda may stand in another call. Values of variables, imported modules and packages are not
covered. A fingerprint is of one version of Python, and compared with those of that version only.
"""

from __future__ import annotations

import bisect
import dis
import functools
import hashlib
import inspect
import os
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, MethodType
from typing import Any

_OURS = ("trainables", "tuner")
_NO_STEPS = {"CACHE", "EXTENDED_ARG", "NOP", "PRECALL", "PUSH_NULL", "RESUME"}
_SAME = {"LOAD_METHOD": "LOAD_ATTR"}
_JUMPS = {*dis.hasjrel, *dis.hasjabs}
_NAMED = {*dis.hasname, *dis.haslocal, *dis.hasfree, *dis.hascompare}
_PLAIN = (int, float, complex, str, bytes, bool, type(None))


def fingerprint_of(trainable: Any) -> str:
    """The fingerprint; "" where there is no Python code of the user's."""
    try:
        roots = [root for root in _roots(trainable) if not _is_ours(root)]
        found = [_described(each) for each in _reached(roots)]
    except Exception:  # whatever a user's object does when it is looked at
        return ""
    if not found:
        return ""
    return f"{_version()}:{_digest(sorted(found), size=8)}"


def fingerprint_parts(trainable: Any) -> dict[str, str]:
    """The names of what the fingerprint covers, each with one of its own: to say what is another."""
    try:
        roots = [root for root in _roots(trainable) if not _is_ours(root)]
        described = sorted(_described(each) for each in _reached(roots))
    except Exception:  # whatever a user's object does when it is looked at
        return {}
    named: dict[str, list[tuple[str, ...]]] = {}
    for each in described:
        named.setdefault(each[0] or "a lambda", []).append(each)
    return {name: _digest(of, size=4) for name, of in named.items()}


def edited_since(trainable: Any, at: float) -> str | None:
    """A file of a trainable's code that was written to since then; None: there is none.

    Args:
        at: seconds since the epoch.
    """
    try:
        roots = [root for root in _roots(trainable) if not _is_ours(root)]
        for file in {inspect.getsourcefile(root) for root in roots}:
            if file is not None and os.stat(file).st_mtime > at:
                return file
    except Exception:  # whatever a user's object does when it is looked at; a notebook's cell has no file
        return None
    return None


def is_another(before: object, now: str) -> bool:
    """Whether the code is certainly another; what one of them does not say, or another Python says, is not known."""
    if not isinstance(before, str) or not before or not now:
        return False
    return before != now and before.partition(":")[0] == now.partition(":")[0] == _version()


def _digest(described: list[tuple[str, ...]], *, size: int) -> str:
    return hashlib.blake2b(repr(described).encode("utf-8", "surrogatepass"), digest_size=size).hexdigest()


def _version() -> str:
    return f"{sys.implementation.cache_tag}-{sys.flags.optimize}"


def _roots(thing: Any, depth: int = 4) -> Iterator[Any]:
    """The functions and classes that a trainable is made of."""
    if isinstance(thing, functools.partial):
        yield from _roots(thing.func, depth)
    elif isinstance(thing, MethodType):
        yield from _roots(thing.__func__, depth)
        yield from _roots(thing.__self__, depth - 1)
    elif isinstance(thing, type):
        yield from thing.__mro__
    elif isinstance(thing, FunctionType):
        yield inspect.unwrap(thing)
    elif depth and callable(thing):  # an object, as a trainer's: its class, and the functions that it holds
        yield from type(thing).__mro__
        for held in vars(thing).values():
            if callable(held):
                yield from _roots(held, depth - 1)


def _reached(roots: list[Any]) -> list[Any]:
    """These, and what of their modules they name, directly or not."""
    modules = {root.__module__ for root in roots}
    seen: dict[int, Any] = {}
    todo = list(roots)
    while todo:
        each = todo.pop()
        if id(each) in seen or _is_ours(each):
            continue
        seen[id(each)] = each
        for function in _functions(each):
            for named in _named(function):
                if isinstance(named, (FunctionType, type)) and named.__module__ in modules:
                    todo.append(inspect.unwrap(named))
    return list(seen.values())


def _functions(thing: Any) -> list[FunctionType]:
    """The function itself, or those of a class, by name."""
    if isinstance(thing, FunctionType):
        return [thing]
    found = []
    for _, value in sorted(vars(thing).items()):
        parts = (value.fget, value.fset, value.fdel) if isinstance(value, property) else (value,)
        for part in parts:
            part = getattr(part, "__func__", part)  # a staticmethod, a classmethod
            part = inspect.unwrap(part) if callable(part) else part
            if isinstance(part, FunctionType):
                found.append(part)
    return found


def _named(function: FunctionType) -> Iterator[Any]:
    """What a function names that is not its own: globals, and variables of the functions around it."""
    for code in _codes(function.__code__):
        for name in code.co_names:
            yield function.__globals__.get(name)
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # it has not been given a value yet
            continue


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _described(thing: Any) -> tuple[str, ...]:
    name = "" if getattr(thing, "__name__", "") == "<lambda>" else getattr(thing, "__name__", "")
    return (name, *(repr((_plain(each.__code__), _defaults(each))) for each in _functions(thing)))


def _defaults(function: FunctionType) -> list[str]:
    given = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    return [repr(value) if isinstance(value, _PLAIN) else "" for value in given]


def _plain(code: CodeType) -> tuple[Any, ...]:
    """What a code object does, without where it stands, and without what the rest of its file makes of it.

    A method of what the same file, or cell, imports is called by other instructions than one of what another imports.
    """
    steps = [each for each in dis.get_instructions(code) if each.opname not in _NO_STEPS]
    offsets = [step.offset for step in steps]
    done = [(_SAME.get(step.opname, step.opname), _argument(step, offsets)) for step in steps]
    return code.co_varnames, (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount), done


def _argument(step: dis.Instruction, offsets: list[int]) -> Any:
    if step.opcode in _JUMPS:
        return bisect.bisect_left(offsets, step.argval)
    if step.opcode in dis.hasconst:
        return _constant(step.argval)
    return step.argval if step.opcode in _NAMED else step.arg


def _constant(value: Any) -> Any:
    if isinstance(value, CodeType):
        return _plain(value)
    if isinstance(value, frozenset):
        return sorted(map(repr, value))  # its order is another in each process
    if isinstance(value, tuple):
        return [_constant(each) for each in value]
    return repr(value)


def _is_ours(thing: Any) -> bool:
    return str(getattr(thing, "__module__", "")).partition(".")[0] in (*_OURS, "builtins", "abc", "typing")
