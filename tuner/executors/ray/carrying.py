"""Checkpoints on their way between hosts: by rsync over ssh where that works, else through the engine."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from trainables.errors import TransferError
from trainables.store import fs, manifest, tree
from trainables.transfer import checkpoints
from trainables.transfer.base import Backend
from trainables.transfer.open import open_backend
from tuner.executors.ray.files import EngineBackend
from tuner.executors.ray.hosts import Host
from tuner.executors.ray.messages import RESTORED

log = logging.getLogger(__name__)

_THREADS = 4
_LOOK_S = 5.0
"""A host that ssh does not reach in so long is reached through the engine."""

Then = Callable[[Exception | None], None]
"""Called from a thread with what went wrong, or None."""


class Carrier:
    """Moves checkpoints, several at once.

    Args:
        settings: what the user said of the way: `syncer`, `options`, `ssh_key`, `ssh_port`; asked when it is needed.
    """

    def __init__(self, settings: Callable[[], Mapping[str, Any]]) -> None:
        self._settings = settings
        self._ways: dict[str, tuple[Backend, str]] = {}
        self._locks: defaultdict[object, threading.Lock] = defaultdict(threading.Lock)
        self._pool: ThreadPoolExecutor | None = None
        self._closed = False

    def way(self, host: Host, root: Path) -> str:
        """How it goes, in words."""
        return self._way(host, root)[1]

    def bring_here(self, host: Host, path: Path, root: Path, digest: str) -> None:
        """Copy a checkpoint from another host to the same path here. Raises TransferError, CheckpointError."""
        backend, _ = self._way(host, root)
        key = path.relative_to(root).as_posix()

        def moved(count: int) -> None:
            if host.lost or self._closed:
                raise TransferError(f"{host.name} is gone")

        checkpoints.fetch(backend, key, path, digest=digest or None, progress=moved)
        host.has(path)

    def bring_there(self, host: Host, source: Path, target: Path, root: Path) -> None:
        """Have a checkpoint of this host on another one, whole. Raises TransferError, CheckpointError."""
        with self._locks[host.node, target]:  # of two clones the second finds it
            published = manifest.is_published(source)
            digest = manifest.read(source).digest if published else ""
            if published and host.check(target, digest) is None:
                return
            backend, _ = self._way(host, root)
            key = target.relative_to(root).as_posix()
            if not published:
                backend.push(source, key, [file.name for file in tree.scan(source, follow=False).files])
                return
            checkpoints.push_payload(backend, source, key, index=checkpoints.ContentIndex())
            checkpoints.push_manifest(backend, source, key)
            problem = host.check(target, digest)
            if problem is not None:
                raise TransferError(f"{host.name}: {problem or 'what was copied there is not there'}")

    def beside(self, work: Callable[[], None], then: Then) -> None:
        """Do one of these beside the caller."""

        def do() -> None:
            try:
                work()
            except Exception as error:  # whatever it is: somebody waits for a word
                then(error)
            else:
                then(None)

        if self._pool is None:
            self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="carrier")
        self._pool.submit(do)

    def close(self) -> None:
        """Give up what is on its way."""
        self._closed = True
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _way(self, host: Host, root: Path) -> tuple[Backend, str]:
        with self._locks[host.node]:
            if host.node not in self._ways:
                self._ways[host.node] = self._find(host, root)
            return self._ways[host.node]

    def _find(self, host: Host, root: Path) -> tuple[Backend, str]:
        settings = dict(self._settings())
        place = f"{host.ip}:{root}"
        if settings.get("syncer", "auto") not in ("auto", None):
            backend = open_backend(place, **settings)
            return backend, "as syncer= says"
        engine = EngineBackend(place, host.ask)
        try:
            backend = open_backend(place, ssh_key=settings.get("ssh_key"), ssh_port=settings.get("ssh_port"))
            backend.check(_LOOK_S)
        except Exception as error:  # the library is missing, or ssh, or a key
            why = (str(error).splitlines() or [repr(error)])[0]
            if settings.get("ssh_key") is not None or settings.get("ssh_port") is not None:
                raise
            return engine, f"through the engine ({why})"
        return backend, "by rsync over ssh"


def place_of_restored(root: Path, source: Path) -> Path:
    """Where a checkpoint from outside the experiment goes on another host."""
    return root / RESTORED / hashlib.sha256(str(source).encode()).hexdigest()[:16]
