"""What can be seen of a machine before a run: versions, room, limits, and whether a place elsewhere can be used.

Runs here and on the nodes of a cluster; what it returns can be sent. It leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.metadata
import importlib.util
import os
import platform
import resource
import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainables.errors import ObjectExistsError, TrainablesError
from trainables.store import fs
from tuner.resources import memory_in_use

_SHM = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class TriedDirectory:
    """A directory as far as it was tried."""

    path: Path
    tried: Path
    """Where: the path itself, or what is there of the way to it."""
    problem: str = ""
    """Why nothing can be written there; "" where it can."""
    free: int | None = None
    locks: bool = False
    reflinks: bool = False
    mark: bool = False
    """What the driver had left there was seen: it is the driver's own directory."""


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """What one machine has."""

    hostname: str
    python: str
    versions: Mapping[str, str | None]
    """Package -> its version; None: it is not there; "": it is, and nobody says which."""
    storage: TriedDirectory
    temporary: TriedDirectory
    memory: int | None
    """Bytes that are free."""
    files: int
    """Limit of open files; -1: none."""
    processes: int
    shm: int
    """Bytes of /dev/shm in all."""
    rights: list[tuple[str, str]] = field(default_factory=list)
    """(what, why it is not possible) of the place of the copies; "" where it is."""


def look(
    storage: Path, packages: Mapping[str, str], *, mark: str = "", place: Mapping[str, Any] | None = None
) -> MachineFacts:
    """Look at this machine.

    Args:
        storage: where results are to lie.
        packages: name to import -> name of the distribution.
        mark: name of a file that the driver has left in the storage directory, or on the way to it.
        place: the place of the copies, as arguments of `open_backend`.
    """
    return MachineFacts(
        hostname=socket.gethostname(),
        python=platform.python_version(),
        versions={name: version(name, distribution) for name, distribution in packages.items()},
        storage=try_directory(storage, mark),
        temporary=try_directory(Path(tempfile.gettempdir())),
        memory=free_memory(),
        files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        processes=resource.getrlimit(resource.RLIMIT_NPROC)[0],
        shm=shutil.disk_usage(_SHM).total if _SHM.is_dir() else 0,
        rights=[] if place is None else try_place(place),
    )


def version(name: str, distribution: str) -> str | None:
    """The version of what `import name` gets; None: nothing."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(distribution)
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        found = None
    return None if found is None else ""


def nearest(path: Path) -> Path:
    """The path itself, or what is there of the way to it."""
    return next(place for place in (path, *path.parents) if fs.exists(place))


def try_directory(path: Path, mark: str = "") -> TriedDirectory:
    """Write where results would be written."""
    tried = nearest(path)
    mine = tried / f".check-{secrets.token_hex(8)}"
    try:
        os.mkdir(mine)
    except OSError as error:
        return TriedDirectory(path, tried, error.strerror or str(error))
    try:
        fs.write_file(mine / "file", b"x" * 65536, fsync=True)
        return TriedDirectory(
            path,
            tried,
            free=fs.free_bytes(tried),
            locks=_locks(mine / "file"),
            reflinks=_reflinks(mine / "file", mine / "other"),
            mark=bool(mark) and any(fs.exists(place / mark) for place in (tried, *tried.parents)),
        )
    except OSError as error:
        return TriedDirectory(path, tried, error.strerror or str(error))
    finally:
        fs.remove_quietly(mine)


def _locks(path: Path) -> bool:
    with path.open("rb+") as first, path.open("rb+") as second:
        try:
            fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        try:
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def _reflinks(source: Path, target: Path) -> bool:
    with source.open("rb") as there, target.open("wb") as here:
        return fs._reflink(there.fileno(), here.fileno())


def free_memory() -> int | None:
    """Bytes that processes can still take here; the limit of this one's cgroup counts."""
    found = memory_in_use()
    return None if found is None else max(0, found[1] - found[0])


def try_place(place: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Do all that a run does at the place of the copies, with one small file; what is not possible ends it."""
    from trainables.transfer.open import open_backend

    found: list[tuple[str, str]] = []
    key = f".check-{secrets.token_hex(8)}/file"
    data = secrets.token_bytes(1024)
    try:
        backend = open_backend(**place)
    except (TrainablesError, ImportError) as error:
        return [("open", str(error))]

    def step(name: str, do: Any) -> bool:
        try:
            problem = do()
        except (TrainablesError, OSError) as error:
            problem = str(error) or repr(error)
        found.append((name, problem or ""))
        return not problem

    def created_twice() -> str:
        try:
            backend.put(key, data, exclusive=True)
        except ObjectExistsError:
            return ""
        return "a file that is there can be created: two owners would not see each other"

    def there(expected: bool) -> str:
        listed = any(entry.key == key for entry in backend.list(key.rpartition("/")[0]))
        return "" if listed == expected else "it is not listed" if expected else "it is still there"

    with backend:
        if not step("reach", backend.check) or not step("write", lambda: backend.put(key, data)):
            return found
        step("read", lambda: "" if backend.read(key) == data else "it is not what was written")
        if backend.can.list:
            step("list", lambda: there(True))
        if backend.can.exclusive:
            step("create exclusively", created_twice)
        if backend.can.delete and step("delete", lambda: backend.delete([key])) and backend.can.list:
            step("see what is deleted", lambda: there(False))
            with contextlib.suppress(TrainablesError, OSError):
                backend.delete_tree(key.rpartition("/")[0])
        return found


def distributions(names: Iterable[str]) -> dict[str, str]:
    """Name to import -> the distribution that it comes from."""
    known = importlib.metadata.packages_distributions()
    return {name: known.get(name, [name])[0] for name in names}
