"""What was started for agents, and where they ordered something: records beside the experiments, which outlive servers.

They lie in `.agents` of the directory that holds the experiments. How much of a budget is used stands in the journals
of the experiments that are named here; a record is written before anything is started or ordered, so that a kill at any
moment leaves nothing that is not counted.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml

from trainables.decoding import decode
from trainables.store import fs
from tuner.error import ToolError

FOLDER = ".agents"
_RECORD, _ORDERED, _OWNED, _PRINTED = ".started.json", ".ordered", ".owned", ".printed.txt"


class Limits(msgspec.Struct, frozen=True, omit_defaults=True):
    """What agents may use in all; None: no limit."""

    trials: int | None = None
    """Of started experiments all that are planned; and those that orders add, fork or try again."""
    hours: float | None = None
    """In which these trials train: two side by side for an hour are two."""
    bytes: int | None = None
    """Of the checkpoints of these trials that are kept."""


class StartRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """An experiment that was started for an agent."""

    name: str
    id: str
    """By which the agent calls its request."""
    config: str
    """The name of the config file."""
    asked: dict[str, Any]
    """ "num_samples" and "space", as the agent gave them."""
    settings: str
    """What the file says, with what was asked, as YAML."""
    beside: str
    """The directory of the file."""
    cwd: str
    """Where the server ran."""
    trials: int | None
    """How many there will be; None: no end is known."""
    at: float
    limits: Limits = Limits()
    ledgers: tuple[str, ...] = ()
    """The directories in which all that counts is recorded."""

    def said(self) -> dict[str, Any]:
        """The settings."""
        read: dict[str, Any] = yaml.safe_load(self.settings)
        return read


class Ledger:
    """The records of one directory with experiments.

    Args:
        storage: that directory.
    """

    def __init__(self, storage: Path) -> None:
        self.storage, self.directory = storage, storage / FOLDER

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Of several servers one at a time counts and begins something. Raises ToolError where nobody may write."""
        try:
            fs.make_dirs(self.directory)
            fd = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise ToolError(f"nothing can be recorded beside the experiments ({error.strerror})") from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def records(self) -> list[StartRecord]:
        """What was started, the oldest first. Raises ToolError for a record that cannot be read."""
        found = [self._read(self.directory / name) for name in self._names(_RECORD)]
        return sorted(found, key=lambda record: record.at)

    def record(self, name: str) -> StartRecord | None:
        """Of the experiment of that name; None: it was not started for an agent."""
        path = self.directory / f"{name}{_RECORD}"
        return self._read(path) if fs.exists(path) else None

    def write(self, record: StartRecord) -> None:
        """Durable when this returns: only then is anything started."""
        fs.replace_file(self.directory / f"{record.name}{_RECORD}", msgspec.json.encode(record))

    def _read(self, path: Path) -> StartRecord:
        try:
            return decode(fs.read_file(path), StartRecord)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ToolError(f"{FOLDER}/{path.name} cannot be read, and counts: {error}") from error

    def will_order(self, name: str) -> None:
        """In that experiment something that counts is ordered; durable when this returns."""
        path = self.directory / f"{name}{_ORDERED}"
        if not fs.exists(path):
            fs.replace_file(path, b"")

    def ordered(self) -> list[str]:
        """Experiments in which something that counts may have been ordered."""
        return [name.removesuffix(_ORDERED) for name in self._names(_ORDERED)]

    def _names(self, suffix: str) -> list[str]:
        if not fs.is_dir(self.directory):
            return []
        return sorted(name for name in fs.listdir(self.directory) if name.endswith(suffix))

    def printed(self, name: str) -> Path:
        """What its drivers have printed."""
        return self.directory / f"{name}{_PRINTED}"

    # --- its driver -----------------------------------------------------------------------------------------

    def own(self, name: str) -> int | None:
        """Have this process be the one that runs it, as long as it lives; None: another one is.

        Returns what is to be kept open. It is a lock of the process, which no process that it starts inherits.
        """
        fd = os.open(self.directory / f"{name}{_OWNED}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return None
        return fd

    def is_owned(self, name: str) -> bool:
        """Whether a process lives that was started to run it."""
        fd = self.own(name)
        if fd is not None:
            os.close(fd)
        return fd is None
