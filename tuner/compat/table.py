"""The table of Ray's names: where each is here, or what to use instead of it (names.toml)."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainables.validation import nearest_name
from tuner.compat.missing import NotHere, never_raised

OURS = {"tune": "tuner", "train": "trainables", "air": "trainables", "ml": "trainables"}
"""Ray's packages -> ours, which have the rest of a module's path in common."""


@dataclass(frozen=True, slots=True)
class Section:
    """What is said of one module of Ray's, whose path is given without `ray.`."""

    here: str | None = None
    """The module of ours that has its names."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Name -> "module" of ours, or "module:name"."""
    instead: Mapping[str, str] = field(default_factory=dict)
    """Name -> what to use instead."""
    never: tuple[str, ...] = ()
    """Exceptions that nothing raises."""


@functools.cache
def sections() -> Mapping[str, Section]:
    """Every module of Ray's of which something is said."""
    import tomllib

    read = tomllib.loads(Path(__file__).with_name("names.toml").read_text("utf-8"))
    texts: dict[str, str] = read.pop("texts")

    def made(row: dict[str, Any]) -> Section:
        gone, names = row.pop("gone", ""), row.pop("of", "").split()
        said = dict.fromkeys(names, gone) | row.pop("instead", {})
        return Section(**row, instead={name: texts.get(text, text) for name, text in said.items()})

    return {module: made(row) for module, row in read.items()}


@functools.cache
def _packages() -> frozenset[str]:
    parts = [path.split(".") for path in sections()]
    return frozenset(".".join(path[:length]) for path in parts for length in range(1, len(path)))


def is_known(theirs: str) -> bool:
    """Some version of Ray has that module, or one below it."""
    return theirs in sections() or theirs in _packages()


def beside(theirs: str) -> str | None:
    """The module of ours with the same path; None: there is no such file."""
    package, _, rest = theirs.partition(".")
    if package not in OURS:
        return None
    ours = f"{OURS[package]}.{rest}" if rest else OURS[package]
    try:
        found = importlib.util.find_spec(ours)
    except ModuleNotFoundError:
        return None
    return ours if found is not None and found.origin is not None else None


def theirs_of(ours: str) -> Iterator[str]:
    """The modules of Ray's whose path a module of ours has, or would have."""
    package, _, rest = ours.partition(".")
    for theirs, root in OURS.items():
        if root == package:
            yield f"{theirs}.{rest}" if rest else theirs


def look_up(theirs: str, name: str) -> Any:
    """What a name of one of Ray's modules is here: the thing, or a stand-in that says what to use instead.

    Raises KeyError where the table says nothing of it.
    """
    section = sections()[theirs]
    if name in section.names:
        module, _, other = section.names[name].partition(":")
        return getattr(importlib.import_module(module), other or name)
    if name in section.never:
        return never_raised(f"ray.{theirs}", name)
    if name in section.instead:
        return NotHere(f"ray.{theirs}", name, section.instead[name])
    if section.here is not None and not name.startswith("__"):
        try:
            return getattr(importlib.import_module(section.here), name)
        except AttributeError:
            pass
    raise KeyError(name)


def names_of(theirs: str) -> list[str]:
    """The names of which the table says something, and those of the module that stands for it."""
    section = sections().get(theirs, Section())
    public = getattr(importlib.import_module(section.here), "__all__", ()) if section.here is not None else ()
    return sorted({*section.names, *section.instead, *section.never, *public})


def unknown(theirs: str, name: str) -> str:
    """What to say of a name that is not there."""
    near = nearest_name(name, names_of(theirs))
    return f"module 'ray.{theirs}' has no public name {name!r} in any version" + (
        f"; did you mean {near!r}?" if near else ""
    )
