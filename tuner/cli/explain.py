"""`tuner explain ResumeError`: what an error means and what helps, from what is installed; no network is asked."""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import re
import tomllib
from importlib.resources import files
from typing import Any

from trainables.validation import unknown_name
from tuner.cli import output
from tuner.error import SettingError

MODULES = ("tuner.error", "trainables.errors")
LINK = re.compile(r"\[([^\]]*)\]\(\.\./([\w-]+)\.md\)")
"""A link to a page of the site: its words, the page."""


def add(verbs: Any) -> None:
    verb: argparse.ArgumentParser = verbs.add_parser(
        "explain",
        help="what an error means, and what helps",
        description="Prints the cause of an error and what helps against it; without a name a line for each that there "
        "is. The same is on the page of errors of the documentation.",
    )
    verb.add_argument("error", nargs="?", metavar="ERROR", help="the name of its class, such as ResumeError")
    verb.add_argument("--json", action="store_true", help="for programs")
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    known = classes()
    if arguments.error is None:
        rows = [{"name": name, "cause": cause(kind)} for name, kind in known.items()]
        lines = json.dumps(rows) if arguments.json else "\n".join(f"{each['name']}: {each['cause']}" for each in rows)
        output.say(output.wrapped(lines, output.terminal_width()))
        return 0
    by_lower = {name.lower(): name for name in known}
    name = by_lower.get(arguments.error.rpartition(".")[2].lower())
    if name is None:
        raise SettingError(unknown_name("error", arguments.error, known))
    kind, helps = known[name], LINK.sub(r"\1 (docs/\2.md)", remedies()[name])
    if arguments.json:
        said = {"name": name, "module": kind.__module__, "kinds": kinds(kind), "cause": cause(kind)}
        output.say(json.dumps({**said, "what_helps": helps}))
        return 0
    where = f"It is {kind.__module__}.{name}, of the kinds {' and '.join(kinds(kind))}."
    text = f"{name}: {cause(kind)}\n\nWhat helps: {helps}\n\n{where}"
    output.say(output.wrapped(text, output.terminal_width()))
    return 0


def classes() -> dict[str, type[BaseException]]:
    """The classes by name: those of the driver first."""
    found = {}
    for module in MODULES:
        for name, kind in vars(importlib.import_module(module)).items():
            if inspect.isclass(kind) and issubclass(kind, BaseException) and kind.__module__ == module:
                found[name] = kind
    return found


def remedies() -> dict[str, str]:
    """Name -> what helps, in Markdown."""
    return tomllib.loads(files("tuner.cli").joinpath("remedies.toml").read_text("utf-8"))


def cause(kind: type[BaseException]) -> str:
    """The first paragraph of its docstring, on one line."""
    return " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split())


def kinds(kind: type[BaseException]) -> list[str]:
    """What it can be caught as, next to its own name."""
    return [base.__name__ for base in kind.__bases__ if base.__module__ != "trainables.user_frames"] or ["Exception"]
