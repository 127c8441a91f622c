"""Base of the back ends that can only copy whole directories: a command, a function, a Syncer.

A push makes a view (a directory with nothing but the files it is about, hard links or clones) and copies that; a fetch
copies all that lies under a prefix and picks from it. Both sides are named with a `/` at their end, so that `rsync`,
which would else make a directory in the directory, and `aws s3 sync`, which never does, mean the same: contents to
contents.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import secrets
import shutil
import tempfile
import threading
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from trainables.errors import ObjectNotFoundError, TransferCorruptError, TransferError
from trainables.places import child_of, trim_slash
from trainables.store import fs, staging
from trainables.transfer.backend import Backend, Can, Names, Progress, PushRequest, checked_key, joined, unwatched
from trainables.transfer.deadline import NEVER, Deadline

log = logging.getLogger(__name__)

_NO_LINKS = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EACCES}
_SMALL = 256 * 1024
PROBE = ".probe"
"""Under it, as deep as a checkpoint, a small file is sent there and back. Where nothing can be deleted it stays; else
each back end has a name of its own, and removes it.
"""
_CLEAR_S = 2.0


class CopyingBackend(Backend):
    """A place to which directories can be copied, and from which they can be copied back.

    `exclusive=` is not honoured: looking whether a file is there would fetch everything beside it.
    """

    can = Can(list=False, delete=False, verify=False, exclusive=False, reuse=False, copy=False)

    def __init__(self, uri: str) -> None:
        super().__init__(trim_slash(uri) or "/")
        self._needs_parents = False
        self._made: set[str] = set()
        self._probe_at = ""
        self._probed: bytes | None = None
        """What lies there."""
        self._probing = threading.Lock()
        self._stamp = 0
        self._stamping = threading.Lock()

    # --- what a subclass does

    @abstractmethod
    def _upload(self, local: str, remote: str, limit_s: float | None) -> None:
        """Copy the content of the directory `local` into `remote`; both end in `/`.

        Raises TransferError, also after `limit_s` seconds; None: after as many as it usually may take.
        """

    @abstractmethod
    def _download(self, remote: str, local: str, limit_s: float | None) -> None:
        """Copy the content of `remote` into the directory `local`; the rest as `_upload`."""

    def _remove(self, key: str, limit_s: float) -> None:
        """Remove the directory of that key, of a back end that can delete. Raises TransferError."""
        raise TransferError(f"{self.uri}: nothing can be deleted there")

    def _check_probe(self, deadline: Deadline) -> None:
        """Look at the start whether the rest works too, while the small file is there. Raises TransferError."""

    # --- what they all do

    def check(self, timeout_s: float = 10.0) -> None:
        place, deadline = Path(self.uri), Deadline(timeout_s)
        made = [path for path in (place, *place.parents) if place.is_absolute() and not path.exists()]
        with self._probing:
            try:
                self._send_probe(deadline)
                self._check_probe(deadline)
                self._clear_probe(deadline)
            except BaseException:
                self._clear_probe(deadline)
                with contextlib.suppress(OSError):  # something is in it
                    for path in made:
                        path.rmdir()
                raise

    def _push(self, request: PushRequest) -> None:
        if request.prefix:
            checked_key(request.prefix)
        names = request.names
        if not names:
            return
        with self._view(request.source, names) as view:
            self._send(view, request.prefix, NEVER)
            size = sum((view / name).stat().st_size for name in names)
        request.progress(size)
        request.receipts.update(dict.fromkeys(names, ""))

    def _delete_tree(self, prefix: str) -> None:
        self.delete([prefix])

    def fetch(self, prefix: str, target: Path, names: Names = None, *, progress: Progress = unwatched) -> None:
        for name in (*((prefix,) if prefix else ()), *(names or ())):
            checked_key(name)
        fs.make_dirs(target)
        # On the same filesystem, so that what arrived is moved and not copied; and never through a link of theirs.
        staged = Path(tempfile.mkdtemp(prefix=".fetch-", dir=target))
        try:
            try:
                self._download(child_of(self.url(prefix), ""), f"{staged}/", None)
            except TransferError:
                if _anything(staged):
                    raise
                self._probe()  # raises when nothing can be fetched at all
                self._fetch_again(prefix, staged)
            found = _plain(self.url(prefix), staged)
            if not found:
                self._probe()
                raise ObjectNotFoundError(f"{self.url(prefix)}: there is nothing")
            wanted = found if names is None else names
            for name in wanted:
                if name not in found:
                    raise ObjectNotFoundError(f"there is no {self.url(joined(prefix, name))}")
            progress(sum(size for name, size in found.items() if name in wanted))
            for name in wanted:
                fs.make_dirs((target / name).parent)
                fs.rename(staged / name, target / name)
        finally:
            shutil.rmtree(staged, ignore_errors=True)

    def _fetch_again(self, prefix: str, staged: Path) -> None:
        """Only what fails twice, and brings nothing, is not there: a single failure may have passed."""
        try:
            self._download(child_of(self.url(prefix), ""), f"{staged}/", None)
        except TransferError as error:
            if _anything(staged):
                raise
            raise ObjectNotFoundError(f"{self.url(prefix)}: there is nothing ({error})") from error

    @contextmanager
    def _view(self, source: Path, names: Sequence[str]) -> Iterator[Path]:
        """A directory near `source` that has the files `names` and nothing else."""
        for name in names:
            checked_key(name)
            if not (source / name).is_file():
                raise TransferError(f"{source / name} cannot be pushed: it is no file, or not there")
        try:
            # Beside it: on the same filesystem. Hidden, and after a crash a leftover like that of any save.
            # Of an experiment within it: what lies above belongs to others too.
            above = source if (source / "experiment.json").exists() else source.parent
            root = Path(tempfile.mkdtemp(prefix=staging.VIEW_PREFIX, dir=above))
        except OSError:
            root = Path(tempfile.mkdtemp(prefix="view-"))
        view = root / "view"  # made with the usual permissions, which rsync -a takes over to the other side
        try:
            view.mkdir()
            for name in names:
                (view / name).parent.mkdir(parents=True, exist_ok=True)
                self._stand_in(source / name, view / name)
            yield view
        finally:
            shutil.rmtree(root, ignore_errors=True)

    def _stand_in(self, file: Path, place: Path) -> None:
        """The same content under another name: never a symlink, which commands treat in different ways.

        What is small is copied and thereby new: many commands leave out a file that has the size of the remote one
        and is not newer, by whole seconds. Small files are those that are written to and pushed again.
        """
        try:
            if file.stat().st_size > _SMALL:
                fs.link(os.path.realpath(file), place)
                return
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
        fs.copy_file(file, place)
        with self._stamping:
            self._stamp = max(int(place.stat().st_mtime), self._stamp + 1)
            os.utime(place, (self._stamp, self._stamp))

    def _send(self, view: Path, prefix: str, deadline: Deadline) -> None:
        parent = prefix.rpartition("/")[0]
        if self._needs_parents and parent not in self._made:
            self._make(parent, deadline)
        try:
            self._upload(f"{view}/", child_of(self.url(prefix), ""), deadline.left)
        except TransferError:
            if self._needs_parents or parent in self._made:
                raise
            # rsync makes the last directory of a path and none above it: those are sent as a tree of empty ones.
            self._make(parent, deadline)
            self._upload(f"{view}/", child_of(self.url(prefix), ""), deadline.left)
            self._needs_parents = True
        self._made.add(parent)

    def _make(self, directory: str, deadline: Deadline) -> None:
        with tempfile.TemporaryDirectory(prefix="parents-") as root:
            tree = Path(root) / "tree"
            (tree / directory).mkdir(parents=True)
            self._upload(f"{tree}/", child_of(self.uri, ""), deadline.left)
        self._made.add(directory)

    def _probe(self) -> None:
        """Look whether a small file that is there can be fetched. Raises TransferError when it does not come back."""
        with self._probing:
            if self._probed is not None and self._fetched_probe(NEVER) == self._probed:
                return
            try:
                self._send_probe(NEVER)  # again: it was removed, or another process has sent its own meanwhile
            finally:
                self._clear_probe(NEVER)

    def _send_probe(self, deadline: Deadline) -> None:
        """Send a small file there, and fetch it. Raises TransferError when it does not come back."""
        removed = self.can.delete or os.path.isdir(self.uri)
        self._probe_at = f"{PROBE}-{secrets.token_hex(4) if removed else ''}".rstrip("-") + "/as/deep"
        self._probed = secrets.token_hex(8).encode()
        with tempfile.TemporaryDirectory(prefix="probe-") as root:
            there = Path(root) / "there"
            there.mkdir()
            (there / "file").write_bytes(self._probed)
            self._send(there, self._probe_at, deadline)
            if self._fetched_probe(deadline) == self._probed:
                return
            # A function may say nothing when a directory above it is missing.
            self._make(self._probe_at.rpartition("/")[0], deadline)
            self._upload(f"{there}/", child_of(self.url(self._probe_at), ""), deadline.left)
            self._needs_parents = True
        if self._fetched_probe(deadline) != self._probed:
            raise TransferError(
                f"{self.uri}: a small file that was sent there did not come back. What copies must copy all that "
                "is in the directory {source}, at whatever depth, into the directory {target}, and fail when it "
                "cannot: `rsync` without -r, for one, copies no directory"
            )

    def _clear_probe(self, deadline: Deadline) -> None:
        """Remove the small file where that can be done: in a directory of this machine, or as anything else there."""
        top = self._probe_at.partition("/")[0]
        directory = Path(self.url(top))
        if directory.is_dir():
            shutil.rmtree(directory, ignore_errors=True)
        elif self.can.delete:
            try:
                self._remove(top, max(_CLEAR_S, deadline.left or 0.0))
            except TransferError as error:
                log.debug("%s stays: %s", self.url(top), error)
        else:
            return
        self._probed = None
        self._made = {made for made in self._made if made.partition("/")[0] != top}

    def _fetched_probe(self, deadline: Deadline) -> bytes:
        with tempfile.TemporaryDirectory(prefix="probe-") as root:
            back = Path(root) / "back"
            back.mkdir()
            self._download(child_of(self.url(self._probe_at), ""), f"{back}/", deadline.left)
            file = back / "file"
            return file.read_bytes() if file.is_file() else b""


def _anything(directory: Path) -> bool:
    """Whether there is more below a directory than directories."""
    return any(not entry.is_dir() or entry.is_symlink() for entry in directory.rglob("*"))


def _plain(uri: str, directory: Path) -> dict[str, int]:
    """Every file below a directory that came from outside, with its size. A link in it is refused."""
    found = {}
    for path, directories, files in os.walk(directory):
        for name in (*directories, *files):
            entry = Path(path) / name
            if entry.is_symlink() or (name in files and not entry.is_file()):
                raise TransferCorruptError(
                    f"{child_of(uri, str(entry.relative_to(directory)))} is a link, or no plain file: refused"
                )
            if name in files:
                found[entry.relative_to(directory).as_posix()] = entry.lstat().st_size
    return found
