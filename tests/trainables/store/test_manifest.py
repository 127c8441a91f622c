"""The manifest: what is written of a checkpoint, and which names no directory is given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainables.store.harness import rewrite
from trainables.errors import CheckpointCorruptError, CheckpointError, CheckpointNotFoundError
from trainables.store import manifest, verify
from trainables.store.manifest import MANIFEST_NAME, FileEntry, Manifest, SealedCheckpoint


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "a/../../x", "a//b", "", ".", "a/.", "nul\0"])
def test_a_manifest_that_leads_out_of_its_directory_is_refused(save, name: str) -> None:
    path = save(1).path
    entry = {"name": name, "size": 1, "mtime_ns": 1, "blake3": "00"}
    rewrite(path, files=[entry])
    with pytest.raises(CheckpointCorruptError, match="not inside"):
        manifest.read(path)
    rewrite(path, files=[], directories=[name])
    with pytest.raises(CheckpointCorruptError, match="not inside"):
        manifest.read(path)


@pytest.mark.parametrize("name", ["../checkpoint_000001", "a/b", "", ".."])
def test_a_manifest_with_a_path_for_a_name_is_refused(save, name: str) -> None:
    path = save(1).path
    rewrite(path, name=name)
    with pytest.raises(CheckpointCorruptError, match="plain name"):
        manifest.read(path)


def test_a_newer_format_is_refused_and_not_called_broken(save, trial_dir: Path) -> None:
    path = save(1).path
    rewrite(path, format=2, files="another shape")
    for look in (manifest.read, verify.check, verify.quick, lambda path: verify.scan(trial_dir)):
        with pytest.raises(CheckpointError, match=r"format 2.*upgrade") as caught:
            look(path)
        assert not isinstance(caught.value, CheckpointCorruptError)


def test_fields_of_a_later_version_of_the_same_format_are_passed_over(save) -> None:
    published = save(1)
    rewrite(published.path, colour="blue")
    assert manifest.read(published.path).ref == published.ref


PARTS = st.sampled_from(["a", "b", "ab", ".hidden", "naïve"])
NAMES = st.lists(st.lists(PARTS, min_size=1, max_size=3).map("/".join), max_size=6)


def made(files: list[str], directories: list[str], **more: Any) -> Manifest:
    entries = [FileEntry(name, size=number, mtime_ns=number, blake3="00") for number, name in enumerate(files)]
    fields = {"name": "checkpoint_000001", "trial_id": "t", "created": 1.0} | more
    return Manifest(**fields, generation=1, attempt=1, index=1, iteration=1, files=entries, directories=directories)


def below(name: str) -> set[str]:
    """The directories that a name lies in."""
    parts = name.split("/")
    return {"/".join(parts[:count]) for count in range(1, len(parts))}


@given(NAMES, NAMES)
def test_a_manifest_is_read_exactly_where_a_directory_can_hold_its_names(
    files: list[str], directories: list[str]
) -> None:
    needed = set(directories).union(*(below(name) for name in (*files, *directories)))
    content = made(files, directories)

    if len(set(files)) == len(files) and not needed & set(files):
        assert manifest.decode(msgspec.json.encode(content), "x") == content
    else:
        with pytest.raises(CheckpointCorruptError, match="the manifest of x names '.*(as file and directory|twice)"):
            manifest.decode(msgspec.json.encode(content), "x")


@given(st.binary(max_size=40) | st.text(max_size=20).map(str.encode))
def test_bytes_that_are_no_manifest_are_called_that(data: bytes) -> None:
    with pytest.raises(CheckpointCorruptError, match="the manifest of x cannot be read"):
        manifest.decode(data, "x")


@given(st.data())
def test_one_that_was_cut_short_is_never_read(data: st.DataObject) -> None:
    whole = msgspec.json.encode(made(["a", "b/c"], ["d"]))

    with pytest.raises(CheckpointCorruptError):
        manifest.decode(whole[: data.draw(st.integers(0, len(whole) - 1))], "x")


def test_deeply_nested_json_is_an_error_and_no_crash() -> None:
    data = b'{"format":1,"extra":' + b"[" * 100_000 + b"]" * 100_000 + b"}"

    with pytest.raises(CheckpointCorruptError):
        manifest.decode(data, "x")


@pytest.mark.parametrize(
    "name", ["x" * 256, "ü" * 128, "/".join(["a" * 200] * 21)], ids=["a part", "its bytes", "the whole"]
)
def test_a_name_that_no_file_can_have_is_refused(name: str) -> None:
    for content in (made([name], []), made([], [name])):
        with pytest.raises(CheckpointCorruptError, match="too long for a file"):
            manifest.decode(msgspec.json.encode(content), "x")


@pytest.mark.parametrize("change", [{"size": -1}, {"size": 1 << 63}, {"mtime_ns": -(1 << 63)}, {"size": 0.5}])
def test_a_size_or_time_that_no_file_has_is_refused(change: dict[str, Any]) -> None:
    data = orjson.loads(msgspec.json.encode(made(["a"], [])))
    data["files"][0] |= change

    with pytest.raises(CheckpointCorruptError, match="size or a time that no file has|cannot be read"):
        manifest.decode(json.dumps(data).encode(), "x")


def test_what_it_says_of_a_checkpoint_is_its_reference_size_and_digest(save) -> None:
    published = save(3, {"a": b"123", "b/c": b"4567"}, generation=2, attempt=5)

    found = manifest.read(published.path)

    assert found == published
    assert (found.manifest.bytes, found.ref.index, found.ref.generation, found.ref.attempt) == (7, 3, 2, 5)
    assert found.ref == SealedCheckpoint(found.manifest, found.digest).ref
    assert found.digest == manifest.digest((published.path / MANIFEST_NAME).read_bytes())


def test_a_directory_without_one_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    for path in (tmp_path, tmp_path / "none", tmp_path / "file"):
        with pytest.raises(CheckpointNotFoundError, match="there is no complete checkpoint"):
            manifest.read(path)
        assert not manifest.is_published(path)


def test_files_of_one_that_is_published_are_not_looked_at(save) -> None:
    path = save(1, {"a": b"1"}).path
    (path / "a").unlink()

    assert manifest.is_published(path)
    (path / MANIFEST_NAME).write_bytes(b"{}")
    assert not manifest.is_published(path)
