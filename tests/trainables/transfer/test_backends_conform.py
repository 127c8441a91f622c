"""Every back end that keeps single files, under the shipped suite; and the suite under faulty ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.servers.azure import Azurite, azurite
from tests.servers.gcs import Gcs, gcs
from tests.servers.xfs import xfs
from trainables.testing.backends import CHECKS, Check, check_backend
from trainables.transfer.azure import AzureBackend
from trainables.transfer.backend import Backend, Can, Progress, unwatched
from trainables.transfer.fsspec import FsspecBackend, MemoryBackend
from trainables.transfer.gcs import GcsBackend
from trainables.transfer.local import LocalBackend

checks = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)


@pytest.fixture(scope="module")
def azure_server() -> Iterator[Azurite]:
    with azurite() as server:
        yield server


@pytest.fixture(scope="module")
def gcs_server() -> Iterator[Gcs]:
    with gcs() as server:
        yield server


@pytest.fixture(scope="module")
def reflinking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with xfs(tmp_path_factory.mktemp("xfs")) as place:
        yield place


def run(check: Check, backend: Backend) -> None:
    try:
        check(backend)
    finally:
        backend.close()


@checks
def test_a_directory_conforms(check: Check, tmp_path: Path) -> None:
    run(check, LocalBackend(tmp_path / "not" / "there yet"))


@checks
def test_a_directory_that_can_reflink_conforms(check: Check, reflinking: Path) -> None:
    run(check, LocalBackend(reflinking / check.__name__))


@checks
def test_memory_conforms(check: Check) -> None:
    run(check, MemoryBackend(f"memory://conform/{check.__name__}"))


@checks
def test_what_fsspec_knows_conforms(check: Check, tmp_path: Path) -> None:
    backend = FsspecBackend(f"local://{tmp_path}/place")
    assert backend.can == Can(verify=False, exclusive=False)
    run(check, backend)


@checks
def test_azure_conforms(check: Check, azure_server: Azurite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", azure_server.connection_string())
    run(check, AzureBackend(f"az://{azure_server.container()}/a path/below"))


@checks
def test_gcs_conforms(check: Check, gcs_server: Gcs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs_server.url)
    run(check, GcsBackend(f"gs://{gcs_server.bucket()}/a path/below"))


def test_a_whole_bucket_conforms_too(azure_server: Azurite, gcs_server: Gcs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", azure_server.connection_string())
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs_server.url)
    from trainables.testing.backends import it_says_what_it_holds

    run(it_says_what_it_holds, AzureBackend(f"az://{azure_server.container()}"))
    run(it_says_what_it_holds, GcsBackend(f"gs://{gcs_server.bucket()}/"))


# --- the suite sees what is wrong ----------------------------------------------------------------------------


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
