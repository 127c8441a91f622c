"""Checkpoints on their way between hosts: by rsync over ssh where that works, else through the engine."""

from __future__ import annotations

import getpass
import hashlib
import logging
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainables.errors import LimitError, PublishError, TransferError
from trainables.net.failed import DISK, errno_of
from trainables.starting import start_thread
from trainables.store import file_tree, fs, manifest, staging
from trainables.store.manifest import MANIFEST_NAME
from trainables.transfer import remote_checkpoints
from trainables.transfer.backend import Backend, Names, Progress, PushRequest, unwatched
from trainables.transfer.open import open_backend
from trainables.transfer.rsync import RsyncBackend
from tuner.executors.host_agent.engine_files import PIECE, EngineBackend
from tuner.executors.host_agent.protocol import RESTORED
from tuner.executors.remote.host import RemoteHost

log = logging.getLogger(__name__)

_THREADS = 2
"""So many copies at once per host: one that does not answer holds up no other."""
_LOOK_S = 5.0
"""A host that ssh does not reach in so long is reached through the engine."""
_MANY = 16
"""More files than that, which fit into one message together, go as one."""

Then = Callable[[Exception | None], None]
"""Called from a thread with what went wrong, or None."""


class Landing:
    """Whether a copy that is on its way may still arrive."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._given_up = False

    def give_up(self) -> None:
        """From now on nothing arrives."""
        with self._lock:
            self._given_up = True

    def land(self, staged: Path, path: Path) -> None:
        """Give what was brought its name. Raises TransferError when it was given up."""
        with self._lock:
            if self._given_up:
                raise TransferError(f"{path} is not waited for any more")
            fs.rename(staged, path)
        fs.fsync_dir(path.parent)


class Carrier:
    """Moves checkpoints, several at once.

    Args:
        settings: what the user said of the way: `syncer`, `options`, `ssh_key`, `ssh_port`; asked when it is needed.
    """

    def __init__(self, settings: Callable[[], Mapping[str, Any]]) -> None:
        self._settings = settings
        self._ways: dict[str, tuple[Backend, str]] = {}
        self._taken: set[object] = set()
        """What `_alone` keeps others from."""
        self._freed = threading.Condition()
        self._lanes: dict[str, _CopyThreads] = {}
        self._closed = False

    @property
    def chosen(self) -> bool:
        """The user said which way it goes: there is no other."""
        settings = self._settings()
        return settings.get("syncer", "auto") not in ("auto", None) or any(
            settings.get(name) is not None for name in ("ssh_key", "ssh_port")
        )

    def way(self, host: RemoteHost, root: Path) -> str:
        """How it goes, in words."""
        return self._way(host, root)[1]

    def bring_here(self, host: RemoteHost, path: Path, root: Path, digest: str, landing: Landing | None = None) -> None:
        """Copy a checkpoint from another host to the same path here.

        Raises PublishError when this host's disk does not take it, TransferError, CheckpointError.
        """
        host.store.has(path)  # first: who deletes it meanwhile deletes it there too
        with self._alone(path):
            if not (manifest.is_published(path) and digest in ("", manifest.read(path).digest)):
                self._bring_here(host, path, root, digest, landing or Landing())

    def _bring_here(self, host: RemoteHost, path: Path, root: Path, digest: str, landing: Landing) -> None:
        backend, _ = self._way(host, root)
        key = path.relative_to(root).as_posix()

        def moved(count: int) -> None:
            if host.lost or self._closed:
                raise TransferError(f"{host.name} is gone")

        def fetch(backend: Backend) -> None:
            try:
                remote_checkpoints.fetch(backend, key, staged / path.name, digest=digest or None, progress=moved)
            except TransferError as error:
                if (code := errno_of(error)) in DISK:  # this host's disk: no other way helps
                    raise PublishError(code, str(error)) from error
                raise

        staged = staging.new_directory(path.parent, path.name)
        try:
            try:
                fetch(backend)
            except TransferError as error:
                instead = self._instead(host, root, error)
                fetch(instead)
                self._goes(host, instead, error)  # only now: a host that dies fails both ways, and that is said
            landing.land(staged / path.name, path)
        finally:
            fs.remove_quietly(staged)

    def bring_there(self, host: RemoteHost, source: Path, target: Path, root: Path) -> None:
        """Have a checkpoint of this host on another one, whole; `on` that host nobody else may be at it.

        Raises TransferError, CheckpointError.
        """
        published = manifest.is_published(source)
        digest = manifest.read(source).digest if published else ""
        if published and host.store.check(target, digest) is None:
            return
        backend, _ = self._way(host, root)
        key = target.relative_to(root).as_posix()
        if not published:
            backend.push(source, key, [file.name for file in file_tree.scan(source, follow=False).files])
            return
        remote_checkpoints.push_payload(backend, source, key, index=remote_checkpoints.ContentIndex())
        remote_checkpoints.push_manifest(backend, source, key)
        problem = host.store.check(target, digest)
        if problem is not None:
            raise TransferError(f"{host.name}: {problem or 'what was copied there is not there'}")

    @contextmanager
    def on(self, host: RemoteHost, target: Path) -> Iterator[None]:
        """Keep others from bringing that checkpoint to that host meanwhile: of two clones the second finds it."""
        with self._alone(host.node, target):
            yield

    def beside(self, host: RemoteHost, work: Callable[[], None], then: Then) -> None:
        """Do one of these beside the caller."""

        def do() -> None:
            try:
                work()
            except Exception as error:  # whatever it is: somebody waits for a word
                then(error)
            else:
                then(None)

        if host.node not in self._lanes:
            self._lanes[host.node] = _CopyThreads()
        self._lanes[host.node].add(do)

    def lost(self, host: RemoteHost) -> None:
        """That host is gone: what waits is not begun."""
        if (lane := self._lanes.pop(host.node, None)) is not None:
            lane.close()
        self._ways.pop(host.node, None)

    def close(self) -> None:
        """Give up what is on its way."""
        self._closed = True
        for lane in self._lanes.values():
            lane.close()
        self._lanes.clear()
        for backend, _ in list(self._ways.values()):
            backend.close()

    @contextmanager
    def _alone(self, *key: object) -> Iterator[None]:
        """One at a time for each key; of those that nobody needs any more nothing is left."""
        with self._freed:
            self._freed.wait_for(lambda: key not in self._taken)
            self._taken.add(key)
        try:
            yield
        finally:
            with self._freed:
                self._taken.discard(key)
                self._freed.notify_all()

    def _way(self, host: RemoteHost, root: Path) -> tuple[Backend, str]:
        with self._alone(host.node):
            if host.node not in self._ways:
                self._ways[host.node] = self._find(host, root)
            return self._ways[host.node]

    def _instead(self, host: RemoteHost, root: Path, error: TransferError) -> Backend:
        """The engine, where nobody said that it be another way; raises what happened otherwise."""
        with self._alone(host.node):
            backend = self._ways[host.node][0] if host.node in self._ways else None
            if self.chosen or host.lost or self._closed or backend is None:
                raise error
            return backend if isinstance(backend, EngineBackend) else EngineBackend(f"{host.ip}:{root}", host.store.ask)

    def _goes(self, host: RemoteHost, instead: Backend, error: TransferError) -> None:
        """The engine brought what the way so far did not: it is the way from now on."""
        with self._alone(host.node):
            if host.node in self._ways and not isinstance(self._ways[host.node][0], EngineBackend):
                why = (str(error).splitlines() or [repr(error)])[0]
                log.warning("checkpoints of %s are copied through the engine from here on: %s", host.name, why)
                self._ways[host.node] = instead, f"through the engine ({why})"

    def _find(self, host: RemoteHost, root: Path) -> tuple[Backend, str]:
        settings = dict(self._settings())
        place = f"{host.ip}:{root}"
        if settings.get("syncer", "auto") not in ("auto", None):
            # With a name, as the guides show it: a command may not read this user's ssh configuration.
            backend = open_backend(f"{getpass.getuser()}@{place}", **settings)
            backend.check()
            return backend, "as syncer= says"
        engine = EngineBackend(place, host.store.ask)
        chosen = settings.get("ssh_key") is not None or settings.get("ssh_port") is not None
        try:
            if chosen:
                backend = open_backend(place, ssh_key=settings.get("ssh_key"), ssh_port=settings.get("ssh_port"))
            else:
                backend = RsyncBesideEngine(place, engine)
            backend.check(_LOOK_S)
        except Exception as error:  # the library is missing, or ssh, or a key
            why = (str(error).splitlines() or [repr(error)])[0]
            if chosen:
                raise
            return engine, f"through the engine ({why})"
        return backend, "by rsync over ssh"


class RsyncBesideEngine(RsyncBackend):
    """rsync over ssh; what that is slow at goes through the engine: manifests, and many small files.

    rsync needs 40 ms and more to begin, and a millisecond for each file; a message needs a few in all.
    """

    def __init__(self, uri: str, engine: EngineBackend) -> None:
        super().__init__(uri)
        self._engine = engine

    def read(self, key: str) -> bytes:
        return self._engine.read(key)

    def fetch(self, prefix: str, target: Path, names: Names = None, *, progress: Progress = unwatched) -> None:
        small = names is not None and len(names) > _MANY and self._engine.size(prefix, names) <= PIECE
        if small:
            self._engine.fetch(prefix, target, names, progress=progress)
        else:
            super().fetch(prefix, target, names, progress=progress)

    def _push(self, request: PushRequest) -> None:
        names = request.names
        many = len(names) > _MANY and sum(fs.size(request.source / name) for name in names) <= PIECE
        push = self._engine._push if many or list(names) == [MANIFEST_NAME] else super()._push
        push(request)


class _CopyThreads:
    """Threads for the copies of one host. Nobody waits for them at the end: ssh to a dead host takes its time."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads = 0
        self._closed = False

    def add(self, job: Callable[[], None]) -> None:
        if self._threads < _THREADS:
            try:
                start_thread(self._work, name="tuner-carrier")
                self._threads += 1
            except LimitError:
                if not self._threads:
                    raise  # else those that there are do it all
        self._jobs.put(job)

    def close(self) -> None:
        self._closed = True
        for _ in range(self._threads):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            if not self._closed:
                job()


def place_of_restored(root: Path, source: Path) -> Path:
    """Where a checkpoint from outside the experiment goes on another host."""
    return root / RESTORED / hashlib.sha256(str(source).encode()).hexdigest()[:16]
