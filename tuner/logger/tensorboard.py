"""TensorBoard's event files, written without TensorBoard, tensorboardX, protobuf or torch.

A scalar event is a few bytes of a format that has not changed in ten years; tensorboardX costs an import of torch
where it is installed (1.5 s and more), and several times as much per event.
"""

from __future__ import annotations

import errno
import logging
import math
import os
import queue
import socket
import struct
import threading
import time
from pathlib import Path
from typing import Any

from trainables.errors import LimitError
from trainables.history import flatten
from trainables.starting import start_thread
from tuner.callback import Trials
from tuner.experiment.trial import Trial
from tuner.logger.base import LoggerCallback

log = logging.getLogger(__name__)

BACKLOG = 20_000
"""Results that may wait for the writer; beyond that they are left out of TensorBoard's files, with one warning."""
_LEFT_OUT = frozenset({"pid", "timestamp", "done", "training_iteration", "iterations_since_restore"})


class TBXLoggerCallback(LoggerCallback):
    """Writes every number that a trial reports into an event file in its directory, from a thread of its own.

    The step is `training_iteration`. When a trial goes back to a checkpoint, TensorBoard is told what to drop.
    """

    changes_results = False

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[str, Path, int, Any] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._refused = False
        """The system gave no thread for it."""
        self._left_out = False

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        if self._queue.qsize() > BACKLOG:
            if not self._left_out:
                self._left_out = True
                log.warning("TensorBoard's files cannot keep up with the results; some are left out there")
            return
        # not the result itself: the loop and callbacks go on changing it
        self._put("result", trial, result.get("training_iteration", iteration), dict(result))

    def log_trial_rollback(self, trial: Trial, iteration: int) -> None:
        self._put("purge", trial, iteration + 1, None)

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        if self._thread is not None:
            self._put("close", trial, 0, None)

    def on_experiment_end(self, trials: Trials, **info: Any) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            self._queue.put(None)
            thread.join()

    def _put(self, what: str, trial: Trial, step: int, result: dict[str, Any] | None) -> None:
        if self._refused:
            return
        if self._thread is None:
            try:
                self._thread = start_thread(_write_all, name="tensorboard", args=(self._queue,))
            except LimitError as error:
                self._refused = True
                log.warning("TensorBoard's files are not written, the run goes on: %s", error)
                return
        self._queue.put((what, trial.directory, step, result))


def _write_all(waiting: queue.SimpleQueue[tuple[str, Path, int, Any] | None]) -> None:
    """The thread: one short burst per event, so that the loop never waits long for the interpreter."""
    files: dict[Path, EventFile] = {}
    warned: set[int | None] = set()
    while (item := waiting.get()) is not None:
        what, directory, step, result = item
        try:
            file = files.get(directory)
            if what == "close":
                if file is not None:
                    files.pop(directory).close()
                continue
            if file is None:
                if len(files) >= 64:
                    files.pop(next(iter(files))).close()
                file = files[directory] = EventFile(directory)
            if what == "purge":
                file.purge(step)
            else:
                file.scalars(step, result)
        except OSError as error:
            if error.errno not in warned:
                warned.add(error.errno)
                log.warning("cannot write TensorBoard's files in %s: %s; the run goes on", directory, error.strerror)
        except Exception as error:  # one odd result must not end the writing of all others
            if -1 not in warned:
                warned.add(-1)
                log.warning("a result cannot be written for TensorBoard in %s: %r; the run goes on", directory, error)
    for file in files.values():
        file.close()


class EventFile:
    """One event file (`tensorflow/core/util/event.proto`, framed as a TFRecord)."""

    _made = 0

    def __init__(self, directory: Path) -> None:
        EventFile._made += 1
        now = time.time()
        name = f"events.out.tfevents.{int(now):010d}.{socket.gethostname()}.{EventFile._made:06d}"
        self._path = directory / name
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        self._size = 0
        self._tags: dict[str, bytes] = {}
        self._write(_WALL_TIME.pack(now) + b"\x1a\x0dbrain.Event:2")  # field 3: file_version

    def scalars(self, step: int, result: dict[str, Any]) -> None:
        """One event with all numbers of a result."""
        values = bytearray()
        for key, value in (flatten(result) if dict in map(type, result.values()) else result).items():
            kind = type(value)
            if (kind is not float and kind is not int) or key in _LEFT_OUT:
                continue
            tag = self._tags.get(key)
            if tag is None:
                tag = self._tags[key] = _tag(key)
            values += tag + _FLOAT.pack(_as_float(value))
        if values:
            self._event(step, b"\x2a" + _varint(len(values)) + values)  # field 5: summary

    def purge(self, step: int) -> None:
        """Drop what earlier events, also those of earlier files, said from `step` on."""
        self._event(step, b"\x3a\x02\x08\x01")  # field 7: session_log {status: START}

    def close(self) -> None:
        os.close(self._fd)

    def _event(self, step: int, body: bytes) -> None:
        self._write(_WALL_TIME.pack(time.time()) + b"\x10" + _varint(step) + body)

    def _write(self, event: bytes) -> None:
        length = _LENGTH.pack(len(event))
        record = length + _CRC.pack(_masked_crc(length)) + event + _CRC.pack(_masked_crc(event))
        try:
            if os.write(self._fd, record) < len(record):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            os.ftruncate(self._fd, self._size)  # half a record would end the file for every reader
            raise
        self._size += len(record)


class _WithKey(struct.Struct):
    """A fixed-size value behind the key of its field."""

    def __init__(self, key: bytes, layout: str) -> None:
        super().__init__(layout)
        self._key = key

    def pack(self, *values: Any) -> bytes:
        return self._key + super().pack(*values)


_WALL_TIME = _WithKey(b"\x09", "<d")  # field 1
_FLOAT = _WithKey(b"\x15", "<f")  # Summary.Value field 2: simple_value
_LENGTH = struct.Struct("<Q")
_CRC = struct.Struct("<I")
_FLOAT_MAX = 3.4028234663852886e38


def _as_float(value: float) -> float:
    if -_FLOAT_MAX <= value <= _FLOAT_MAX or value != value:
        return value
    return math.inf if value > 0 else -math.inf


def _tag(key: str) -> bytes:
    """Everything of a Summary.Value but its number: its length, and the tag."""
    name = key.encode("utf-8", "backslashreplace")
    tag = b"\x0a" + _varint(len(name)) + name
    return b"\x0a" + _varint(len(tag) + 5) + tag


def _varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    data = bytearray()
    while number > 127:
        data.append(number & 127 | 128)
        number >>= 7
    data.append(number)
    return bytes(data)


def _crc_table() -> list[int]:
    table = []
    for crc in range(256):
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


_TABLE = _crc_table()


def _masked_crc(data: bytes) -> int:
    """CRC-32C (Castagnoli), masked as TFRecord wants it."""
    crc = 0xFFFFFFFF
    table = _TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 255] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
