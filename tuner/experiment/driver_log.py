"""driver.log: every warning of an experiment's drivers, with its time, one per line; appended to by each of them.

A terminal forgets, and `verbose=0` shows nothing: here a person finds what was said. Nothing that goes wrong with this
file ends a run.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
import os
import re
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import Any

from trainables import warned
from trainables.masking import masked
from trainables.quick_dataclass import dataclass
from trainables.store import fs
from tuner.clock import Clock
from tuner.error import TuneError
from tuner.experiment.paths import ExperimentPaths

PACKAGES = ("tuner", "trainables")
LIMIT = 1024 * 1024
"""Bytes of driver.log; then it becomes the older one, in place of the one before."""
LINE = 16 * 1024
"""Characters of one line; what is longer is cut."""
OF_A_KIND = 100
"""So many warnings of one cause are written down in one driver's life; of those that follow only their number."""
KEPT = 1000
"""So many lines wait until the experiment is open."""
ENDED = logging.getLevelName(logging.CRITICAL)
"""Level of the error that ended a driver, and of nothing else."""
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\\]")
_LINE = re.compile(r"(?P<at>\d{4}-\d\d-\d\dT\S+) (?P<level>[A-Z]+) (?P<text>.*)")


@dataclass(frozen=True, slots=True)
class Warned:
    """One line of driver.log."""

    at: str
    """ISO 8601, with its zone."""
    level: str
    text: str

    @property
    def ended(self) -> bool:
        """It is the error that ended a driver."""
        return self.level == ENDED

    @property
    def is_warning(self) -> bool:
        """Whether something may be wrong: a resume that finds nothing left to run is written down too."""
        return self.level != logging.getLevelName(logging.INFO)

    def __str__(self) -> str:
        return f"{self.at} {self.level} {self.text}"


class DriverLog(logging.Handler):
    """Writes down the warnings of both packages, from the start of a run to its end.

    Warnings from before the experiment is open wait for it; of a start that is refused they are let go of, for it
    touches nothing. The clock tells when something was said that no log record tells of.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__(logging.WARNING)
        self._held: Any = self.lock  # logging's own, in which `emit` is called
        self._clock = clock
        self._waiting: deque[str] = deque(maxlen=KEPT)
        self._seen: Counter[tuple[str, str]] = Counter()
        self._paths: ExperimentPaths | None = None
        self._fd = -1
        self._size = 0
        self._torn = False
        """The file may end in half a line."""
        self._unwritten = 0

    @contextlib.contextmanager
    def attached(self) -> Iterator[DriverLog]:
        """Hear what both packages log meanwhile, and what they warned of before: settings are made before a run."""
        loggers = [logging.getLogger(name) for name in PACKAGES]
        for logger in loggers:
            logger.addHandler(self)
        try:
            for record in warned.take():
                self.add(str(record.msg), at=record.created)
            yield self
        finally:
            for logger in loggers:
                logger.removeHandler(self)
            self.close()

    def open(self, paths: ExperimentPaths) -> None:
        """The experiment is this driver's, and is written to: what waits is written down."""
        with self._held:
            self._paths = paths
            while self._waiting:
                self._write(self._waiting.popleft())

    def let_go(self) -> None:
        """The experiment is taken back: nothing more is written there."""
        with self._held:
            self._waiting.clear()
            self._shut()

    def add(self, text: str, *, level: int = logging.WARNING, at: float | None = None) -> None:
        """Write down something that was said in another way; `at`: when, in seconds since the epoch."""
        with self._held:
            self._put(self._clock.time() if at is None else at, logging.getLevelName(level), text)

    def add_end(self, error: Exception) -> None:
        """Write down the first line of the error that ends the driver."""
        said = str(error).strip().partition("\n")[0]
        of_ours = isinstance(error, TuneError) and said
        text = said if of_ours else f"{type(error).__name__}: {said}" if said else type(error).__name__
        self.add(text, level=logging.CRITICAL)

    def emit(self, record: logging.LogRecord) -> None:
        cause = (record.name, str(record.msg)[:LINE])
        if len(self._seen) < KEPT or cause in self._seen:
            self._seen[cause] += 1
        if self._seen[cause] <= OF_A_KIND:
            try:
                self._put(record.created, record.levelname, _said(record))
            except Exception:
                self.handleError(record)
        if self._is_alone(record.name) and logging.lastResort is not None:
            logging.lastResort.handle(record)  # who configures nothing sees warnings as if this were not here

    def count_rest(self) -> None:
        """Say how many warnings were left out so far. What follows of their kinds is only counted too."""
        with self._held:
            for cause, count in self._seen.items():
                if count > OF_A_KIND:
                    self._put(self._clock.time(), "WARNING", f"{count - OF_A_KIND} more like: {cause[1]}")
                    self._seen[cause] = OF_A_KIND

    def close(self) -> None:
        """Say what was left out, and close the file. Safe to call again."""
        with self._held:
            self.count_rest()
            self._seen.clear()
            self._shut()
        super().close()

    def _shut(self) -> None:
        self._paths = None
        if self._fd >= 0:
            fs.close(self._fd)
            self._fd = -1

    # --- the file -----------------------------------------------------------------------------------

    def _put(self, at: float, level: str, text: str) -> None:
        line = f"{_iso(at)} {level} {one_line(masked(text[: 4 * LINE]))}"
        if self._paths is None:
            self._waiting.append(line)
        else:
            self._write(line)

    def _write(self, line: str) -> None:
        data = line.encode("utf-8", "backslashreplace") + b"\n"
        try:
            self._make_ready(len(data))
            if self._unwritten:
                missed = f"{_iso(self._clock.time())} WARNING {self._unwritten} warnings could not be written here\n"
                data = missed.encode() + data
            if self._torn:
                data = b"\n" + data
            self._torn = True
            fs.write(self._fd, data)
        except OSError:
            self._unwritten += 1  # a full disk, for one: said once there is room, and shown where warnings are shown
            return
        self._size += len(data)
        self._torn, self._unwritten = False, 0

    def _make_ready(self, size: int) -> None:
        """Have the file open, with room for that many bytes below the limit."""
        assert self._paths is not None
        if self._fd < 0:
            self._open()
        if self._size and self._size + size > LIMIT:
            fs.rename(self._paths.driver_log, self._paths.older_driver_log)
            fs.close(self._fd)
            self._fd = -1
            self._open()

    def _open(self) -> None:
        assert self._paths is not None
        self._fd = fs.open_append(self._paths.driver_log)
        self._size = os.fstat(self._fd).st_size
        self._torn = False
        if self._size:
            with open(self._paths.driver_log, "rb") as file:
                file.seek(-1, os.SEEK_END)
                self._torn = file.read(1) != b"\n"  # a driver was killed, or the disk was full

    def _is_alone(self, name: str) -> bool:
        """Whether nobody else hears a logger, of several that listen as this one does the first."""
        logger: logging.Logger | None = logging.getLogger(name)
        heard: list[logging.Handler] = []
        while logger is not None:
            heard += logger.handlers
            logger = logger.parent if logger.propagate else None
        return all(isinstance(handler, DriverLog) for handler in heard) and heard[:1] == [self]


