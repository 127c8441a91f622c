"""Parser of rsync's output: progress, listings, versions, missing files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from trainables.errors import TransferCorruptError
from trainables.store.manifest import stays_inside
from trainables.transfer.backend import Progress
from trainables.transfer.programs import Ended

_VERSION = re.compile(rb"^rsync\s+version v?(\d+)\.(\d+)\.(\d+)", re.MULTILINE)
_PROGRESS = re.compile(r"(\d+)\s+\d+%")
_LISTED = re.compile(rb"([-a-z])\S{9,}\s+(\d+) \d{4}/\d\d/\d\d \d\d:\d\d:\d\d (.+)")
_ESCAPED = re.compile(rb"\\#(\d{3})")
_ABSENT = "No such file or directory (2)"
_HUNG_UP = "write error: Broken pipe (32)"
"""What this side may add when the other had nothing to send and was gone first."""
Version = tuple[int, int, int]
PROGRESS_OPTIONS = ("--info=progress2,nonreg",)


@dataclass(slots=True)
class ProgressWatch:
    """Makes progress of what rsync prints, and keeps the rest."""

    progress: Progress
    text: str = ""
    """All but the progress."""
    _rest: str = ""
    _told: int = 0

    def __call__(self, piece: str) -> None:
        *lines, self._rest = re.split(r"[\r\n]", self._rest + piece)
        for line in lines:
            found = _PROGRESS.match(line.strip())
            if found is None:
                self.text += line + "\n"
            elif int(found[1]) > self._told:
                moved = int(found[1]) - self._told
                self._told += moved
                self.progress(moved)


def listed(uri: str, listing: bytes) -> Iterator[tuple[str, int, str]]:
    """Kind, size and key of each line of `rsync --list-only`, in which odd bytes are written as `\\#ooo`."""
    for line in listing.split(b"\n"):
        found = _LISTED.fullmatch(line)
        if found is None:
            continue
        kind, size, name = found[1].decode(), int(found[2]), found[3]
        if kind == "l":
            name = name.partition(b" -> ")[0]
        key = _ESCAPED.sub(lambda escape: bytes([int(escape[1], 8)]), name).decode("utf-8", "surrogateescape")
        if key != "." and not stays_inside(key):
            raise TransferCorruptError(f"{uri}: a file of the name {key!r} is refused: it leads out of there")
        yield kind, size, key


def all_absent(ended: Ended) -> bool:
    """Whether rsync complains of nothing but that something is not there."""
    said = [line for line in ended.err.splitlines() if line.startswith("rsync: ") and not line.endswith(_HUNG_UP)]
    if ended.code == 12 and said and "] change_dir " in said[0]:  # the whole place is not there: the other side gave up
        said = said[:1]
    return ended.code in (3, 12, 23) and bool(said) and all(line.endswith(_ABSENT) for line in said)


def version_in(text: bytes) -> Version | None:
    """The version in what `rsync --version` prints; None: it is no rsync."""
    found = _VERSION.search(text)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None
