"""Scalars in TensorBoard's event files, read while they are written."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainables.errors import MissingExtraError
from trainables.extras import how_to_install

_HEAD, _FOOT = 12, 4
"""Bytes around each record: its length and that number's CRC before it, its own CRC behind it (TFRecord)."""


def event_messages() -> Any:
    """The module with the messages. Raises MissingExtraError where tensorboardX, whose they are, is not installed."""
    try:
        from tensorboardX.proto import event_pb2
    except ModuleNotFoundError:
        raise MissingExtraError(f"event files are read with tensorboardX: {how_to_install('tensorboard')}") from None
    return event_pb2


class EventFiles:
    """The event files below a directory, without those that lie there already: they are of earlier lives."""

    def __init__(self, directory: Path) -> None:
        self._event = event_messages().Event
        self._directory = directory
        self._earlier = set(self._names())
        self._read: dict[str, int] = {}

    def read(self) -> Iterator[tuple[int, str, float]]:
        """(step, tag, value) of what came since."""
        for name in self._names():
            if name not in self._earlier:
                yield from self._new(name)

    def _names(self) -> list[str]:
        return sorted(str(path) for path in self._directory.rglob("*tfevents*") if path.is_file())

    def _new(self, name: str) -> Iterator[tuple[int, str, float]]:
        at, size = self._read.get(name, 0), os.path.getsize(name)
        with open(name, "rb") as file:
            while at + _HEAD <= size:
                file.seek(at)
                (length,) = struct.unpack("<Q", file.read(_HEAD)[:8])
                if at + _HEAD + length + _FOOT > size:
                    break  # the rest of it is on its way
                event = self._event.FromString(file.read(length))
                at += _HEAD + length + _FOOT
                for value in event.summary.value:
                    if (number := _scalar(value)) is not None:
                        yield event.step, value.tag, number
        self._read[name] = at


def _scalar(value: Any) -> float | None:
    """A scalar of either generation of TensorBoard's; None for pictures, texts and the like."""
    if value.HasField("simple_value"):
        return float(value.simple_value)
    if not value.HasField("tensor") or value.tensor.tensor_shape.dim:
        return None
    kinds = {1: "<f", 2: "<d"}  # DT_FLOAT, DT_DOUBLE
    if value.tensor.dtype not in kinds:
        return None
    if value.tensor.tensor_content:
        return float(struct.unpack(kinds[value.tensor.dtype], value.tensor.tensor_content)[0])
    listed = value.tensor.float_val or value.tensor.double_val
    return float(listed[0]) if listed else None
