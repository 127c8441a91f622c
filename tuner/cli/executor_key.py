"""The key `executor:` of a config: a name, or a name with the options of its executor below it.

executor: local
executor: {ray: {address: "10.0.0.1:6379"}}
executor: {slurm: {jobs: 8, partition: gpu, time: "02:00:00", gpus_per_node: 1}}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pydantic

from trainables.validation import unknown_name
from tuner.error import SettingError

NAMES = ("local", "inline", "ray", "slurm")
WITH_OPTIONS = ("ray", "slurm")

_Object = dict[str, Any] | None
_OnRay: type[pydantic.BaseModel] = pydantic.create_model(
    "_OnRay",
    __config__=pydantic.ConfigDict(extra="forbid", strict=True, frozen=True),
    address=(str | None, None),
    runtime_env=(_Object, None),
    options=(_Object, None),
)
"""The arguments of `RayExecutor`; those of `SlurmExecutor` are checked by itself."""


def made(named: str | Mapping[str, Any]) -> Any:
    """The executor, or the name of one without options. Raises SettingError."""
    if isinstance(named, str):
        return named
    ((name, options),) = named.items()
    return _on_ray(options or {}) if name == "ray" else _on_slurm(options or {})


def mistakes(executor: Mapping[str, Any]) -> list[str]:
    """What is wrong with `{ray: {...}}` or `{slurm: {...}}`."""
    name = next(iter(executor), None)
    if len(executor) != 1 or name not in WITH_OPTIONS or not isinstance(below := executor[name], dict | None):
        accepted = "local, inline, ray, slurm, {ray: {address: ...}} or {slurm: {partition: ...}}"
        return [f"executor={executor!r} is not accepted; accepted: {accepted}"]
    try:
        _OnRay.model_validate(below or {}) if name == "ray" else _on_slurm(below or {})
    except pydantic.ValidationError as error:
        return [f"executor: ray: {line}" for line in lines_of(error, _OnRay.model_fields)]
    except SettingError as error:
        return [f"executor: slurm: {error}"]
    return []


def lines_of(error: pydantic.ValidationError, known: Mapping[str, Any]) -> list[str]:
    """One line per key: a union reports each of its branches, which is one mistake to a person."""
    lines: dict[str, str] = {}
    for item in error.errors():
        key = str(item["loc"][0])
        if item["type"] == "missing":
            lines[key] = f"{key} is missing"
            continue
        if item["type"] == "extra_forbidden":
            lines[key] = unknown_name("key", key, known)
            continue
        said = item["msg"].removeprefix("Input should be ").removeprefix("a valid ")
        if key in lines:
            lines[key] += f" or {said}" if said not in lines[key] else ""
        else:
            lines[key] = f"{key}={item['input']!r} is not accepted; accepted: {said}"
    return list(lines.values())


def _on_ray(options: Mapping[str, Any]) -> Any:
    from tuner.executors import RayExecutor

    return RayExecutor(**options)


def _on_slurm(options: Mapping[str, Any]) -> Any:
    from tuner.executors import SlurmExecutor
    from tuner.executors.slurm.batch_options import from_mapping

    return SlurmExecutor(**from_mapping(options))
