"""Which checkpoints a trial reads, told to its driver: these are not deleted under it."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path

from trainables.errors import CheckpointError
from trainables.store import manifest
from trainables.store.delete import pins
from trainables.wire import CheckpointClosed, CheckpointOpened, CheckpointRef, DriverLink

_log = logging.getLogger(__name__)


class Reading:
    """Watches the `as_directory()`s of a trial's process while it is entered.

    What an attempt started from stays anyway until it publishes a checkpoint of its own. Only what is open then, or is
    opened later, is told; a trial that reads its checkpoint and goes on never says a word.
    """

    def __init__(self, link: DriverLink) -> None:
        self._link = link
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._told: dict[Path, CheckpointRef] = {}
        self._matters = False

    def __enter__(self) -> Reading:
        pins.on_change = self._changed
        return self

    def __exit__(self, *_: object) -> None:
        pins.on_change = None

    def tell_again(self) -> None:
        """Tell a driver that comes after one that was killed."""
        with self._lock:
            for ref in self._told.values():
                self._post(CheckpointOpened(ref))

    def heard(self, path: Path, held: bool) -> None:
        """What `pins.on_change` hears, where several share it."""
        self._changed(path, held)

    def before_published(self) -> None:
        """Tell what is open. On the same line as the news of the publish, and before it: the driver hears it first."""
        with self._lock:
            self._matters = True
            for path in pins.paths() - self._told.keys():
                self._tell(path)

    def _changed(self, path: Path, held: bool) -> None:
        if os.getpid() != self._pid:
            return  # a forked child of the user's, which has no line to the driver
        with self._lock:
            if not held and path in self._told:
                ref = self._told.pop(path)
                if ref not in self._told.values():  # else the same one is open in a copy of the experiment too
                    self._post(CheckpointClosed(ref))
            elif held and self._matters and path not in self._told:
                self._tell(path)

    def _tell(self, path: Path) -> None:
        try:
            ref = manifest.read(path).ref
        except CheckpointError:
            return  # no published one: nobody but the user deletes it
        self._told[path] = ref
        self._post(CheckpointOpened(ref))

    def _post(self, message: CheckpointOpened | CheckpointClosed) -> None:
        try:
            self._link.post(message)
        except ConnectionError as error:
            _log.debug("the driver is gone: %s", error)
