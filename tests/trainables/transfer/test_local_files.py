"""The ends of a transfer on this disk: what is read and written, what counts as moved, and errors of the disk."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainables.errors import StoreMissingError, TransferError
from trainables.store import fs
from trainables.transfer.local_files import Sink, Source, on_disk


@given(st.binary(max_size=60), st.lists(st.one_of(st.none(), st.integers(-1, 25)), max_size=8))
def test_pieces_of_any_length_add_up_to_the_file(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, counts: list[int | None]
) -> None:
    path = tmp_path_factory.mktemp("files") / "x"
    path.write_bytes(content)
    told: list[int] = []

    with Source(path, told.append) as source:
        assert (source.size, source.name, source.tell()) == (len(content), os.fspath(path), 0)
        read = b""
        for count in [*counts, -1]:
            part = source.read(count)
            assert count is None or count < 0 or len(part) <= count
            read += part
        assert source.read() == source.read(10) == b""

    assert read == content
    assert sum(told) == len(content) and 0 not in told


def test_its_end_stays_where_it_was_though_somebody_writes_on(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"12345")

    with Source(tmp_path / "log") as source:
        with (tmp_path / "log").open("ab") as log:
            log.write(b"later")
        assert source.read() == b"12345"
        assert source.seek(-2, os.SEEK_END) == 3
        assert source.read(100) == b"45"


def test_a_file_that_was_shortened_is_an_error_and_never_a_short_copy(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(bytes(100))

    with Source(path) as source:
        os.truncate(path, 40)
        with pytest.raises(TransferError, match="was shortened while it was being sent") as read:
            source.read()
        with pytest.raises(TransferError, match="was shortened") as at:
            source.read_at(bytearray(10), 35)
        kept = bytearray(5)
        source.read_at(kept, 35)
    assert read.value.transient and at.value.transient, "it may be whole at the next try"


def test_a_second_try_reads_from_the_start_again(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abcdef")

    with Source(tmp_path / "x") as source:
        assert source.seekable() and source.readable()
        assert [source.read(4), source.seek(0), source.read()] == [b"abcd", 0, b"abcdef"]
        assert source.peek(0) == b""


def test_pieces_at_any_place_leave_the_position_alone_and_tell_nobody(tmp_path: Path) -> None:
    content = os.urandom(100)
    (tmp_path / "x").write_bytes(content)
    told: list[int] = []

    with Source(tmp_path / "x", told.append) as source:
        for start in (50, 0, 90):
            piece = bytearray(10)
            source.read_at(piece, start)
            assert piece == content[start : start + 10]
        assert (source.tell(), told) == (0, [])
        source.moved(10)
    assert told == [10]


@given(st.permutations(range(6)))
def test_what_is_written_in_any_order_is_the_file(tmp_path_factory: pytest.TempPathFactory, order: list[int]) -> None:
    path = tmp_path_factory.mktemp("sinks") / "x"
    told: list[int] = []

    with Sink(path, told.append) as sink:
        for number in order:
            sink.write_at(bytes([number]) * 3, 3 * number)

    assert path.read_bytes() == b"".join(bytes([number]) * 3 for number in range(6))
    assert told == [3] * 6


def test_a_sink_never_takes_over_what_is_there(tmp_path: Path) -> None:
    with Sink(tmp_path / "x") as sink:
        assert sink.writable() and not sink.seekable()
        assert sink.write(b"a") == 1
        assert sink.write(memoryview(b"b")) == 1
        sink.flush()
        assert sink.tell() == 2
    assert (tmp_path / "x").read_bytes() == b"ab"

    with pytest.raises(TransferError, match="x: File exists"), Sink(tmp_path / "x"):
        pass
    assert (tmp_path / "x").read_bytes() == b"ab"


def test_a_full_disk_says_how_much_is_free_and_keeps_its_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, data: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(fs, "write", full)
    told: list[int] = []

    with Sink(tmp_path / "x", told.append) as sink, pytest.raises(TransferError) as raised:
        sink.write(b"x")

    assert str(raised.value).startswith(f"{tmp_path / 'x'}: No space left on device; ")
    assert "bytes are free there" in str(raised.value)
    assert isinstance(raised.value.__cause__, OSError) and not raised.value.transient
    assert told == []


def test_what_is_no_error_of_the_disk_passes_as_it_is(tmp_path: Path) -> None:
    for error in (StoreMissingError("no bucket"), ValueError("x"), KeyboardInterrupt()):
        with pytest.raises(type(error)) as raised, on_disk(tmp_path):
            raise error
        assert raised.value is error
    with pytest.raises(TransferError, match="none: No such file"), Source(tmp_path / "none"):
        pass
