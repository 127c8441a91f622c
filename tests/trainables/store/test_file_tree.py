"""What lies in a directory, and the fingerprint of a file: real trees, links, pipes, and files that change."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

import blake3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainables.errors import CheckpointError, CheckpointNotFoundError
from trainables.store import file_tree
from trainables.store.file_tree import fingerprint, scan

PARTS = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=6).filter(
    lambda part: part not in (".", "..")
)
TREES = st.recursive(
    st.binary(max_size=8), lambda inner: st.dictionaries(PARTS, inner, max_size=4), max_leaves=8
).filter(lambda tree: isinstance(tree, dict))


def make(directory: Path, tree: dict[str, object]) -> None:
    directory.mkdir()
    for name, content in tree.items():
        if isinstance(content, bytes):
            (directory / name).write_bytes(content)
        else:
            make(directory / name, content)  # type: ignore[arg-type]


def flat(tree: dict[str, object], above: str = "") -> tuple[dict[str, int], set[str]]:
    """(name -> size, directories) of a tree of dicts."""
    files, directories = {}, set()
    for name, content in tree.items():
        if isinstance(content, bytes):
            files[above + name] = len(content)
        else:
            more = flat(content, f"{above}{name}/")  # type: ignore[arg-type]
            files |= more[0]
            directories |= {above + name} | more[1]
    return files, directories


@given(TREES)
def test_everything_is_found_with_parents_before_children(tree: dict[str, object]) -> None:
    with tempfile.TemporaryDirectory() as root:
        make(Path(root, "tree"), tree)
        for follow in (False, True):
            found = scan(Path(root, "tree"), follow=follow)
            files, directories = flat(tree)
            assert {file.name: file.size for file in found.files} == files
            assert found.bytes == sum(files.values())
            assert set(found.directories) == directories and len(found.directories) == len(directories)
            for number, name in enumerate(found.directories):
                assert not any(name.startswith(f"{later}/") for later in found.directories[number + 1 :])
            empty = {name for name in directories if not any(x.startswith(f"{name}/") for x in (*files, *directories))}
            assert set(found.empty_directories()) == empty
            assert all(os.path.samefile(file.source, Path(root, "tree", file.name)) for file in found.files)


def test_the_order_is_that_of_names_whatever_the_disk_says(tmp_path: Path) -> None:
    for name in ("b", "a", "c"):
        (tmp_path / name).touch()

    assert [file.name for file in scan(tmp_path, follow=False).files] == ["a", "b", "c"]


def test_links_are_listed_or_followed_and_stay_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_bytes(b"12345")
    root = tmp_path / "root"
    root.mkdir()
    (root / "to a file").symlink_to("../outside/file")
    (root / "to a directory").symlink_to(tmp_path / "outside")

    left = scan(root, follow=False)
    assert (left.links, left.files, left.directories) == (["to a directory", "to a file"], [], [])
    followed = scan(root, follow=True)
    assert [(file.name, file.size) for file in followed.files] == [("to a directory/file", 5), ("to a file", 5)]
    assert (followed.directories, followed.links) == (["to a directory"], ["to a directory", "to a file"])


@pytest.mark.parametrize("target", ["nowhere", "link", "/no/such/place"])
def test_a_link_that_cannot_be_followed_is_named_with_what_it_leads_to(tmp_path: Path, target: str) -> None:
    (tmp_path / "link").symlink_to(target)

    with pytest.raises(CheckpointError, match=rf"link is a symlink to {target}, which cannot be followed"):
        scan(tmp_path, follow=True)
    assert scan(tmp_path, follow=False).links == ["link"]


def test_a_link_to_a_directory_above_is_refused_and_one_to_a_neighbour_is_not(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "a" / "file").touch()
    (tmp_path / "b" / "again").symlink_to("../a")
    assert [file.name for file in scan(tmp_path, follow=True).files] == ["a/file", "b/again/file"]

    (tmp_path / "a" / "up").symlink_to("..")
    with pytest.raises(CheckpointError, match="up is a symlink to a directory that contains it"):
        scan(tmp_path, follow=True)


def test_what_is_neither_file_nor_directory_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path must be short
    for name, kind in (("pipe", "a named pipe"), ("socket", "a socket")):
        Path(name).mkdir()
        if name == "pipe":
            os.mkfifo("pipe/x")
        else:
            with socket.socket(socket.AF_UNIX) as made:
                made.bind("socket/x")
        with pytest.raises(CheckpointError, match=f"x is {kind}: a checkpoint holds files and directories"):
            scan(tmp_path / name, follow=False)


def test_a_name_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")).touch()

    with pytest.raises(CheckpointError, match=r"caf\\udce9.*must be UTF-8"):
        scan(tmp_path, follow=False)


def test_what_is_no_directory_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    for path, said in ((tmp_path / "none", "there is no"), (tmp_path / "file" / "x", "there is no")):
        with pytest.raises(CheckpointNotFoundError, match=said):
            scan(path, follow=False)
    with pytest.raises(CheckpointNotFoundError, match="is not a directory"):
        scan(tmp_path / "file", follow=False)


# --- fingerprints ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 33])
def test_a_file_is_hashed_whole_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(file_tree, "_BLOCK", 16)
    content = os.urandom(size)
    (tmp_path / "x").write_bytes(content)
    told: list[int] = []

    entry = fingerprint(tmp_path / "x", "as it is called", progress=told.append)

    assert entry.name == "as it is called"
    assert (entry.size, entry.blake3) == (size, blake3.blake3(content).hexdigest())
    assert entry.mtime_ns == (tmp_path / "x").stat().st_mtime_ns
    assert sum(told) == size and all(0 < count <= 16 for count in told)


@pytest.mark.parametrize("change", ["longer", "shorter", "rewritten"])
def test_a_file_that_is_written_to_meanwhile_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    monkeypatch.setattr(file_tree, "_BLOCK", 16)
    path = tmp_path / "x"
    path.write_bytes(bytes(64))
    os.utime(path, (1, 1))
    changed = []

    def write(count: int) -> None:
        if not changed:
            changed.append(True)
            with path.open("r+b") as file:
                if change == "longer":
                    file.seek(0, os.SEEK_END)
                    file.write(b"x")
                elif change == "shorter":
                    file.truncate(20)
                else:
                    file.write(b"x")

    with pytest.raises(CheckpointError, match="was written to while it was being hashed"):
        fingerprint(path, "x", progress=write)


def test_what_is_no_file_is_neither_waited_for_nor_followed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    before = len(os.listdir("/proc/self/fd"))

    with pytest.raises(CheckpointError, match="pipe is no file"):
        fingerprint(tmp_path / "pipe", "x")
    with pytest.raises(OSError, match="symbolic links"):
        fingerprint(tmp_path / "link", "x")
    with pytest.raises(FileNotFoundError):
        fingerprint(tmp_path / "none", "x")
    assert len(os.listdir("/proc/self/fd")) == before
