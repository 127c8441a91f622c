"""Numbered checkpoint directories with a pointer to the latest: what an `AtomicDirectory` does on disk.

Only the process that owns them uses this; it knows nothing of ranks. A directory is a checkpoint when it has its
manifest; the pointer file names the latest, and the link is for people and scripts that read it with `os.readlink`.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from trainables.automatic import TimeSource
from trainables.errors import CheckpointCorruptError, CheckpointNotFoundError, InvalidSettingError
from trainables.store import delete, fs, manifest, publish, staging, verify
from trainables.torch.saver_locks import saver_locks
from trainables.validation import invalid
from trainables.wire import CheckpointRef

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Numbered:
    """One checkpoint, by its name."""

    name: str
    index: int
    forced: bool
    """A milestone that no retention removes."""


class SaverNames:
    """How the files of one saver are called."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.link = f"{name}.latest_checkpoint"
        self.pointer = f"{self.link}.name"
        self.saving = f".{name}.saving"
        self.owner = f".{name}.owner"
        self._pattern = re.compile(re.escape(name) + r"_checkpoint_(\d{1,18})(_force)?")

    def of(self, index: int, forced: bool) -> Numbered:
        return Numbered(f"{self.name}_checkpoint_{index}{'_force' if forced else ''}", index, forced)

    def parse(self, name: str) -> Numbered | None:
        """The checkpoint of that name; None when it is called otherwise."""
        found = self._pattern.fullmatch(name)
        return Numbered(name, int(found[1]), found[2] is not None) if found else None


