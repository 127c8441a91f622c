"""Moving files through the engine, in bounded pieces: `Files` at the far end, `EngineBackend` at the driver's."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from trainables.errors import ObjectExistsError, ObjectNotFoundError, TransferError
from trainables.net import pieces
from trainables.net.pieces import Piece
from trainables.store import fs
from trainables.threads import Threads
from trainables.transfer.backend import Backend, Can, Entry, Names, Progress, PushRequest, joined, unwatched
from trainables.transfer.local import PREFIX, LocalBackend
from trainables.transfer.local_files import on_disk

PIECE = 8 * 1024 * 1024
"""Bytes in one message."""
WINDOW = 3
"""Messages on their way at once: with `PIECE` the bound on memory at both ends."""
_SYNCS = 8
"""So many files are made durable at once."""


class Files:
    """The files below a directory of this host, by key."""

    def __init__(self, root: Path) -> None:
        self._place = LocalBackend(root)

    def sizes(self, keys: Sequence[str]) -> list[int]:
        """The size of each; -1 for what is no file."""
        return [-1 if (size := self._place._size(key)) is None else size for key in keys]

    def read(self, wanted: Sequence[Piece]) -> list[bytes]:
        """Parts of files."""
        return [pieces.read(self._place._path(key), offset, count) for key, offset, count in wanted]

    def write(self, parts: Sequence[tuple[str, int, bytes]]) -> None:
        """Parts of files that are being sent, each under a name that nobody else uses."""
        paths = [self._place._path(key) for key, _, _ in parts]
        for directory in {path.parent for path in paths}:
            fs.make_dirs(directory)
        for path, (_, offset, data) in zip(paths, parts, strict=True):
            pieces.write(path, offset, data, mode=0o644)

    def place(self, names: Sequence[tuple[str, str]], exclusive: bool) -> None:
        """Give files that have arrived their names, durably."""
        parts = [self._place._path(part) for part, _ in names]
        with Threads(min(_SYNCS, len(parts)) or 1, thread_name_prefix="files-sync") as pool:
            list(pool.map(fs.fsync_file, parts))  # one after another each would wait for a turn of the disk
        for part, (_, key) in zip(parts, names, strict=True):
            self._place._name(part, self._place._path(key), exclusive=exclusive)
        self._place._settle([key for _, key in names])

    def entries(self, prefix: str) -> list[Entry]:
        return list(self._place.list(prefix))

    def delete(self, keys: Sequence[str]) -> None:
        self._place.delete(keys)

    def delete_tree(self, prefix: str) -> None:
        self._place.delete_tree(prefix)


class EngineBackend(Backend):
    """The directory of another host, through the agent there.

    Args:
        uri: how messages name it.
        ask: starts one operation of `Files` on that host and returns what waits for its result; the latter raises
            TransferError when the host is gone.
    """

    can = Can(reuse=False, copy=False)

    def __init__(self, uri: str, ask: Callable[..., Callable[[], Any]]) -> None:
        super().__init__(uri)
        self._ask = ask

    def check(self, timeout_s: float = 10.0) -> None:
        self._call("entries", ".check")

    def _push(self, request: PushRequest) -> None:
        source, names, keys = request.source, request.names, request.keys()
        parts = {name: _beside(key) for name, key in keys.items()}
        try:
            sizes = [(name, fs.size(source / name)) for name in names]
        except OSError as error:
            raise TransferError(f"{error.filename} cannot be pushed: {error}") from error
        with _Window() as window:
            for batch in pieces.cut(sizes, PIECE):
                data = [
                    (parts[name], offset, pieces.read(source / name, offset, count)) for name, offset, count in batch
                ]
                window.add(self._ask("write", data))
                request.progress(sum(len(piece) for _, _, piece in data))
        try:
            self._call("place", [(parts[name], keys[name]) for name in names], request.exclusive)
        except FileExistsError as error:
            raise ObjectExistsError(f"{self.url(request.prefix)} is there already") from error
        request.receipts.update(dict.fromkeys(names, ""))

    def fetch(self, prefix: str, target: Path, names: Names = None, *, progress: Progress = unwatched) -> None:
        if names is None:
            names = [entry.key[len(prefix) + 1 :] for entry in self.list(prefix)]
            if not names:
                raise ObjectNotFoundError(f"{self.url(prefix)}: there is nothing")
        sizes = self._call("sizes", [joined(prefix, name) for name in names])
        for name, size in zip(names, sizes, strict=True):
            if size < 0:
                raise ObjectNotFoundError(f"there is no {self.url(joined(prefix, name))}")
        for directory in {(target / name).parent for name in names}:
            fs.make_dirs(directory)
        with _Window() as window:
            for batch in pieces.cut(zip(names, sizes, strict=True), PIECE):
                ask = self._ask("read", [(joined(prefix, name), offset, count) for name, offset, count in batch])

                def arrived(ask: Callable[[], Any] = ask, batch: list[Piece] = batch) -> None:
                    for (name, offset, count), data in zip(batch, ask(), strict=True):
                        if len(data) != count:
                            raise TransferError(f"{self.url(joined(prefix, name))} was shortened", transient=True)
                        with on_disk(target / name):
                            pieces.write(target / name, offset, data, fresh=True)
                        progress(len(data))

                window.add(arrived)

    def size(self, prefix: str, names: Sequence[str]) -> int:
        """Bytes of these files in all; what is not there has none."""
        return sum(max(0, size) for size in self._call("sizes", [joined(prefix, name) for name in names]))

    def list(self, prefix: str = "") -> Iterator[Entry]:
        yield from self._call("entries", prefix)

    def delete(self, keys: Sequence[str]) -> None:
        self._call("delete", list(keys))

    def _delete_tree(self, prefix: str) -> None:
        self._call("delete_tree", prefix)

    def _call(self, what: str, *arguments: Any) -> Any:
        return self._ask(what, *arguments)()


class _Window:
    """At most so many operations at once; leaving waits for all."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], Any]] = deque()

    def __enter__(self) -> _Window:
        return self

    def add(self, wait: Callable[[], Any]) -> None:
        self._waiting.append(wait)
        while len(self._waiting) >= WINDOW:
            self._waiting.popleft()()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        while self._waiting and kind is None:
            self._waiting.popleft()()


def _beside(key: str) -> str:
    directory, slash, _ = key.rpartition("/")
    return f"{directory}{slash}{PREFIX}{secrets.token_hex(8)}"
