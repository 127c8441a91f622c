"""The metrics that a command writes, as lines: of a JSON-lines file, its output, TensorBoard, or the Trainer's state.

Each line is one result. Where lines name their step, those that a restart has seen already are not read again.
"""

from __future__ import annotations

import glob
import json
import logging
import math
import os
import queue
import re
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from trainables.command.event_files import EventFiles
from trainables.errors import MetricError
from trainables.quick_dataclass import dataclass

_log = logging.getLogger(__name__)

Step = int | float


@dataclass(frozen=True, slots=True)
class Line:
    """One result of a command's."""

    metrics: dict[str, Any]
    step: Step | None = None
    """None: the line does not say."""


class LineSource(ABC):
    """Where the lines of one life come from. `read` is called now and then, from one thread."""

    place: str
    """What is looked at, for people."""

    @abstractmethod
    def read(self, *, ended: bool) -> list[Line]:
        """The lines that came since; `ended`: no more will come."""

    def hear(self, text: str) -> None:
        """A line of the command's output. From any thread."""


def number_of(text: str) -> Any:
    """A number that a text shows, else the text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def step_of(metrics: Mapping[str, Any], key: str | None) -> Step | None:
    """The step that a line names. Raises MetricError where it should and does not, or names no number."""
    if key is None:
        return None
    step = metrics.get(key)
    if isinstance(step, bool) or not isinstance(step, int | float) or not math.isfinite(step):
        raise MetricError(
            f"a line of metrics has {key}={step!r}, which is no step; it has {', '.join(metrics) or 'nothing'}"
        )
    return step


class JsonLines(LineSource):
    """A file to which a JSON object is added per result. What stands in it before this life is moved away first.

    A command may write all of it each time, and may rotate it: lines that stand there again, from the first on, are
    those that were taken, and what was written to the file of before is read to its end.
    """

    def __init__(self, path: Path, step: str | None, set_aside: Callable[[Path], None]) -> None:
        self.place, self._path, self._step, self._warned = str(path), path, step, False
        self._file: int | None = None
        self._close: Callable[[], object] = lambda: None
        self._read, self._again = 0, 0
        self._taken: list[int] = []
        """A hash of each line that was taken; the first `_again` of them stand in the file."""
        if path.exists():
            set_aside(path)

    def read(self, *, ended: bool) -> list[Line]:
        found = []
        try:
            status = os.stat(self._path)
            if self._file is None or os.fstat(self._file).st_ino != status.st_ino:
                found = self._rest(ended=True)
                self._open()
            elif status.st_size < self._read:
                self._read, self._again = 0, 0
        except FileNotFoundError:
            pass  # there is none yet, or it is being rotated
        found += self._rest(ended=ended)
        return [Line(metrics, step_of(metrics, self._step)) for metrics in found]

    def _open(self) -> None:
        self._close()
        self._file = os.open(self._path, os.O_RDONLY)  # until there is another one of that name
        self._close = weakref.finalize(self, os.close, self._file)
        self._read, self._again = 0, 0

    def _rest(self, *, ended: bool) -> list[dict[str, Any]]:
        """What came to the open file since."""
        if self._file is None:
            return []
        data = os.pread(self._file, max(0, os.fstat(self._file).st_size - self._read), self._read)
        whole = len(data) if ended else data.rfind(b"\n") + 1
        self._read += whole
        return [
            metrics
            for text in data[:whole].split(b"\n")
            if text.strip() and not self._stood_before(hash(text)) and (metrics := self._parsed(text)) is not None
        ]

    def _stood_before(self, line: int) -> bool:
        """Whether it is the next of those that were taken, in a file that is written anew."""
        if self._again < len(self._taken) and self._taken[self._again] == line:
            self._again += 1
            return True
        if self._again < len(self._taken):
            self._taken = []  # another file: all of it is news
        self._taken.append(line)
        self._again = len(self._taken)
        return False

    def _parsed(self, text: bytes) -> dict[str, Any] | None:
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        if isinstance(found, dict):
            return found
        if not self._warned:
            self._warned = True
            _log.warning("%s: a line is no JSON object, and is passed over: %.80r", self._path, text)
        return None


class OutputLines(LineSource):
    """What regular expressions with named groups find in the command's output; a line may match several."""

    def __init__(self, patterns: tuple[str, ...], step: str | None) -> None:
        self.place = f"the output, with {' and '.join(map(repr, patterns))}"
        self._patterns, self._step = [re.compile(pattern) for pattern in patterns], step
        self._heard: queue.SimpleQueue[str] = queue.SimpleQueue()

    def hear(self, text: str) -> None:
        self._heard.put(text)

    def read(self, *, ended: bool) -> list[Line]:
        lines = []
        while not self._heard.empty():
            text = self._heard.get()
            found: dict[str, Any] = {}
            for pattern in self._patterns:
                if (match := pattern.search(text)) is not None:
                    found |= {name: number_of(said) for name, said in match.groupdict().items() if said is not None}
            if found:
                lines.append(Line(found, step_of(found, self._step)))
        return lines


@dataclass(slots=True)
class _Growing:
    """Values that come one by one: those of a step are whole when a later one has begun, or nothing more comes."""

    after: Step
    """Steps up to here were told."""
    steps: dict[Step, dict[str, Any]] = field(default_factory=dict)

    def add(self, step: Step, values: Mapping[str, Any]) -> None:
        if step > self.after:
            self.steps.setdefault(step, {}).update(values)

    def whole(self, *, all_of_it: bool) -> Iterator[Line]:
        for step in sorted(self.steps):
            if step == max(self.steps) and not all_of_it:
                return
            self.after = step
            yield Line({"step": step, **self.steps.pop(step)}, step)


class TensorBoardLines(LineSource):
    """The scalars in TensorBoard's event files of a directory, those of a step together."""

    def __init__(self, directory: Path, after: Step) -> None:
        self.place = f"event files of TensorBoard below {directory}"
        self._files, self._growing = EventFiles(directory), _Growing(after)

    def read(self, *, ended: bool) -> list[Line]:
        for step, name, value in self._files.read():
            self._growing.add(step, {name: value})
        return list(self._growing.whole(all_of_it=ended))


class TrainerStateLines(LineSource):
    """`log_history` of the newest `trainer_state.json`, which Hugging Face's Trainer writes with each checkpoint."""

    def __init__(self, pattern: str, after: Step) -> None:
        self.place = pattern
        self._pattern, self._growing = pattern, _Growing(after)
        self._seen: tuple[str, int] | None = None

    def read(self, *, ended: bool) -> list[Line]:
        files = []
        for name in glob.iglob(self._pattern, recursive=True):
            try:
                files.append((os.stat(name).st_mtime_ns, name))
            except FileNotFoundError:
                continue  # the Trainer removes its older checkpoints
        if not files or max(files)[::-1] == self._seen:
            return list(self._growing.whole(all_of_it=ended))
        changed, newest = max(files)
        try:
            state = json.loads(Path(newest).read_bytes())
        except (FileNotFoundError, ValueError):
            return []  # it is being written, or is gone: the next look has it
        self._seen = (newest, changed)
        for entry in state.get("log_history", []):
            if isinstance(entry, dict) and isinstance(step := entry.get("step"), int | float):
                self._growing.add(step, entry)
        return list(self._growing.whole(all_of_it=True))  # a state is written when its step is over
