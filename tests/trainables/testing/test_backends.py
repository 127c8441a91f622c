"""The shipped suite of back ends finds what is wrong with one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from trainables.testing.backends import check_backend
from trainables.transfer.backend import Backend, Progress, unwatched
from trainables.transfer.local import LocalBackend


class Faulty(LocalBackend):
    """As it should be, but for one thing."""


class PushesAll(Faulty):
    def push(self, source: Path, prefix: str, names: Sequence[str], **more: Any) -> None:
        present = [path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()]
        super().push(source, prefix, sorted({*names, *present}), **more)


class Replaces(Faulty):
    def push(
        self,
        source: Path,
        prefix: str,
        names: Sequence[str],
        *,
        same: Mapping[str, str] | None = None,
        exclusive: bool = False,
        receipts: MutableMapping[str, str] | None = None,
        progress: Progress = unwatched,
    ) -> None:
        super().push(source, prefix, names, same=same, receipts=receipts, progress=progress)


class SendsAgain(Faulty):
    def push(self, source: Path, prefix: str, names: Sequence[str], *, same: Any = None, **more: Any) -> None:
        super().push(source, prefix, names, **more)


class Follows(Faulty):
    def _path(self, key: str, *, last: bool = True) -> Path:
        return self.root / key

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._remove(key)


class DeletesByPrefix(Faulty):
    def delete_tree(self, prefix: str) -> None:
        if not prefix:
            raise ValueError
        self.delete([entry.key for entry in self.list() if entry.key.startswith(prefix)])


class ListsByPrefix(Faulty):
    def list(self, prefix: str = "") -> Iterator[Any]:
        return (entry for entry in super().list() if entry.key.startswith(prefix))


class LeavesProbe(Faulty):
    def check(self, timeout_s: float = 10.0) -> None:
        self.put("probe", b"x")


class Silent(Faulty):
    def fetch(self, prefix: str, target: Path, names: Any = None, *, progress: Progress = unwatched) -> None:
        try:
            super().fetch(prefix, target, names, progress=progress)
        except FileNotFoundError:
            pass


class Deaf(Faulty):
    def push(self, source: Path, prefix: str, names: Sequence[str], *, progress: Any = None, **more: Any) -> None:
        super().push(source, prefix, names, **more)


FAULTS: list[Callable[[Path], Backend]] = [
    PushesAll, Replaces, SendsAgain, Follows, DeletesByPrefix, ListsByPrefix, LeavesProbe, Silent, Deaf,
]  # fmt: skip


@pytest.mark.parametrize("make", FAULTS)
def test_the_suite_finds_the_fault(make: Callable[[Path], Backend], tmp_path: Path) -> None:
    numbers = itertools.count()
    with pytest.raises(AssertionError):
        check_backend(lambda: make(tmp_path / str(next(numbers))))


def test_the_suite_runs_at_once(tmp_path: Path) -> None:
    numbers = itertools.count()
    check_backend(lambda: LocalBackend(tmp_path / str(next(numbers))))
