"""What a run of Weights & Biases left on this disk: the last step in its `.wandb` file.

The file is LevelDB's log format (blocks of 32 KiB; a record is checksum, length, kind, data), after a header of seven
bytes; a record is a `wandb_internal.Record` of wandb's own protobuf module.
"""

from __future__ import annotations

import importlib
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainables.store import fs

HEADER = struct.Struct("<4sHB")
_RECORD = struct.Struct("<IHB")
_BLOCK = 32768
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


def records(path: Path) -> Iterator[Any]:
    """The records that are whole, in their order; ValueError where the file is none of wandb's."""
    kinds = importlib.import_module("wandb.proto.wandb_internal_pb2")
    data = fs.read_file(path)
    if len(data) < HEADER.size or HEADER.unpack_from(data)[0] != b":W&B":
        raise ValueError(f"{path} is no file of wandb's")
    for body in _bodies(data):
        record = kinds.Record()
        record.ParseFromString(body)
        yield record


def last_step(path: Path) -> int:
    """The highest step of the run's history in that file; 0: there is none."""
    highest = 0
    for record in records(path):
        if record.WhichOneof("record_type") == "history":
            highest = max(highest, step_of(record.history))
    return highest


def step_of(history: Any) -> int:
    """The step of one line of the history."""
    if history.HasField("step"):
        return int(history.step.num)
    return next((int(item.value_json) for item in history.item if item.key == "_step"), 0)


def in_use(path: Path) -> bool:
    """Whether a process of ours has it open."""
    wanted = os.path.realpath(path)
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            if any(os.readlink(fd) == wanted for fd in (process / "fd").iterdir()):
                return True
        except OSError:
            continue  # it has ended, or is another user's
    return False


def _bodies(data: bytes) -> Iterator[bytes]:
    at, whole = HEADER.size, b""
    while at + _RECORD.size <= len(data):
        left = _BLOCK - at % _BLOCK
        if left < _RECORD.size:
            at += left  # padding: no record begins there
            continue
        _, length, kind = _RECORD.unpack_from(data, at)
        at += _RECORD.size
        part = data[at : at + length]
        if len(part) < length or kind not in (_FULL, _FIRST, _MIDDLE, _LAST):
            return  # a killed writer's last
        at += length
        whole = part if kind in (_FULL, _FIRST) else whole + part
        if kind in (_FULL, _LAST):
            yield whole
