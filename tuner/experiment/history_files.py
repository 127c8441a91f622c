"""Finding a file of an experiment's history by its name: in the journal, or in the pack in which it lies by now."""

from __future__ import annotations

import contextlib
from pathlib import Path

from trainables.store import fs
from tuner.experiment import history_format as packed
from tuner.experiment.history_format import PackEntry
from tuner.experiment.paths import ExperimentPaths, parse_pack, parse_segment


class HistoryFiles:
    """The segments and snapshots of an experiment, where they lie now; safe beside a driver that packs and drops.

    Args:
        paths: the experiment.
    """

    def __init__(self, paths: ExperimentPaths) -> None:
        self._paths = paths
        self._packs: dict[str, tuple[int, dict[str, PackEntry]]] = {}
        """Pack -> where its members begin, and these by name."""

    def read(self, name: str) -> bytes:
        """A segment or a snapshot. Raises FileNotFoundError, ValueError."""
        for _ in range(2):  # it may be packed between the two looks
            with contextlib.suppress(FileNotFoundError):
                return fs.read_file(self._paths.journal / name)
            self._look()
            for pack, (start, entries) in self._packs.items():
                if name in entries:
                    with contextlib.suppress(FileNotFoundError):
                        return packed.read_member(self._paths.history / pack, start, entries[name])
        raise FileNotFoundError(f"{name} is neither in the journal nor in its history")

    def segment(self, key: tuple[int, int]) -> str:
        """The name of a segment of that generation and number."""
        return self._paths.segment(*key).name

    def size(self, name: str) -> int:
        """The bytes of a segment that lies in the journal; -1: it does not."""
        try:
            return fs.size(self._paths.journal / name)
        except FileNotFoundError:
            return -1

    def segments_after(self, key: tuple[int, int]) -> list[tuple[int, int]]:
        """(generation, number) of the segments that follow that one, in order."""
        names = self._names(self._paths.journal)  # first: what is packed meanwhile is found in a pack
        self._look()
        names += [name for _, entries in self._packs.values() for name in entries]
        return sorted({found for name in names if (found := parse_segment(name)) and found > key})

    def _look(self) -> None:
        """Learn of packs that have come, and forget those that have gone."""
        there = [name for name in self._names(self._paths.history) if parse_pack(name)]
        for gone in self._packs.keys() - set(there):
            del self._packs[gone]
        for name in there:
            if name not in self._packs:
                with contextlib.suppress(FileNotFoundError, ValueError):  # it is missed where it is due
                    index, start = packed.read_index(self._paths.history / name)
                    self._packs[name] = start, {entry.name: entry for entry in index.files}

    @staticmethod
    def _names(folder: Path) -> list[str]:
        return fs.listdir(folder) if fs.is_dir(folder) else []
