"""The table of all settings, from the fields of `Spec` and the docstring of `tune.run`."""

from __future__ import annotations

import inspect
import re
import typing
from dataclasses import fields
from typing import Any

from made.docstrings import arguments, cell, first_line
from trainables.config import CheckpointConfig, FailureConfig, SyncConfig
from tuner.cli.config_file import KEYS, key_types
from tuner.run import run
from tuner.spec import Giver, Spec

INNER = ("inherits", "trainable_name", "rerun", "started_by", "takes_max", "resources_for")
"""Rows that nobody gives."""
CALLED = {"param_space": "config", "trainable": "run_or_experiment"}
"""What `tune.run` calls a setting that has another name there."""
GIVERS = {Giver.TUNE: "`TuneConfig`", Giver.RUN: "`RunConfig`", Giver.CALL: "-"}
OWN = {
    "trainable": "`Tuner(trainable)`",
    "param_space": "`Tuner(param_space=)`",
    "resources_per_trial": "`tune.with_resources`",
    "resume": "`Tuner.restore`",
    "restore": "`Tuner.restore`",
}
"""Where `Tuner` takes what is neither in a `TuneConfig` nor in a `RunConfig`."""

PARTS = {"failure_config": "a `FailureConfig`: what happens when a trial fails. None: it is not tried again."}
"""What `tune.run` takes in parts only, as `max_failures`."""


def table() -> str:
    """Every setting: where it is given, its default, whether a resume remembers it, what it means."""
    said, parameters = arguments(run), inspect.signature(run).parameters
    lines = ["| `tune.run` | `Tuner` | default | meaning |", "|---|---|---|---|"]
    for row in fields(Spec):
        if row.name in INNER:
            continue
        name = CALLED.get(row.name, row.name)
        default = parameters[name].default if name in parameters else row.default
        given = "" if default is inspect.Parameter.empty else f"`{default!r}`"
        where = OWN.get(row.name) or GIVERS[row.metadata["giver"]]
        marks = [f"key `{row.name}` of a config file"] if row.name in KEYS else []
        marks += ["stored"] if row.metadata["stored"] else []
        behind = f" *({', '.join(marks)})*" if marks else ""
        lines.append(f"| `{name}` | {where} | {given} | {linked(cell(said.get(name) or PARTS[name]))}{behind} |")
    return "\n".join([*lines, "", *_parts()])


def linked(text: str) -> str:
    """With a link to the page where a docstring names its file."""
    return re.sub(r"\bdocs/([\w-]+)\.md\b", r"[\1](../\1.md)", text)


def _parts() -> list[str]:
    """The objects that hold several settings."""
    lines = []
    for kind in (CheckpointConfig, FailureConfig, SyncConfig):
        lines += [f"## {kind.__name__}", "", first_line(kind), "", "| name | default | meaning |", "|---|---|---|"]
        said, rows = arguments(kind), inspect.signature(kind).parameters
        lines += [
            f"| `{name}` | `{rows[name].default!r}` | {cell(text)} |" for name, text in said.items() if name in rows
        ]
        lines.append("")
    return lines


def keys() -> str:
    """The keys of a config file, with what each may hold."""
    said = arguments(run)
    lines = ["| key | holds | meaning |", "|---|---|---|"]
    for key, kind in key_types().items():
        lines.append(f"| `{key}` | {cell(_words(kind))} | {linked(cell(said.get(CALLED.get(key, key), '')))} |")
    return "\n".join(lines)


def _words(kind: Any) -> str:
    """A type, as a reader of YAML says it."""
    plain = {str: "text", int: "whole number", float: "number", bool: "true, false", type(None): "null"}
    if kind in plain:
        return plain[kind]
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return ", ".join(f"`{word}`" for word in inner)
    if origin is list:
        return f"a list ({_words(inner[0])})"
    if origin is dict:
        return "a mapping"
    if inner:
        return ", ".join(dict.fromkeys(_words(part) for part in inner))
    return "a mapping" if kind is dict else "anything"
