"""TensorBoard's event files, written without TensorBoard, tensorboardX, protobuf or torch.

A scalar event is a few bytes of a format that has not changed in ten years; tensorboardX costs an import of torch
where it is installed (1.5 s and more), and several times as much per event.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import os
import queue
import re
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainables import tagged
from trainables.errors import LimitError
from trainables.metrics import as_score
from trainables.result_history import flatten, missing_row, read_history
from trainables.starting import start_thread
from trainables.store import fs
from tuner.callback import Trials
from tuner.experiment.paths import TrialPaths
from tuner.experiment.standing import StandingResult
from tuner.experiment.trial import Trial
from tuner.logger import hparams
from tuner.logger.base import LoggerCallback
from tuner.logger.hparams import varint

log = logging.getLogger(__name__)

BACKLOG = 20_000
"""Results that may wait for the writer; beyond that they are left out of TensorBoard's files, with one warning."""
_LEFT_OUT = frozenset({"pid", "timestamp", "done", "training_iteration", "iterations_since_restore"})


class TBXLoggerCallback(LoggerCallback):
    """Writes every number that a trial reports into an event file in its directory, from a thread of its own.

    The step is `training_iteration`. When a trial goes back to a checkpoint, TensorBoard is told what to drop. When a
    trial ends, its config follows for the page HPARAMS: nested keys as `a/b`, and what is no number or boolean as text.
    """

    changes_results = False

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[str, Path, int, Any] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._refused = False
        """The system gave no thread for it."""
        self._left_out = False

    def complete(self, trial: Trial, standing: StandingResult) -> list[int]:
        """Write what the last driver's thread had not come to, or was not copied: a trial's results, before it runs.

        Nobody's results are missing for that: returns an empty list, as those do that keep rows.
        """
        try:
            self._complete_scalars(trial, standing)
            if _lacks_hparams(trial):
                with contextlib.closing(EventFile(trial.directory)) as file:
                    file.hparams(bytes(trial.raw_config), trial.last_result, failed=trial.status == Trial.ERROR)
        except OSError as error:
            log.warning("cannot write TensorBoard's files in %s: %s; the run goes on", trial.directory, error.strerror)
        return []

    def _complete_scalars(self, trial: Trial, standing: StandingResult) -> None:
        shown = steps(trial.directory)
        told = {step for step, raw in standing.results.items() if tagged.loads(bytes(raw)) != missing_row(step)}
        as_far = trial.iteration in shown or not trial.iteration
        if as_far and told <= shown and max(shown, default=0) <= min(trial.iteration, standing.void_after):
            return  # the history need not be read
        rows = _rows(trial, standing)
        first = min([*(rows.keys() - shown), standing.void_after + 1, trial.iteration + 1])
        purges = max(shown, default=0) >= first
        if purges or any(step >= first for step in rows):
            with contextlib.closing(EventFile(trial.directory)) as file:
                if purges:
                    file.purge(int(first))
                for step, row in sorted(rows.items()):
                    if step >= first:
                        file.scalars(step, row, at=as_score(row.get("timestamp")))

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
        if trial.last_result:
            self._put("hparams", trial, int(failed), (bytes(trial.raw_config), trial.last_result))
        if self._thread is not None:
            self._put("close", trial, 0, None)

    def on_experiment_end(self, trials: Trials, **info: Any) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            self._queue.put(None)
            thread.join()

    def _put(self, what: str, trial: Trial, step: int, result: Any) -> None:
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
            elif what == "hparams":
                config, last = result
                file.hparams(config, last, failed=bool(step))
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
        # Readers go through the files by their names: after those of a driver that was killed in this very second.
        seconds = (int(found[1]) + 1 for name in fs.listdir(directory) if (found := _OWN.fullmatch(name)))
        second = max([int(now), *seconds])
        name = f"events.out.tfevents.{second:010d}.{socket.gethostname()}.{EventFile._made:06d}"
        self._fd = os.open(directory / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        self._size = 0
        self._tags: dict[str, bytes] = {}
        try:
            self._write(_WALL_TIME.pack(b"\x09", now) + b"\x1a\x0dbrain.Event:2")  # field 3: file_version
        except OSError:
            self.close()  # the next result tries again, with another file
            fs.remove_quietly(directory / name)
            raise

    def scalars(self, step: int, result: dict[str, Any], *, at: float | None = None) -> None:
        """One event with all numbers of a result; `at`: seconds since the epoch, default now."""
        values = bytearray()
        for key, value in _numbers(result):
            tag = self._tags.get(key)
            if tag is None:
                tag = self._tags[key] = _tag(key)
            values += tag + _VALUE.pack(_as_float(value))
        if values:
            self._event(step, _SUMMARY + varint(len(values)) + values, at)

    def hparams(self, raw_config: bytes, result: dict[str, Any], *, failed: bool) -> None:
        """Events with a trial's config, the names of its metrics, and how it ended."""
        config, names = hparams.values_of(raw_config), [key for key, _ in _numbers(result)]
        for summary in hparams.summaries(config, names, failed=failed) if config else ():
            self._write(_WALL_TIME.pack(b"\x09", time.time()) + _SUMMARY + varint(len(summary)) + summary)

    def purge(self, step: int) -> None:
        """Drop what earlier events, also those of earlier files, said from `step` on."""
        self._event(step, _SESSION_LOG + b"\x02\x08\x01")  # {status: START}

    def close(self) -> None:
        os.close(self._fd)

    def _event(self, step: int, body: bytes, at: float | None = None) -> None:
        self._write(_WALL_TIME.pack(b"\x09", time.time() if at is None else at) + _STEP + varint(step) + body)

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


def _numbers(result: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """The scalars of a result, by their tags."""
    for key, value in (flatten(result) if dict in map(type, result.values()) else result).items():
        kind = type(value)
        if (kind is float or kind is int) and key not in _LEFT_OUT:
            yield key, value


def _lacks_hparams(trial: Trial) -> bool:
    """Whether a trial has ended, and its files do not have its config."""
    ended = trial.status in (Trial.TERMINATED, Trial.ERROR) and trial.last_result
    if not ended or not hparams.values_of(bytes(trial.raw_config)):
        return False
    names = [name for name in fs.listdir(trial.directory) if _OWN.fullmatch(name)]
    return not any(hparams.START_TAG.encode() in fs.read_file(trial.directory / name) for name in names)


def _rows(trial: Trial, standing: StandingResult) -> dict[int, dict[str, Any]]:
    """The results of a trial that stand, by iteration."""
    rows = {row.get("training_iteration"): row for row in read_history(TrialPaths(trial.directory).result_json)}
    for iteration, raw in standing.results.items():
        rows.setdefault(iteration, tagged.loads(bytes(raw)))
    return {
        step: row
        for step, row in rows.items()
        if isinstance(step, int) and step <= trial.iteration and row != missing_row(step)
    }


def steps(directory: Path) -> set[int]:
    """The steps that stand in a trial's event files, as far as they are whole."""
    standing: set[int] = set()
    for name in sorted(fs.listdir(directory)) if fs.is_dir(directory) else ():
        if not _OWN.fullmatch(name):
            continue
        for event in _events(fs.read_file(directory / name)):
            if not event.startswith(_STEP, 9):
                continue
            step, end = _read_varint(event, 10)
            if event.startswith(_SUMMARY, end):
                standing.add(step)
            elif event.startswith(_SESSION_LOG, end):
                standing = {before for before in standing if before < step}
    return standing


def _events(data: bytes) -> Iterator[bytes]:
    start = 0
    while start + 12 <= len(data):
        (length,) = _LENGTH.unpack_from(data, start)
        start += 12
        if start + length + 4 > len(data):
            return  # a killed writer's last
        yield data[start : start + length]
        start += length + 4


def _read_varint(data: bytes, start: int) -> tuple[int, int]:
    """(number, where it ends)"""
    number = shift = 0
    for end in range(start, len(data)):
        number |= (data[end] & 127) << shift
        shift += 7
        if data[end] < 128:
            return number, end + 1
    return number, len(data)


_WALL_TIME = struct.Struct("<cd")  # the key of field 1, and its value
_STEP = b"\x10"  # field 2
_SUMMARY = b"\x2a"  # field 5
_SESSION_LOG = b"\x3a"  # field 7
_OWN = re.compile(r"events\.out\.tfevents\.(\d{10})\..+\.\d{6}")
"""Files of this writer; what other libraries call theirs ends otherwise."""
_VALUE = struct.Struct("<f")
_LENGTH = struct.Struct("<Q")
_CRC = struct.Struct("<I")
_FLOAT_MAX = 3.4028234663852886e38


def _as_float(value: float) -> float:
    if -_FLOAT_MAX <= value <= _FLOAT_MAX or value != value:
        return value
    return math.inf if value > 0 else -math.inf


def _tag(key: str) -> bytes:
    """Everything of a Summary.Value but its number: its length, the tag, and the key of field 2, simple_value."""
    name = key.encode("utf-8", "backslashreplace")
    tag = b"\x0a" + varint(len(name)) + name
    return b"\x0a" + varint(len(tag) + 5) + tag + b"\x15"


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
