"""Constants and checks of Ray's that scripts import."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from tuner.error import SettingError

UNRESOLVED_SEARCH_SPACE = "{cls}({par}=...) holds domains of a search space; they are given to the run, as param_space"
UNDEFINED_SEARCH_SPACE = "{cls} has no search space: give {space}= to it, or param_space to the run"
UNDEFINED_METRIC_MODE = "{cls} does not know what is searched for: metric={metric}, mode={mode}; give both to the run"


def ensure_only_allowed_dataclass_keys_updated(dataclass: Any, allowed_keys: Iterable[str]) -> None:
    """Raise SettingError where a field of a dataclass that is not among the allowed ones differs from its default."""
    allowed = set(allowed_keys)
    plain = type(dataclass)()
    for each in dataclasses.fields(dataclass):
        if each.name not in allowed and getattr(dataclass, each.name) != getattr(plain, each.name):
            accepted = ", ".join(sorted(allowed))
            raise SettingError(
                f"{type(dataclass).__name__}({each.name}=...) is not accepted here; accepted: {accepted}"
            )
