"""Small tools around a search, under Ray Tune's names."""

from __future__ import annotations

import copy
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import Any

from trainables.trainable import Trainable
from trainables.validation import seconds
from tuner import knobs
from tuner.error import ResourceError, SerializationError, SettingError
from tuner.executors.local.pickled import check_picklable
from tuner.registry import resolve_trainable

__all__ = [
    "diagnose_serialization",
    "flatten_dict",
    "merge_dicts",
    "unflatten_dict",
    "validate_save_restore",
    "wait_for_gpu",
]


def flatten_dict(dt: Mapping[Any, Any], delimiter: str = "/") -> dict[str, Any]:
    """A nested dict without nesting.

    >>> flatten_dict({"a": {"b": 1}, "c": 2})
    {'a/b': 1, 'c': 2}
    """
    flat: dict[str, Any] = {}
    for key, value in dt.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}{delimiter}{inner}": item for inner, item in flatten_dict(value, delimiter).items()}
        else:
            flat[str(key)] = value
    return flat


def unflatten_dict(dt: Mapping[str, Any], delimiter: str = "/") -> dict[str, Any]:
    """The inverse of `flatten_dict`. Raises SettingError where a name is a value and a dict at once.

    >>> unflatten_dict({"a/b": 1, "c": 2})
    {'a': {'b': 1}, 'c': 2}
    """
    nested: dict[str, Any] = {}
    for key, value in dt.items():
        *above, last = key.split(delimiter)
        inner = nested
        for name in above:
            inner = inner.setdefault(name, {})
            if not isinstance(inner, dict):
                raise SettingError(f"{key!r} cannot be unflattened: {name!r} has a value of its own")
        if isinstance(inner.get(last), dict):
            raise SettingError(f"{key!r} cannot be unflattened: there are keys below it")
        inner[last] = dict(value) if isinstance(value, dict) else value  # the caller's own one stays as it is
    return nested


def merge_dicts(d1: Mapping[str, Any], d2: Mapping[str, Any]) -> dict[str, Any]:
    """Both in one new dict; of equal keys the second one's value stays, and of dicts under one key both are merged.

    >>> merge_dicts({"a": {"b": 1}, "c": 2}, {"a": {"d": 3}, "c": 4})
    {'a': {'b': 1, 'd': 3}, 'c': 4}
    """
    merged = copy.deepcopy(dict(d1))
    for key, value in d2.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = merge_dicts(merged[key], value) if both else copy.deepcopy(value)
    return merged


def diagnose_serialization(trainable: Any) -> bool:
    """Whether a trainable can be sent to its trials; what cannot is printed."""
    try:
        check_picklable(trainable)
    except SerializationError as error:
        sys.stdout.write(f"{error}\n")
        return False
    return True


def validate_save_restore(
    trainable_cls: Any, config: Mapping[str, Any] | None = None, num_gpus: int = 0, **unused: Any
) -> bool:
    """Train a class for one step, save it, load that into a new one, and train on.

    Args:
        trainable_cls: a Trainable, or the name of a registered one.
        config: what it is made with.
        num_gpus: Ray's; nothing is reserved here.

    Raises SettingError for something else than a class; what the class raises comes out as it is.
    """
    kind, name = resolve_trainable(trainable_cls)
    if not (isinstance(kind, type) and issubclass(kind, Trainable)):
        raise SettingError(f"validate_save_restore({name!r}) is not accepted; accepted is a subclass of Trainable")
    first, second = kind(dict(config or {})), kind(dict(config or {}))
    try:
        first.train()
        with tempfile.TemporaryDirectory(prefix="validate-") as directory:
            second.restore(first.save(directory))
            result = second.train()
    finally:
        first.stop()
        second.stop()
    if result["training_iteration"] != 2:
        raise SettingError(f"{name}: after a restore the next iteration is {result['training_iteration']}, and not 2")
    return True


def wait_for_gpu(
    gpu_id: int | str | None = None, target_util: float = 0.01, retry: int = 20, delay_s: float = 5, **unused: Any
) -> bool:
    """Wait until so little of a GPU's memory is in use that the next trial finds room.

    Args:
        gpu_id: index or UUID as nvidia-smi knows it; None: the first that this process may use.
        target_util: the share of its memory that may be in use.
        retry, delay_s: how often it is looked, and the seconds between two looks.

    Raises ResourceError when there is no such GPU, or it stays in use.
    """
    seconds("delay_s", delay_s, zero=True)
    used = 1.0
    for look in range(retry):
        if look:
            time.sleep(delay_s)
        used = _memory_in_use(gpu_id)
        if used <= target_util:
            return True
    raise ResourceError(f"GPU {gpu_id!r}: {used:.0%} of its memory is in use after {retry} looks")


def _memory_in_use(gpu_id: int | str | None) -> float:
    chosen = gpu_id if gpu_id is not None else (knobs.cuda_visible_devices() or "0").split(",")[0]
    query = ["nvidia-smi", f"--id={chosen}", "--query-gpu=memory.used,memory.total", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(query, capture_output=True, text=True, timeout=60, check=True).stdout
        used, total = (float(number) for number in said.split(","))
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise ResourceError(f"GPU {chosen!r} cannot be looked at: {error}") from error
    return used / total
