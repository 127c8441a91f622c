"""File systems of fsspec, of which little can be taken for granted."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.trainables.transfer.harness import checks, run
from trainables.errors import (
    AccessRefusedError,
    MissingExtraError,
    ObjectExistsError,
    ObjectNotFoundError,
    TransferCorruptError,
    TransferError,
)
from trainables.testing.backends import Check
from trainables.transfer.backend import Can
from trainables.transfer.fsspec import FsspecBackend, MemoryBackend


@checks
def test_memory_conforms(check: Check) -> None:
    run(check, MemoryBackend(f"memory://conform/{check.__name__}"))


@checks
def test_what_fsspec_knows_conforms(check: Check, tmp_path: Path) -> None:
    backend = FsspecBackend(f"local://{tmp_path}/place")
    assert backend.can == Can(verify=False, exclusive=False)
    run(check, backend)


def test_messages_show_the_address_that_they_are_given() -> None:
    place = FsspecBackend("memory://a/b/", shown="memory://shown/b/")

    assert (place.uri, place.url("x")) == ("memory://shown/b", "memory://shown/b/x")


@pytest.mark.parametrize(
    ("error", "kind", "transient"),
    [
        (FileNotFoundError("x"), ObjectNotFoundError, False),
        (NotADirectoryError("x"), ObjectNotFoundError, False),
        (IsADirectoryError("x"), ObjectNotFoundError, False),
        (FileExistsError("x"), ObjectExistsError, False),
        (PermissionError("x"), AccessRefusedError, False),
        (NotImplementedError(), TransferError, False),
        (OSError("cut"), TransferError, True),
        (KeyError("whatever a filesystem raises"), TransferError, True),
        (ValueError("odd"), TransferError, False),
    ],
)
def test_what_a_filesystem_raises_has_one_meaning(error: Exception, kind: type[TransferError], transient: bool) -> None:
    found = MemoryBackend("memory://x")._failure(error, "memory://x/key")

    assert found is not None
    assert type(found) is kind and found.transient is transient
    assert "memory://x/key" in str(found)


def test_a_write_that_arrives_short_is_noticed(tmp_path: Path) -> None:
    class Short(FsspecBackend):
        def _connect(self) -> tuple[Any, str]:
            filesystem, root = super()._connect()
            real = filesystem.open

            def opened(path: str, mode: str) -> Any:
                file = real(path, mode)
                if mode == "wb":
                    write = file.write
                    file.write = lambda data: write(data[:-1])
                return file

            filesystem.open = opened
            return filesystem, root

    with pytest.raises(TransferCorruptError, match="/a has 2 bytes, sent were 3") as raised:
        Short(f"local://{tmp_path}/place").put("a", b"123")
    assert raised.value.transient


def test_what_was_written_by_others_meanwhile_is_seen(tmp_path: Path) -> None:
    place = FsspecBackend(f"local://{tmp_path}/place")
    place.put("d/a", b"1")
    assert [entry.key for entry in place.list("d")] == ["d/a"]

    (tmp_path / "place" / "d" / "b").write_bytes(b"12")

    assert [(entry.key, entry.size) for entry in place.list("d")] == [("d/a", 1), ("d/b", 2)]
    assert not place.exists("d")
    place.renew()
    assert place.read("d/b") == b"12"


def test_an_address_of_a_library_that_is_missing_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(MissingExtraError, match=r'memory://x needs fsspec: pip install .*\[fsspec\]"'):
        FsspecBackend("memory://x")