class NumberedCheckpoints:
    """The checkpoints of one saver in a directory.

    Args:
        directory: an absolute path; made when it is missing.
        name: of the saver.
        keep_last: how many that are not forced stay; None: all.
        clock: for the date in manifests.
    """

    def __init__(self, directory: Path, name: str, *, keep_last: int | None, clock: TimeSource = time) -> None:
        self.directory, self.names, self.keep_last = directory, SaverNames(name), keep_last
        self._clock = clock
        self._complete: list[Numbered] = []
        """The oldest first."""
        self._last = -1
        """The highest number in use."""
        self._saving: Numbered | None = None
        self._links_refused = False
        self._owns = False

    def start(self) -> None:
        """Find what is there: remove what a killed save left, set aside what is broken, mend pointer and link.

        Raises SessionError while another process of this machine has started and neither ended nor let go.
        """
        if fs.exists(self.directory) and not fs.is_dir(self.directory):
            raise invalid("AtomicDirectory: output_directory", os.fspath(self.directory), "a directory, there or not")
        fs.make_dirs(self.directory)
        saver_locks.claim(self.directory / self.names.owner)
        self._owns = True
        self._remove_leftovers()
        listing = verify.scan(self.directory)
        for broken in listing.broken:
            if self.names.parse(broken.where.name) is not None:
                self._quarantine(broken.where, broken.reason)
        found = [self.names.parse(each.path.name) for each in listing.complete]
        self._complete = sorted((each for each in found if each is not None), key=lambda each: each.index)
        while self._complete and not self._is_whole(self._complete[-1]):
            self._complete.pop()
        for name in fs.listdir(self.directory):
            known = self.names.parse(name.removeprefix(verify.BROKEN_PREFIX).partition("~")[0])
            if known is not None:
                self._last = max(self._last, known.index)
        latest = self.latest()
        if latest is not None:
            self._point_to(latest)
        self.prune()

    def release(self) -> None:
        """Another process may start here; the last call."""
        if self._owns:
            self._owns = False
            saver_locks.release(self.directory / self.names.owner)

    def adopt(self, name: str) -> None:
        """Take up a checkpoint that was brought here from a copy, as the latest."""
        known = self.names.parse(name)
        assert known is not None
        self._complete.append(known)
        self._complete.sort(key=lambda each: each.index)
        self._last = max(self._last, known.index)
        self._point_to(self._complete[-1].name)

    def prepare(self, *, forced: bool) -> Path:
        """A new, empty directory for the next checkpoint; nobody takes it for one before `publish`.

        What an earlier save that was never published left is removed. Raises PublishError.
        """
        with staging.disk_errors(self.directory):
            self._abandon()
            while True:
                planned = self.names.of(self._last + 1, forced)
                self._last += 1
                # Durable before the directory is there: the next start knows whose it is.
                fs.replace_file(self.directory / self.names.saving, planned.name.encode())
                path = self.directory / planned.name
                try:
                    fs.mkdir(path)
                except FileExistsError:
                    continue  # somebody's: never ours to empty
                self._saving = planned
                return path

    def publish(self, path: Path) -> Numbered:
        """Make the prepared directory a checkpoint, and the latest; then let older ones go.

        Raises PublishError when the disk does not take it, CheckpointError for what cannot be saved (sockets, dangling
        links); it is removed then, and the latest is what it was.
        """
        saving = self._saving
        if saving is None or path != self.directory / saving.name:
            prepared = "none" if saving is None else str(self.directory / saving.name)
            raise InvalidSettingError(
                f"symlink_latest: checkpoint_directory={str(path)!r} is not accepted; accepted: what "
                f"prepare_checkpoint_directory() returned last ({prepared})"
            )
        ref = CheckpointRef(self.names.name, saving.name, 1, 1, saving.index + 1, saving.index)
        publish.prepare(path, ref=ref, metrics=msgspec.Raw(b"{}"), created=self._clock.time())
        self._saving = None
        with staging.disk_errors(self.directory):
            fs.fsync_dir(self.directory)  # before anything points to it
            self._complete.append(saving)
            self._point_to(saving.name)
        self.prune()  # last: at every instant there is a complete one that the pointer names
        return saving

    def latest(self) -> str | None:
        """The name of the newest complete checkpoint; else what pointer or link name, as cycling_utils left them."""
        if self._complete:
            return self._complete[-1].name
        for name in (self._pointed_to(), self._linked_to()):
            if name is not None and self.names.parse(name) is not None and fs.is_dir(self.directory / name):
                return name
        return None

    @property
    def complete(self) -> list[Numbered]:
        """All of them, the oldest first."""
        return list(self._complete)

    def prune(self) -> None:
        """Delete all but the newest `keep_last` and the forced ones. What cannot be deleted now is tried again."""
        for each in surplus(self._complete, self.keep_last):
            if each.name == self._linked_to() and each is not self._complete[-1]:
                continue  # the link could not be moved on: it must not dangle
            try:
                if delete.delete(self.directory / each.name):
                    self._complete.remove(each)
            except OSError as error:
                _log.warning("could not delete %s, will try again: %s", self.directory / each.name, error)

    def _point_to(self, name: str) -> None:
        if self._pointed_to() != name:
            fs.replace_file(self.directory / self.names.pointer, name.encode())
        target = os.fspath(self.directory / name)
        link = self.directory / self.names.link
        if self._link_target() == target:
            return
        if fs.is_dir(link):
            self._quarantine(link, f"{link} is a directory, where a link to the latest checkpoint belongs")
        beside = link.with_name(f".{link.name}.{secrets.token_hex(4)}.tmp")  # fresh: a leftover never blocks
        try:
            fs.symlink(target, beside)
            fs.rename(beside, link)
        except OSError as error:
            fs.remove_quietly(beside)
            if not self._links_refused:
                _log.warning("%s could not be made a link to %s (%s); the file beside it names it", link, name, error)
            self._links_refused = True
            return
        fs.fsync_dir(self.directory)

    def _pointed_to(self) -> str | None:
        try:
            name = fs.read_file(self.directory / self.names.pointer).decode()
        except (FileNotFoundError, UnicodeDecodeError):
            return None
        return name if self.names.parse(name) is not None else None

    def _link_target(self) -> str | None:
        try:
            return os.readlink(self.directory / self.names.link)
        except OSError:
            return None

    def _linked_to(self) -> str | None:
        """The bare name that the link names, wherever the tree lay when it was made."""
        target = self._link_target()
        return None if target is None else os.path.basename(target)

    def _is_whole(self, checkpoint: Numbered) -> bool:
        """Look at the one that is about to be used; a broken one is set aside."""
        path = self.directory / checkpoint.name
        try:
            verify.quick(path)
        except (CheckpointCorruptError, CheckpointNotFoundError) as error:
            self._quarantine(path, str(error))
            return False
        return True

    def _quarantine(self, path: Path, reason: str) -> None:
        _log.warning("%s; set aside as %s", reason, verify.quarantine(path))

    def _abandon(self) -> None:
        """Remove a save that was prepared and never published."""
        if self._saving is not None:
            fs.remove_quietly(self.directory / self._saving.name)
            self._saving = None

    def _remove_leftovers(self) -> None:
        """What a killed process left: its unpublished directory, half deleted ones, temporary links."""
        try:
            saving = self.names.parse(fs.read_file(self.directory / self.names.saving).decode(errors="replace"))
        except FileNotFoundError:
            saving = None
        # What the pointer names was published once: if it is broken it is set aside, and not removed.
        if saving is not None and saving.name != self._pointed_to():
            if not manifest.is_published(self.directory / saving.name):
                fs.remove_quietly(self.directory / saving.name)
        prefixes = (f"{delete.PREFIX}{self.names.name}_checkpoint_", f".{self.names.link}.", f".{self.names.saving}.")
        for name in fs.listdir(self.directory):
            if name.startswith(prefixes):
                fs.remove_quietly(self.directory / name)


def surplus(checkpoints: list[Numbered], keep_last: int | None) -> list[Numbered]:
    """What retention lets go of checkpoints that are given the oldest first; the last one never.

    >>> names = SaverNames("run")
    >>> [each.name for each in surplus([names.of(i, forced=i == 1) for i in range(4)], 2)]
    ['run_checkpoint_0']
    """
    if keep_last is None:
        return []
    return [each for each in checkpoints if not each.forced][:-keep_last]
