"""`Resources` of Ray 1.13: what a trial asks for, as a tuple."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from trainables.validation import unknown_name
from tuner.error import SettingError
from tuner.resources import parse_resources


class Resources(NamedTuple):
    """What a trial asks for; accepted wherever resources are. The `extra_` amounts, for what it starts, are added."""

    cpu: float
    gpu: float
    memory: float = 0
    object_store_memory: float = 0.0
    extra_cpu: float = 0.0
    extra_gpu: float = 0.0
    extra_memory: float = 0.0
    extra_object_store_memory: float = 0.0
    custom_resources: Mapping[str, float] | None = None
    extra_custom_resources: Mapping[str, float] | None = None
    has_placement_group: bool = False

    @property
    def bundles(self) -> list[dict[str, Any]]:
        """The same as one bundle."""
        return [self.to_json()]

    def cpu_total(self) -> float:
        """All cores."""
        return self.cpu + self.extra_cpu

    def gpu_total(self) -> float:
        """All GPUs."""
        return self.gpu + self.extra_gpu

    def get_res_total(self, key: str) -> float:
        """All of a custom resource."""
        return (self.custom_resources or {}).get(key, 0) + (self.extra_custom_resources or {}).get(key, 0)

    def get(self, key: str) -> float:
        """A custom resource, without the extra amount."""
        return (self.custom_resources or {}).get(key, 0)

    def summary_string(self) -> str:
        """For people: "cpu=1, gpu=0.5"."""
        return ", ".join(f"{name}={amount:g}" for name, amount in parse_resources(self).items())

    def to_json(self) -> dict[str, Any]:
        """As a dict, which `resources_per_trial` takes too."""
        made = self._asdict() | {"custom_resources": dict(self.custom_resources or {})}
        made["extra_custom_resources"] = dict(self.extra_custom_resources or {})
        return {name: value for name, value in made.items() if name != "has_placement_group"}


def resources_to_json(resources: Resources | None) -> dict[str, Any] | None:
    """Resources as a dict."""
    return None if resources is None else resources.to_json()


def json_to_resources(data: str | Mapping[str, Any] | None) -> Resources | None:
    """Resources of a dict, or of one as JSON. Raises SettingError for a name that is none."""
    read = json.loads(data) if isinstance(data, str) else data
    if read is None:
        return None
    for name in read:
        if name not in Resources._fields:
            raise SettingError(unknown_name("resource", name, Resources._fields))
    return Resources(**{"cpu": 1, "gpu": 0, **read})