def one_line(text: str) -> str:
    """`text` on one line that no terminal obeys: newlines and control characters as a programmer writes them."""
    cut = text if len(text) <= LINE else f"{text[:LINE]} ..."
    return _UNSAFE.sub(lambda found: _ESCAPED.get(found[0]) or f"\\x{ord(found[0]):02x}", cut)


_ESCAPED = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def read(paths: ExperimentPaths) -> list[Warned]:
    """What both files say, the oldest first; what is no line of ours is left out."""
    return [Warned(*match.groups()) for line in _lines(paths) if (match := _LINE.fullmatch(line))]


def what_ended(lines: Sequence[Warned], since: float) -> str | None:
    """The error that ended the driver that began then, in seconds since the epoch; None: none is known."""
    for line in reversed(lines):
        if line.ended and datetime.datetime.fromisoformat(line.at).timestamp() >= since:
            return line.text
    return None


def merge(paths: ExperimentPaths, incoming: ExperimentPaths) -> None:
    """Join what the files of another copy of the experiment say to what is here, by time and each line once."""
    theirs, ours = _lines(incoming), _lines(paths)
    lines = theirs if set(theirs).issuperset(ours) else sorted({*ours, *theirs})
    if not theirs:
        return
    left = [line.encode("utf-8", "backslashreplace") + b"\n" for line in lines]
    for file in (paths.driver_log, paths.older_driver_log):
        kept: list[bytes] = []
        size = 0
        while left and size + len(left[-1]) <= LIMIT:
            size += len(left[-1])
            kept.append(left.pop())
        if kept:
            fs.replace_file(file, b"".join(reversed(kept)))


def _lines(paths: ExperimentPaths) -> list[str]:
    lines: list[str] = []
    for file in paths.driver_logs:
        with contextlib.suppress(OSError):  # there is none
            lines += fs.read_file(file).decode("utf-8", "replace").split("\n")
    return [line for line in lines if line]


def _said(record: logging.LogRecord) -> str:
    text = record.getMessage()
    if record.exc_info:
        text += "\n" + logging.Formatter().formatException(record.exc_info)
    return text


def _iso(at: float) -> str:
    return datetime.datetime.fromtimestamp(at).astimezone().isoformat(timespec="milliseconds")
