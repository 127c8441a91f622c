"""Files in pieces: every byte once, bounded, and what came otherwise is known."""

from __future__ import annotations

import threading
from multiprocessing import Pipe
from pathlib import Path

import pytest

from trainables.net import pieces

MOST = 1000
SIZES = (0, 1, MOST, 2 * MOST + 1, 0, MOST - 1, 3)


@pytest.fixture
def source(tmp_path: Path) -> tuple[Path, list[tuple[str, int]]]:
    directory = tmp_path / "source"
    directory.mkdir()
    files = [(f"f{number}", size) for number, size in enumerate(SIZES)]
    for name, size in files:
        (directory / name).write_bytes(bytes(number % 251 for number in range(size)))
    return directory, files


def test_every_byte_is_in_one_piece_and_no_message_is_too_large() -> None:
    files = [(str(number), size) for number, size in enumerate(SIZES)]
    batches = list(pieces.cut(files, MOST))
    assert all(0 < len(batch) and sum(count for _, _, count in batch) <= MOST for batch in batches)
    for name, size in files:
        mine = [(offset, count) for batch in batches for found, offset, count in batch if found == name]
        assert sum(count for _, count in mine) == size and mine
        assert [offset for offset, _ in mine] == [sum(count for _, count in mine[:n]) for n in range(len(mine))]


def test_what_is_sent_arrives(source: tuple[Path, list[tuple[str, int]]], tmp_path: Path) -> None:
    directory, files = source
    target = tmp_path / "target"
    target.mkdir()
    ours, theirs = Pipe()
    sender = threading.Thread(target=pieces.send, args=(ours, directory, files, MOST))
    sender.start()
    whole = pieces.receive(theirs, files, MOST, lambda *piece: pieces.write(target / piece[0], *piece[1:], fresh=True))
    sender.join()
    assert whole
    assert {path.name: path.read_bytes() for path in target.iterdir()} == {
        path.name: path.read_bytes() for path in directory.iterdir()
    }


def test_what_is_not_what_was_sent_is_known(source: tuple[Path, list[tuple[str, int]]]) -> None:
    _, files = source
    ours, theirs = Pipe()

    def lie() -> None:
        for batch in pieces.cut(files, MOST):
            ours.send_bytes(bytes(sum(count for _, _, count in batch)))
        ours.send_bytes(bytes(32))

    sender = threading.Thread(target=lie)
    sender.start()
    assert not pieces.receive(theirs, files, MOST, lambda *piece: None)
    sender.join()


def test_a_file_that_was_shortened_is_not_sent_as_if_it_were_whole(source: tuple[Path, list[tuple[str, int]]]) -> None:
    directory, files = source
    (directory / files[-1][0]).write_bytes(b"")
    ours, _ = Pipe()
    with pytest.raises(OSError, match="was shortened"):
        pieces.send(ours, directory, files[-1:], MOST)


def test_a_piece_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError):
        pieces.write(tmp_path / "link", 0, b"x")
    assert not (tmp_path / "elsewhere").exists()
