"""Zero-copy reader for files of `torch.distributed.checkpoint`: straight into the target tensors."""

from __future__ import annotations

import os
import struct
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import IO, Any, BinaryIO, cast

import torch
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem
from torch.futures import Future

_LOCAL_HEADER = struct.Struct("<26xHH")
"""Of a file in a zip archive: the lengths of its name and of what follows that."""
_HEAD = 4096
"""Bytes that are compared; what torch writes before the values of one tensor is about 800."""


class DirectReader(FileSystemReader):
    """Like torch's, which reads each tensor into memory of its own first, and copies it.

    A tensor that is wanted whole, as it was stored, into memory on the CPU, is read there; all others go torch's way.
    """

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        layouts = _Layouts()
        left = []
        for name, items in self._by_file(plan):
            with open(os.path.join(self.path, name), "rb", buffering=0) as file:
                left += [item for item in items if not self._straight(file, item, planner, layouts)]
        return super().read_data(replace(plan, items=left), planner)

    def _by_file(self, plan: LoadPlan) -> Iterator[tuple[str, list[ReadItem]]]:
        found: dict[str, list[ReadItem]] = {}
        for item in plan.items:
            found.setdefault(self.storage_data[item.storage_index].relative_path, []).append(item)
        for name, items in found.items():
            yield name, sorted(items, key=lambda item: self.storage_data[item.storage_index].offset)

    def _straight(self, file: BinaryIO, item: ReadItem, planner: LoadPlanner, layouts: _Layouts) -> bool:
        info = self.storage_data[item.storage_index]
        if item.type == LoadItemType.BYTE_IO or info.transform_descriptors or any(item.storage_offsets):
            return False
        target = planner.resolve_tensor(item).detach()
        if target.device.type != "cpu" or not target.is_contiguous() or not target.numel():
            return False
        stored = layouts.of(_Part(file, info.offset, info.length))
        if stored is None or (stored.dtype, stored.shape) != (target.dtype, target.shape):
            return False
        left = memoryview(target.view(-1).view(torch.uint8).numpy().data)
        file.seek(info.offset + stored.begin)
        while left.nbytes:
            got = file.readinto(left)  # type: ignore[attr-defined]
            if not got:
                raise EOFError(f"{file.name} is cut short")
            left = left[got:]
        planner.commit_tensor(item, target)
        return True


@dataclass(frozen=True, slots=True)
class _Layout:
    """How a tensor lies in its part of a file: whole, contiguous, from `begin` on."""

    dtype: torch.dtype
    shape: torch.Size
    begin: int


class _Layouts:
    """The layouts that were seen. Parts that begin alike, up to the values, are laid out alike: one is looked into."""

    def __init__(self) -> None:
        self._known: dict[int, list[tuple[bytes, _Layout | None]]] = {}

    def of(self, part: _Part) -> _Layout | None:
        """None: it is to be read as torch does it."""
        head = part.read(_HEAD)
        alike = self._known.setdefault(part.length, [])
        for before, layout in alike:
            if head.startswith(before):
                return layout
        before, layout = self._look(part)
        if len(before) < _HEAD:
            alike.append((before, layout))
        return layout

    @staticmethod
    def _look(part: _Part) -> tuple[bytes, _Layout | None]:
        """What comes before the values, the description of the tensor among it, and the layout."""
        part.seek(0)
        file = cast(IO[bytes], part)
        stored = torch.load(file, map_location="meta", weights_only=True)
        with zipfile.ZipFile(file) as archive:
            values = [entry for entry in archive.infolist() if "/data/" in entry.filename]
        if not isinstance(stored, torch.Tensor) or len(values) != 1:
            return bytes(_HEAD), None
        (entry,) = values
        part.seek(0)
        before = part.read(entry.header_offset)
        name, more = _LOCAL_HEADER.unpack(part.read(_LOCAL_HEADER.size))
        whole = stored.is_contiguous() and entry.file_size == stored.numel() * stored.element_size()
        if not whole or entry.compress_type != zipfile.ZIP_STORED or sys.byteorder != "little":
            return before, None
        return before, _Layout(stored.dtype, stored.shape, entry.header_offset + _LOCAL_HEADER.size + name + more)


class _Part:
    """One tensor's part of a file, as a file."""

    def __init__(self, file: BinaryIO, offset: int, length: int) -> None:
        self._file, self.offset, self.length, self._at = file, offset, length, 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, to: int, whence: int = os.SEEK_SET) -> int:
        self._at = to + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.length}[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        room = self.length - self._at
        data = os.pread(self._file.fileno(), room if size < 0 else min(size, room), self.offset + self._at)
        self._at += len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
