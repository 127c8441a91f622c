"""Whether checkpoints are as they were published: by names and sizes at once, by every hash where somebody asks."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from trainables.errors import CheckpointError
from trainables.store import verify
from tuner.clock import Clock
from tuner.experiment.trial_records import CheckpointRecord

MOST = 500
"""Of a trial with more checkpoints nobody looks at all of them for one page."""


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """What is known of a checkpoint's files."""

    checked: Literal["sizes", "hashes"] | None = None
    """How: its manifest and the sizes that this names; every hash; None: nobody has looked."""
    problem: str = ""
    at: float | None = None
    """When every hash was looked at."""

    @property
    def verified(self) -> bool | None:
        """False: something is wrong; True: every hash is right; None: neither is known."""
        return False if self.problem else True if self.checked == "hashes" else None

    @property
    def told(self) -> dict[str, Any]:
        """As data of a page."""
        said = {"verified": self.verified, "checked": self.checked, "verified_at": self.at}
        return said | {"problem": self.problem or None}


NOT_LOOKED_AT = FoundFiles()
_Key = tuple[str, str, str]
"""(trial's directory, checkpoint, digest of its manifest)"""


class CheckedFiles:
    """What was found in an experiment's directory; what was hashed is remembered."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[_Key, FoundFiles] = {}
        self._hashing = threading.Lock()
        """One at a time: a disk is no faster for many."""

    def sizes(self, directory: Path, records: Iterable[CheckpointRecord]) -> dict[str, FoundFiles]:
        """By name, of those that lie here. No file is read but the manifests."""
        here = [record for record in records if record.here]
        if not here or len(here) > MOST or directory.is_symlink():
            return {}
        try:
            listing = verify.scan(directory, pass_over_unread=True)
        except (CheckpointError, OSError):
            return {}
        whole = {published.path.name: published.digest for published in listing.complete}
        broken = {one.where.name: one.reason for one in listing.broken}
        return {record.ref.name: self._found(directory, record, whole, broken) for record in here}

    def _found(
        self, directory: Path, record: CheckpointRecord, whole: Mapping[str, str], broken: Mapping[str, str]
    ) -> FoundFiles:
        name = record.ref.name
        if name in broken:
            return FoundFiles("sizes", broken[name])
        if name not in whole:
            return FoundFiles("sizes", "it is not there, or has no manifest that can be read")
        if record.digest and whole[name] != record.digest:
            return FoundFiles("sizes", "its manifest is not the one that was published")
        return self._known.get((directory.name, name, record.digest), FoundFiles("sizes"))

    def hashes(self, directory: Path, record: CheckpointRecord) -> FoundFiles:
        """Read every file of a checkpoint that lies here: that takes as long as its disk takes."""
        if directory.is_symlink() or (directory / record.ref.name).is_symlink():
            return FoundFiles("sizes", "a link lies in its place")
        with self._hashing:
            quick = self.sizes(directory, [record]).get(record.ref.name, NOT_LOOKED_AT)
            if quick.problem and quick.checked == "sizes":
                return quick
            problems = verify.problems(directory / record.ref.name)
            found = FoundFiles("hashes", problems[0] if problems else "", self._clock.time())
            self._known[(directory.name, record.ref.name, record.digest)] = found
            return found
