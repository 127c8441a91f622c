"""Normalization of reported metrics: scalars of numpy and torch become plain numbers."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from trainables.errors import MetricError
from trainables.tagged_kinds import DEPTH, SCALARS, STR, WRITERS, KeyPath, label_of, name_of, tag, tag_blob, tag_numpy


def plain_metrics(metrics: Mapping[Any, Any]) -> dict[Any, Any]:
    """A result as it is logged: numpy, torch and other 0-d scalars become numbers.

    Returns:
        A new dict; nested mappings are dicts too.

    Raises:
        MetricError: a value that cannot be written; the message names its key, nested ones as `a/b`.
    """
    if not set(map(type, metrics)) <= STR:
        for key in metrics:
            if not isinstance(key, str):
                raise MetricError(f"{key!r} is a {type(key).__name__}: the keys of a result are text")
    try:
        "".join(metrics).encode()
    except UnicodeEncodeError:
        half = next(key for key in metrics if any("\ud800" <= each <= "\udfff" for each in key))
        text = f"the metric {half!r} has half of a character (a lone surrogate) in its name, which no file can hold"
        raise MetricError(text) from None
    if set(map(type, metrics.values())) <= SCALARS:
        return dict(metrics)
    return {key: _metric(value, (str(key),)) for key, value in metrics.items()}


def _metric(value: Any, path: KeyPath) -> Any:
    kind = type(value)
    if kind in SCALARS or kind in WRITERS:
        return value
    if len(path) > DEPTH:
        raise MetricError(f"{name_of(path[:3])}/... is nested deeper than {DEPTH} levels, or contains itself")
    try:
        if isinstance(value, Mapping):
            return {_key(key, path): _metric(item, (*path, str(key))) for key, item in value.items()}
        if kind in (list, tuple, set, frozenset):
            items = [_metric(item, (*path, str(index))) for index, item in enumerate(value)]
            return items if kind is list else kind(items)
        return _number(value, path)
    except MetricError:
        raise
    except Exception as error:  # whatever a foreign item(), tolist() or __float__ raises: a tensor without data, say
        raise MetricError(
            f"{name_of(path)} is a {label_of(value)} and cannot be written down: {type(error).__name__}: {error}"
        ) from error


def _key(key: Any, path: KeyPath) -> Any:
    if type(key) is not str:
        tag(key, None, (*path, "keys"))  # raises, naming the dict
    return key


def _number(value: Any, path: KeyPath) -> Any:
    """What is no container as a number, a text, or a list of numbers."""
    if type(value).__module__ == "numpy" and tag_numpy(value, None, path) is not None:
        return value if value.shape or value.dtype.kind in "mM" else _item(value, path)
    if getattr(value, "shape", None) == () and not type(value).__module__.startswith("numpy.ma"):
        return _item(value, path)
    if "torch" in sys.modules and isinstance(value, sys.modules["torch"].Tensor):
        return value.detach().cpu().tolist()
    for base in (bool, int, float, str):  # an IntEnum, a user's str: the plain value
        if isinstance(value, base):
            return base.__str__(value) if base is str else base(value)
    return _refuse(value, path)


def _item(value: Any, path: KeyPath) -> Any:
    item = value.item() if hasattr(value, "item") else value.numpy().item()
    if type(item) in SCALARS or type(item) in WRITERS:
        return item
    return value if type(value).__module__ == "numpy" and tag_numpy(value, None, path) else _refuse(value, path)


def _refuse(value: Any, path: KeyPath) -> Any:
    return tag_blob(value, None, path)  # raises, naming the key


def no_metrics(kind: type[Any], returned: object) -> str:
    """What to say of a class whose `step` returned something else, and where that is written."""
    said = "None" if returned is None else type(returned).__name__
    code = getattr(getattr(kind, "step", None), "__code__", None)
    where = f' (File "{code.co_filename}", line {code.co_firstlineno})' if code is not None else ""
    return f'{kind.__name__}.step() returned {said}, not a dict of metrics: end it with return {{"loss": ...}}{where}'
