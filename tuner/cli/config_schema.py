"""The JSON Schema of a config file: what an editor checks and completes while it is written. `tuner run --schema`."""

from __future__ import annotations

import inspect
from typing import Any

from trainables.command.command import Command
from tuner.cli import command_keys, yaml_space
from tuner.cli.config_file import Keys
from tuner.schedulers import SCHEDULER_NAMES
from tuner.search import SEARCHER_NAMES

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema() -> dict[str, Any]:
    """What a config file may hold. What it lets pass may still be refused; what it refuses always is.

    Example:
        >>> schema()["properties"]["num_samples"]["type"]
        'integer'
    """
    keys = Keys.model_json_schema()
    properties: dict[str, Any] = {name: _shown(found) for name, found in keys["properties"].items()}
    properties["param_space"] = {"type": "object", "additionalProperties": {"$ref": "#/$defs/space"}}
    properties["scheduler"] = _plug_in(SCHEDULER_NAMES)
    properties["search_alg"] = _plug_in(SEARCHER_NAMES)
    properties["command"] = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}, _command()]}
    properties |= {name: {} for name in command_keys.BESIDE}
    properties["shell"] = {"type": "boolean"}
    return {
        "$schema": _DIALECT,
        "title": "an experiment for `tuner run`",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "oneOf": [{"required": ["trainable"]}, {"required": ["command"]}],
        "$defs": {"space": _space()},
    }


def _shown(found: dict[str, Any]) -> dict[str, Any]:
    """Without what says nothing: a title that repeats the name, and a default that stands for "not given"."""
    return {key: value for key, value in found.items() if key not in ("title", "default")}


def _plug_in(names: tuple[str, ...]) -> dict[str, Any]:
    """`asha`, or `{asha: {max_t: 10}}`; the names are offered, not demanded: others may be registered."""
    one = {"type": "object", "minProperties": 1, "maxProperties": 1, "properties": {name: {} for name in names}}
    return {"anyOf": [{"type": "string", "examples": list(names)}, one, {"type": "null"}]}


def _command() -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: {} for name in inspect.signature(Command).parameters},
        "additionalProperties": False,
        "required": ["command"],
    }


def _space() -> dict[str, Any]:
    """A value, a domain, or a mapping of such."""
    lists = {"type": "array", "items": {"$ref": "#/$defs/space"}}
    domains = {name: lists if name in yaml_space.LISTS else {} for name in yaml_space.DOMAINS}
    below = {"type": "object", "properties": domains, "additionalProperties": {"$ref": "#/$defs/space"}}
    return {"anyOf": [{"type": ["string", "number", "boolean", "null", "array"]}, below]}
