"""The directories, or files, in which a command saves: which are complete, and of which step."""

from __future__ import annotations

import glob
import logging
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from trainables.command.metric_lines import Step, number_of
from trainables.errors import TrainablesError
from trainables.quick_dataclass import dataclass
from trainables.store.manifest import MANIFEST_NAME

_log = logging.getLogger(__name__)

_STEP = re.compile(r"\(\?P<step>(?:[^()\\]|\\.)*\)")


class IncompleteError(TrainablesError, RuntimeError):
    """What a command saves never becomes complete, as its trial was told to see it."""


@dataclass(frozen=True, slots=True)
class Complete:
    """When something that matches is complete: once a file of that name is in it, once nothing in it has changed for
    so long, or at once, because it gets its name by a rename."""

    marker: str | None = None
    quiet_s: float | None = None


Print = tuple[int, ...]
"""What of a directory changes when it is written to."""


@dataclass(frozen=True, slots=True)
class FoundSave:
    """Something complete."""

    path: Path
    step: Step | None
    print: Print


def print_of(path: Path) -> Print:
    """Inode, number, bytes and times of all files below. Raises FileNotFoundError where one vanishes meanwhile."""
    status = os.stat(path)
    if not stat.S_ISDIR(status.st_mode):
        return (status.st_ino, 1, status.st_size, status.st_mtime_ns)
    count, size, newest = 0, 0, status.st_mtime_ns
    for entry in _below(path):
        one = entry.stat(follow_symlinks=not _leads_nowhere(entry))
        count, size, newest = count + 1, size + one.st_size, max(newest, one.st_mtime_ns)
    return (status.st_ino, count, size, newest)


def _leads_nowhere(entry: os.DirEntry[str]) -> bool:
    """A dangling symlink: who clones it says so."""
    return entry.is_symlink() and not os.path.exists(entry.path)


def _below(path: Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(path) as listing:
        for entry in listing:
            yield entry
            if entry.is_dir(follow_symlinks=False):
                yield from _below(Path(entry.path))


class FoundCheckpoints:
    """What matches a pattern and becomes complete, each once. `look` is called now and then.

    Args:
        pattern: A glob, with `(?P<step>...)` for the number of the step where names have one.
        complete: When something that matches is complete.
        after: The step that this life continues from; None: it begins anew. What is newer is of a life that is void,
            and is moved away.
    """

    def __init__(
        self,
        pattern: str,
        complete: Complete,
        after: Step | None,
        set_aside: Callable[[Path], None],
        own: Path | None = None,
    ) -> None:
        self.pattern, self._complete, self._own = pattern, complete, own
        self._names, self._whole = translated(pattern)
        self._taken: dict[Path, Print] = {}
        self._quiet: dict[Path, tuple[Print, float]] = {}
        self._incomplete: list[Path] = []
        self._any = False
        for path, step in self._matches():
            if after is None or step is None or step > after:
                set_aside(path)
            else:
                self._taken[path] = print_of(path)

    def look(self, *, ended: bool) -> list[FoundSave]:
        """What has become complete, older steps first; `ended`: the command has ended well, and writes no more."""
        found, incomplete = [], []
        for path, step in self._matches():
            try:
                now = print_of(path)
                if self._taken.get(path) == now:
                    continue
                if not self._is_complete(path, now, ended):
                    incomplete.append(path)
                    continue
            except FileNotFoundError:
                continue  # trainers remove their older ones
            found.append(FoundSave(path, step, now))
        self._any = self._any or bool(found)
        self._incomplete += [path for path in incomplete if path not in self._incomplete]
        return sorted(found, key=lambda each: (each.step is not None, each.step or 0, each.print[3]))

    def taken(self, found: FoundSave) -> None:
        """It is ours now: only what is written into it later is news."""
        self._taken[found.path] = found.print

    def unchanged(self, found: FoundSave) -> bool:
        """Whether nobody has written to it since it was found."""
        try:
            return print_of(found.path) == found.print
        except FileNotFoundError:
            return False

    @property
    def saw_none(self) -> bool:
        """Nothing has ever matched."""
        return not (self._any or self._taken or self._incomplete)

    def raise_if_never(self, *, ended: bool) -> None:
        """Raise IncompleteError when a second one has begun, or all has ended, and none was ever complete."""
        if self._any or self._complete.marker is None or len(self._incomplete) < (1 if ended else 2):
            return
        raise IncompleteError(
            f"{self._incomplete[0]} matches {self.pattern!r} and never became complete: there is no file "
            f"{self._complete.marker!r} in it"
            + ("" if ended else f", and {self._incomplete[1]} has begun")
            + '. Say what makes one complete: checkpoints={"complete": {"marker": NAME}}, {"quiet_s": 5} or "renamed"'
        )

    def _matches(self) -> Iterator[tuple[Path, Step | None]]:
        for name in glob.iglob(self._names, recursive=True):
            match = self._whole.fullmatch(name)
            if match is None or self._is_published(name):
                continue
            said = match.groupdict().get("step")
            step = None if said is None else number_of(said)
            yield Path(name), step if isinstance(step, int | float) else None

    def _is_published(self, name: str) -> bool:
        return self._own is not None and any(
            os.path.exists(place / MANIFEST_NAME)
            for place in (Path(name), *Path(name).parents)
            if place.is_relative_to(self._own)
        )

    def _is_complete(self, path: Path, now: Print, ended: bool) -> bool:
        if self._complete.marker is not None:
            return (path / self._complete.marker).exists()
        if self._complete.quiet_s is None or ended:
            return True
        before, since = self._quiet.get(path, (None, 0.0))
        if before != now:
            self._quiet[path] = (now, time.monotonic())
            return False
        return time.monotonic() - since >= self._complete.quiet_s


def translated(pattern: str) -> tuple[str, re.Pattern[str]]:
    """A pattern as a glob, and as the regular expression that also has the step."""
    names, whole, at = "", "", 0
    for found in _STEP.finditer(pattern):
        names += pattern[at : found.start()] + "*"
        whole += _of_glob(pattern[at : found.start()]) + found[0]
        at = found.end()
    return names + pattern[at:], re.compile(whole + _of_glob(pattern[at:]))


def _of_glob(text: str) -> str:
    """The regular expression of a part of a glob: `*` and `?` within a name, `**` over directories, `[...]`."""
    found, at = "", 0
    while at < len(text):
        if text.startswith("**/", at):
            found, at = f"{found}(?:[^/]+/)*", at + 3
        elif text[at] == "[" and (end := text.find("]", at + 2)) > 0:
            inside, at = text[at + 1 : end], end + 1
            negated = len(inside) > 1 and inside[0] == "!"
            escaped = re.sub(r"([\\\[^])", r"\\\1", inside[negated:])
            found += f"[{'^' if negated else ''}{escaped}]"
        else:
            found, at = found + {"*": "[^/]*", "?": "[^/]"}.get(text[at], re.escape(text[at])), at + 1
    return found
