"""TensorBoard's HParams of a trial: its config and its metrics' names, as protocol buffers of the `hparams` plug-in.

Source: `tensorboard/plugins/hparams/plugin_data.proto` and `api.proto`, as tensorboardX, PyTorch and Ray write them.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trainables import tagged
from trainables.plain_json import plain
from trainables.result_history import flatten

START_TAG = "_hparams_/session_start_info"
"""Tag of the event that holds a trial's config."""

_SUCCESS, _FAILURE = 1, 2
_STRING, _BOOL, _FLOAT64 = 1, 2, 3
_EXPERIMENT, _SESSION_START, _SESSION_END = 2, 3, 4
"""Fields of HParamsPluginData."""


def values_of(raw_config: bytes) -> dict[str, str | bool | float]:
    """A config without nesting, each value as a number, a boolean or text. Nothing is unpickled.

    >>> values_of(b'{"lr": 0.1, "opt": {"name": "sgd", "betas": {"$": "tuple", "v": [0.9, 0.99]}}, "seed": null}')
    {'lr': 0.1, 'opt/name': 'sgd', 'opt/betas': '[0.9, 0.99]', 'seed': 'None'}
    """
    return {key: _typed(value) for key, value in flatten(plain(tagged.loads(raw_config))).items()}


def summaries(config: Mapping[str, str | bool | float], metrics: Iterable[str], *, failed: bool) -> Iterator[bytes]:
    """The three values that the plug-in reads, each as a Summary.

    Args:
        config: what `values_of` returns.
        metrics: the tags of the trial's scalars.
        failed: how the trial ended.
    """
    kinds = {str: _STRING, bool: _BOOL, float: _FLOAT64}
    infos = b"".join(_field(4, _text(1, key) + _number(4, kinds[type(value)])) for key, value in config.items())
    infos += b"".join(_field(5, _field(1, _text(2, tag))) for tag in metrics)
    yield _value("_hparams_/experiment", _EXPERIMENT, infos)
    entries = (_field(1, _text(1, key) + _field(2, _encoded(value))) for key, value in config.items())
    yield _value(START_TAG, _SESSION_START, b"".join(entries))
    yield _value("_hparams_/session_end_info", _SESSION_END, _number(1, _FAILURE if failed else _SUCCESS))


def _typed(value: Any) -> str | bool | float:
    if isinstance(value, str | bool):
        return value
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return str(value)
    return number if math.isfinite(number) else str(value)


def _encoded(value: str | bool | float) -> bytes:
    """A google.protobuf.Value."""
    if isinstance(value, bool):
        return _number(4, int(value))
    return _text(3, value) if isinstance(value, str) else b"\x11" + struct.pack("<d", value)


def _value(tag: str, field: int, content: bytes) -> bytes:
    """A Summary with one value, whose metadata holds HParamsPluginData of version 0."""
    plugin = _text(1, "hparams") + _field(2, _field(field, content))
    return _field(1, _text(1, tag) + _field(9, _field(1, plugin)))


def _field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def _text(number: int, text: str) -> bytes:
    return _field(number, text.encode("utf-8", "backslashreplace"))


def _number(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def varint(number: int) -> bytes:
    """A number as protocol buffers write it."""
    number &= (1 << 64) - 1
    data = bytearray()
    while number > 127:
        data.append(number & 127 | 128)
        number >>= 7
    data.append(number)
    return bytes(data)
