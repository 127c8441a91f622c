"""The lines of a file that grows: each of them once, whoever cuts it into pieces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tuner.cli import tail
from tuner.cli.tail import Tail

PIECES = st.lists(st.text("ab\n\n").map(str.encode), max_size=6)


@given(PIECES, PIECES, st.one_of(st.none(), st.integers(0, 4)), st.integers(1, 5))
def test_the_last_lines_and_then_each_new_one(
    tmp_path_factory: Any, before: list[bytes], after: list[bytes], lines: int | None, block: int
) -> None:
    path = tmp_path_factory.mktemp("tail") / "file"
    whole, tail.BLOCK = tail.BLOCK, block
    try:
        path.write_bytes(b"".join(before))
        reader = Tail(lines)
        seen = list(reader.read(path))
        for piece in after:
            with open(path, "ab") as file:
                file.write(piece)
            seen += reader.read(path)
        seen += reader.read(path, last=True)
    finally:
        tail.BLOCK = whole
    first, every = b"".join(before).decode(), b"".join(before + after).decode()
    skipped = 0 if lines is None else max(0, len(first.splitlines()) - lines)
    if lines == 0:
        assert seen == every[len(first) :].splitlines()
    else:
        assert seen == every.splitlines()[skipped:]


def test_of_a_progress_bar_the_last_state_counts(tmp_path: Path) -> None:
    path, reader = tmp_path / "file", Tail()
    path.write_bytes(b" 1%|\r 2%|\r")
    assert list(reader.read(path)) == []
    path.write_bytes(b" 1%|\r 2%|\r100%|\r\nwhole\r\nhalf")
    assert list(reader.read(path)) == ["100%|", "whole"]
    assert list(reader.read(path, last=True)) == ["half"]


def test_a_file_that_is_begun_anew_is_read_anew(tmp_path: Path) -> None:
    path, reader = tmp_path / "file", Tail()
    assert list(reader.read(path)) == list(reader.read(tmp_path)) == []
    path.write_text("one\ntwo\n")
    assert list(reader.read(path)) == ["one", "two"]
    path.write_text("new\n")
    assert list(reader.read(path)) == ["new"]
