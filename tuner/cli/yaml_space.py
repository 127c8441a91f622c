"""Search spaces in YAML: `{loguniform: [1.0e-4, 1.0e-1]}` is a domain, everything else is itself.

A mapping with exactly one key that is the name of a domain stands for that domain; its value is a list of arguments, a
mapping of named arguments, or one argument. `{literal: ...}` keeps such a mapping as it is.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping
from typing import Any

from tuner.error import SettingError
from tuner.search import sample

LISTS = ("choice", "grid_search")
"""Their one argument is the list itself."""
DOMAINS = (*LISTS, *sample.BOUNDED, "randn", "qrandn")
LITERAL = "literal"


def parse(found: Any, where: str = "param_space") -> Any:
    """A space as `tune.run` takes it. Raises SettingError that names the place in the file."""
    if isinstance(found, list):
        return [parse(item, f"{where}[{index}]") for index, item in enumerate(found)]
    if not isinstance(found, Mapping):
        return numbers(found)
    if len(found) == 1:
        ((name, inner),) = found.items()
        if name == LITERAL:
            return inner
        if name in DOMAINS:
            return _domain(name, inner, where)
        _near_miss(name, inner, where)
    return {key: parse(inner, f"{where}.{key}") for key, inner in found.items()}


def _domain(name: str, given: Any, where: str) -> Any:
    make = getattr(sample, name)
    if name in LISTS:
        if not isinstance(given, list):
            raise SettingError(f"{where}: {name}: {given!r} is not accepted; accepted is a list of values")
        return make(parse(given, f"{where}.{name}"))
    positional, named = (), {}
    if isinstance(given, Mapping):
        named = {str(key): numbers(value) for key, value in given.items()}
    else:
        positional = tuple(numbers(value) for value in (given if isinstance(given, list) else [given]))
    signature = inspect.signature(make)
    try:
        signature.bind(*positional, **named)
        return make(*positional, **named)
    except (TypeError, ValueError) as error:
        accepted = ", ".join(str(parameter) for parameter in signature.parameters)
        raise SettingError(f"{where}: {name}: {given!r} is not accepted ({error}); it takes {accepted}") from error


def _near_miss(name: Any, inner: Any, where: str) -> None:
    """A misspelt domain would silently be a constant."""
    near = difflib.get_close_matches(str(name), DOMAINS, n=1, cutoff=0.8)
    if near and isinstance(inner, list):
        raise SettingError(
            f"{where}: unknown domain {name!r}; did you mean {near[0]!r}? "
            f"(a plain value is written {{{LITERAL}: {{{name}: ...}}}})"
        )


def numbers(found: Any) -> Any:
    """YAML 1.1 reads 1e-4 as text; here it is a number, everywhere."""
    if isinstance(found, Mapping):
        return {key: numbers(value) for key, value in found.items()}
    if isinstance(found, list):
        return [numbers(value) for value in found]
    if isinstance(found, str) and found[:1].isdigit() and "e" in found.lower():
        try:
            return float(found)
        except ValueError:
            return found
    return found
