"""An experiment in a bucket or at another place: its journal is followed, and its files come when somebody asks."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Collection, Generator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from blake3 import blake3

from trainables.errors import ObjectNotFoundError, TransferCorruptError
from trainables.places import child_of, parent_and_name
from trainables.store import fs, manifest
from trainables.store.manifest import MANIFEST_NAME, FileEntry
from trainables.transfer import transfer_jobs
from trainables.transfer.open import shown
from tuner.clock import Clock
from tuner.error import ExperimentNotFoundError
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.trial import Trial
from tuner.experiment.trial_records import CheckpointRecord
from tuner.orders.lasting import LASTING
from tuner.syncer import views
from tuner.tools.watching import WatchedReplica
from tuner.ui import served_files

if TYPE_CHECKING:
    from tuner.syncer.remote_experiment import RemoteExperiment

LOG_BYTES = 256 << 20
"""A longer log is not brought here to be looked at."""
LOGS = 8
"""Logs that lie here, as they were looked at last."""


class ReplicaSource:
    """What is asked of the place is asked from threads that may wait. Making one asks nothing.

    Args:
        uri: the experiment.
        beside: a directory of its own, which whoever makes this removes.
    """

    is_local = False
    interval = WatchedReplica.interval
    files_note = "as far as it was copied: what is newer is on the machine where the trial runs"

    def __init__(self, uri: str, beside: Path, clock: Clock) -> None:
        self.place, self.address = uri, shown(uri)
        self.paths = ExperimentPaths(beside / parent_and_name(uri)[1])
        self._files = beside / ".files"
        self._beside, self._clock = beside, clock
        self._stack = ExitStack()
        self._opened: tuple[RemoteExperiment, WatchedReplica] | None = None
        self._logs: OrderedDict[str, tuple[int, Path]] = OrderedDict()
        self._logging = threading.Lock()
        self._warnings: dict[str, int] = {}

    @property
    def words(self) -> Collection[str]:
        can = None if self._opened is None else self._opened[0].uploader.can
        return LASTING if can is not None and can.list and can.exclusive else ()

    def bring(self) -> None:
        if self._opened is None:
            with ExitStack() as stack:
                remote = stack.enter_context(views.opened(self.place))
                self._opened = remote, WatchedReplica(remote, self._beside, self._clock)
                self._stack.push(stack.pop_all())
        remote, replica = self._opened
        try:
            replica.bring()
        except ObjectNotFoundError:
            replica.bring()  # its journal was packed meanwhile: as it is now
        told = {path.name: remote.sizes[path.name] for path in self.paths.driver_logs if path.name in remote.sizes}
        if told != self._warnings:
            remote.fetch([name for name, size in told.items() if self._warnings.get(name) != size], self.paths.root)
            self._warnings = told

    def bring_history(self) -> None:
        if self._opened is not None:
            self._opened[1].bring_history()

    def close(self) -> None:
        self._stack.close()

    # --- logs ---------------------------------------------------------------------------------------------

    def logs(self, trial: Trial) -> dict[str, int]:
        sizes = {} if self._opened is None else self._opened[0].sizes
        keys = {name: f"{trial.dirname}/{name}" for name in served_files.NAMES}
        return {name: sizes[key] for name, key in keys.items() if key in sizes}

    def open_log(self, trial: Trial, name: str) -> int:
        size = self.logs(trial).get(name)
        if size is None:
            raise ExperimentNotFoundError(f"{self.address} has no {name} of {trial.trial_id}")
        key = f"{trial.dirname}/{name}"
        if size > LOG_BYTES:
            raise ExperimentNotFoundError(
                f"{child_of(self.address, key)} has {size:,} bytes, too many to be looked at here"
            )
        with self._logging:
            known = self._logs.get(key)
            if known is None or known[0] != size:
                if known is not None:
                    fs.remove_quietly(known[1].parent)
                self._logs[key] = size, self._fetched(trial.dirname, name)
            self._logs.move_to_end(key)
            while len(self._logs) > LOGS:
                _, (_, old) = self._logs.popitem(last=False)
                fs.remove_quietly(old.parent)
            path = self._logs[key][1]
            return served_files.open_inside(path.parent, path.name)

    def _fetched(self, below: str, name: str) -> Path:
        """A file of the experiment, in a directory of its own."""
        if self._opened is None:
            raise ExperimentNotFoundError(f"{self.address} has not been read")
        remote, target = self._opened[0], self._files / secrets.token_hex(8)
        fs.make_dirs(target)
        try:
            job = transfer_jobs.FetchFiles(prefix=f"{remote.name}/{below}", target=str(target), names=[name])
            remote.call(job)
        except BaseException as error:
            fs.remove_quietly(target)
            if isinstance(error, ObjectNotFoundError):
                raise ExperimentNotFoundError(
                    f"{child_of(self.address, f'{below}/{name}')} is not there any more"
                ) from error
            raise
        return target / name

    # --- checkpoints --------------------------------------------------------------------------------------

    def holds(self, trial: Trial, record: CheckpointRecord) -> bool:
        return self._opened is not None and f"{trial.dirname}/{record.ref.name}/{MANIFEST_NAME}" in (
            self._opened[0].sizes
        )

    def packed(self, trial: Trial, name: str) -> Generator[bytes, None, None]:
        record = next((one for one in trial.checkpoints if one.ref.name == name), None)
        if record is None or not self.holds(trial, record):
            raise ExperimentNotFoundError(f"{self.address} has no checkpoint {name!r:.200} of {trial.trial_id}")
        below = f"{trial.dirname}/{name}"
        brought = self._fetched(below, MANIFEST_NAME)
        try:
            data = fs.read_file(brought)
        finally:
            fs.remove_quietly(brought.parent)
        if record.digest not in ("", manifest.digest(data)):
            raise TransferCorruptError(
                f"{child_of(self.address, below)}: its manifest is not the one that was published"
            )
        content = manifest.decode(data, child_of(self.address, below))
        return self._tar(below, name, content.files, data)

    def _tar(
        self, below: str, name: str, files: Collection[FileEntry], described: bytes
    ) -> Generator[bytes, None, None]:
        """One file after another comes here, is checked, and goes on: no more than one lies here at a time."""
        for entry in files:
            path = self._fetched(below, entry.name)
            try:
                if blake3().update_mmap(path).hexdigest() != entry.blake3:
                    raise TransferCorruptError(
                        f"{child_of(self.address, f'{below}/{entry.name}')} is not what was published"
                    )
                fd = served_files.open_inside(path.parent, path.name)
            finally:
                fs.remove_quietly(self._files / path.relative_to(self._files).parts[0])
            yield from served_files.member(fd, f"{name}/{entry.name}", entry.mtime_ns)
        yield served_files.member_of(described, f"{name}/{MANIFEST_NAME}")
        yield served_files.END
