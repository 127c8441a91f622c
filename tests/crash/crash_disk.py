"""A disk that remembers what is durable, and what a crash may leave of the rest.

The model, which is as mean as POSIX allows: the content of a file is durable after an fsync of it; names (created,
renamed, linked, removed) are durable after an fsync of their directory. Of everything else each change may have
happened or not, whatever came before or after it; of a file's unsynced edits any number, the last one torn, or all of
them as zeros. Only a rename is one change: never half of it is there.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

View = dict[str, "bytes | None"]
"""A tree: path relative to its root -> content, None for a directory. Parents come before children."""

Op = tuple[object, ...]
"""What was done: the name of a method of `Disk`, and its arguments."""

ROOT = 0


@dataclass(slots=True)
class Edit:
    """One change of a file's content. Without data it sets the size."""

    at: int
    data: bytes | None

    def apply(self, content: bytes) -> bytes:
        if self.data is None:
            return content[: self.at].ljust(self.at, b"\0")
        return content[: self.at].ljust(self.at, b"\0") + self.data + content[self.at + len(self.data) :]

    def torn(self) -> Edit:
        return self if self.data is None else Edit(self.at, self.data[: (len(self.data) + 1) // 2])

    def zeros(self, size: int) -> Edit:
        """The size arrived, the bytes did not. What is written in place is there or not."""
        return self if self.data is None or self.at < size else Edit(self.at, bytes(len(self.data)))


@dataclass(slots=True)
class File:
    now: bytes = b""
    durable: bytes = b""
    edits: list[Edit] = field(default_factory=list)
    """What lies between the two."""

    def edit(self, edit: Edit) -> None:
        self.edits.append(edit)
        self.now = edit.apply(self.now)

    def sync(self) -> None:
        self.durable = self.now
        self.edits.clear()

    def after(self, edits: list[Edit]) -> bytes:
        content = self.durable
        for edit in edits:
            content = edit.apply(content)
        return content


@dataclass(slots=True)
class Directory:
    now: dict[str, int] = field(default_factory=dict)
    durable: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Change:
    """One atomic change of names: (directory, name, inode, or None where the name goes)."""

    edits: tuple[tuple[int, str, int | None], ...]

    @property
    def directories(self) -> set[int]:
        return {directory for directory, _, _ in self.edits}

    def apply(self, names: Callable[[int], dict[str, int]]) -> None:
        for directory, name, inode in self.edits:
            if inode is None:
                names(directory).pop(name, None)
            else:
                names(directory)[name] = inode


Contents = dict[int, bytes]
"""What a crash leaves in files, by inode; all others keep what they have."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One disk that a crash may leave: which of the unsynced changes happened, and what is in which file."""

    name: str
    changes: frozenset[int]
    contents: Contents

    def __hash__(self) -> int:
        return hash((self.changes, tuple(sorted(self.contents.items()))))


class Disk:
    """Replays what was done to a tree; `view` is what is there, `variants` what a power cut may leave."""

    def __init__(self, view: View | None = None) -> None:
        self.nodes: dict[int, File | Directory] = {ROOT: Directory()}
        self.pending: list[Change] = []
        for path, content in (view or {}).items():
            if content is None:
                self.mkdir(path)
            else:
                file = self.nodes[self.open(path)]
                assert isinstance(file, File)
                file.edit(Edit(0, content))
        self.sync_all()

    # --- what was done --------------------------------------------------------------------------------

    def apply(self, op: Op) -> object:
        return getattr(self, str(op[0]))(*op[1:])

    def mkdir(self, path: str) -> None:
        self._name(path, self._add(Directory()))

    def open(self, path: str, truncate: bool = False) -> int:
        """The inode of a file, made when absent."""
        inode = self.find(path)
        if inode is None:
            inode = self._add(File())
            self._name(path, inode)
        elif truncate and self._file(inode).now:
            self._file(inode).edit(Edit(0, None))
        return inode

    def append(self, inode: int, data: bytes) -> None:
        self.write(inode, len(self._file(inode).now), data)

    def write(self, inode: int, at: int, data: bytes) -> None:
        self._file(inode).edit(Edit(at, data))

    def truncate(self, path: str, size: int) -> None:
        self._file(self._inode(path)).edit(Edit(size, None))

    def rename(self, source: str, target: str) -> None:
        inode = self._inode(source)
        self._change((*self._place(source), None), (*self._place(target), inode))

    def link(self, source: str, target: str) -> None:
        self._name(target, self._inode(source))

    def unlink(self, path: str) -> None:
        self._change((*self._place(path), None))

    rmdir = unlink

    def fsync(self, inode: int) -> None:
        self._file(inode).sync()

    def fsync_file(self, path: str) -> None:
        self.fsync(self._inode(path))

    def fsync_dir(self, path: str) -> None:
        """Names in it are durable, and with them what they need: a rename that also touches another directory."""
        meant = {self._inode(path)}
        durable: list[Change] = []
        rest: list[Change] = []
        for change in reversed(self.pending):
            if change.directories & meant:
                meant |= change.directories
                durable.append(change)
            else:
                rest.append(change)
        for change in reversed(durable):
            change.apply(lambda inode: self._directory(inode).durable)
        self.pending = rest[::-1]

    def sync_all(self) -> None:
        for change in self.pending:
            change.apply(lambda inode: self._directory(inode).durable)
        self.pending = []
        for node in self.nodes.values():
            if isinstance(node, File):
                node.sync()

    # --- what is there ----------------------------------------------------------------------------------

    def find(self, path: str) -> int | None:
        inode = ROOT
        for name in _parts(path):
            node = self.nodes[inode]
            if not isinstance(node, Directory) or name not in node.now:
                return None
            inode = node.now[name]
        return inode

    def view(self, variant: Variant | None = None) -> View:
        """What is there: as the running system sees it, or as a crash left it."""
        if variant is None:
            return self._walk(lambda inode: self._directory(inode).now, {})
        kept: dict[int, dict[str, int]] = {}

        def names(inode: int) -> dict[str, int]:
            if inode not in kept:
                kept[inode] = dict(self._directory(inode).durable)
            return kept[inode]

        for number, change in enumerate(self.pending):
            if number in variant.changes:
                change.apply(names)
        return self._walk(names, variant.contents)

    def durable_view(self) -> View:
        """What no crash takes away."""
        return self.view(self.all_lost())

    # --- what a crash may leave ---------------------------------------------------------------------------

    def all_lost(self) -> Variant:
        return Variant("all lost", frozenset(), {inode: file.durable for inode, file in self._edited()})

    def variants(self, rng: random.Random, *, shuffled: int = 2) -> Iterator[Variant]:
        """What a power cut may leave: nothing unsynced; each change alone lost, alone there; in order up to each;
        each file torn, shortened, zeroed; and some at random. All of it there is what `view()` shows."""
        every = frozenset(range(len(self.pending)))
        lost = self.all_lost().contents
        none: frozenset[int] = frozenset()
        yield self.all_lost()
        yield Variant("names lost", none, {})
        yield Variant("contents lost", every, lost)
        for number in every:
            label = self._describe(number)
            yield Variant(f"{label} lost", every - {number}, {})
            yield Variant(f"only {label}", frozenset({number}), lost)
            yield Variant(f"up to {label}", frozenset(range(number + 1)), lost)
            yield Variant(f"up to {label}, with contents", frozenset(range(number + 1)), {})
        for inode, file in self._edited():
            others = {other: content for other, content in lost.items() if other != inode}
            for label, content in _remains(file):
                yield Variant(f"file {inode} {label}", every, {inode: content})
                yield Variant(f"file {inode} {label}, the rest lost", none, {**others, inode: content})
            yield Variant(f"only file {inode}", every, others)
        for _ in range(shuffled if self.pending or lost else 0):
            changes = frozenset(number for number in every if rng.random() < 0.5)
            contents = {}
            for inode, file in self._edited():
                choices = [content for _, content in _remains(file)]
                if rng.random() < 0.7:
                    contents[inode] = rng.choice(choices)
            yield Variant("at random", changes, contents)

    # --- inside ---------------------------------------------------------------------------------------------

    def _edited(self) -> list[tuple[int, File]]:
        return [(inode, node) for inode, node in self.nodes.items() if isinstance(node, File) and node.edits]

    def _describe(self, number: int) -> str:
        return " and ".join(
            f"{'-' if inode is None else '+'}{directory}/{name}"
            for directory, name, inode in self.pending[number].edits
        )

    def _walk(self, names: Callable[[int], dict[str, int]], contents: Contents) -> View:
        view: View = {}

        def walk(inode: int, prefix: str) -> None:
            for name, child in sorted(names(inode).items()):
                node = self.nodes[child]
                if isinstance(node, File):
                    view[prefix + name] = contents.get(child, node.now)
                else:
                    view[prefix + name] = None
                    walk(child, f"{prefix}{name}/")

        walk(ROOT, "")
        return view

    def _add(self, node: File | Directory) -> int:
        inode = len(self.nodes)
        self.nodes[inode] = node
        return inode

    def _name(self, path: str, inode: int) -> None:
        self._change((*self._place(path), inode))

    def _change(self, *edits: tuple[int, str, int | None]) -> None:
        change = Change(edits)
        change.apply(lambda inode: self._directory(inode).now)
        self.pending.append(change)

    def _place(self, path: str) -> tuple[int, str]:
        *above, name = _parts(path)
        return self._inode("/".join(above)), name

    def _inode(self, path: str) -> int:
        inode = self.find(path)
        if inode is None:
            raise FileNotFoundError(path)
        return inode

    def _file(self, inode: int) -> File:
        node = self.nodes[inode]
        assert isinstance(node, File)
        return node

    def _directory(self, inode: int) -> Directory:
        node = self.nodes[inode]
        assert isinstance(node, Directory)
        return node


def _remains(file: File) -> Iterator[tuple[str, bytes]]:
    """What a crash may leave of a file with unsynced edits."""
    yield "lost", file.durable
    edits = file.edits
    for count in range(1, min(len(edits), 3)):  # the last few, and the first: all others are alike
        yield f"without its last {count} writes", file.after(edits[:-count])
    if len(edits) > 1:
        yield "with its first write", file.after(edits[:1])
    torn = file.after([*edits[:-1], edits[-1].torn()])
    if torn != file.now:
        yield "torn", torn
    zeros = file.after([edit.zeros(len(file.durable)) for edit in edits])
    if zeros != file.now:
        yield "zeroed", zeros


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def materialize(view: View, target: Path) -> None:
    """Make that tree at `target`, which is not there yet."""
    target.mkdir()
    for path, content in view.items():
        if content is None:
            (target / path).mkdir()
        else:
            (target / path).write_bytes(content)


def read_view(root: Path) -> View:
    """The tree that lies at `root`."""
    view: View = {}

    def walk(directory: Path, prefix: str) -> None:
        for entry in sorted(directory.iterdir()):
            if entry.is_dir() and not entry.is_symlink():
                view[prefix + entry.name] = None
                walk(entry, f"{prefix}{entry.name}/")
            else:
                view[prefix + entry.name] = entry.read_bytes()

    walk(root, "")
    return view
