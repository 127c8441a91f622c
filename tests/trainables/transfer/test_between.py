"""Checkpoints between two places: whole, never over another one, and from directories that were never reported."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainables.errors import CheckpointError, CheckpointNotFoundError, InvalidSettingError
from trainables.store import manifest, verify
from trainables.store.manifest import MANIFEST_NAME, Published
from trainables.transfer import between
from trainables.transfer.backend import Backend
from trainables.transfer.fsspec import MemoryBackend
from trainables.transfer.local import LocalBackend

Save = Callable[..., Published]


@pytest.fixture(params=["directory to directory", "directory to memory", "memory to directory", "memory to memory"])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Backend, Backend]:
    kinds = request.param.split(" to ")
    return tuple(  # type: ignore[return-value]
        LocalBackend(tmp_path / f"place{number}")
        if kind == "directory"
        else MemoryBackend(f"memory://between/{tmp_path.name}/{number}")
        for number, kind in enumerate(kinds)
    )


def whole(place: Backend, key: str, directory: Path) -> Path:
    """What lies there, brought here and verified."""
    shutil.rmtree(directory, ignore_errors=True)
    place.fetch(key, directory)
    verify.check(directory)
    return directory


def test_a_checkpoint_goes_from_place_to_place_as_it_is(
    places: tuple[Backend, Backend], save: Save, tmp_path: Path
) -> None:
    source, target = places
    saved = save(3, {"a": b"1" * 100_000, "d/b": b"2"}, directories=("empty",))
    assert between.push(saved.path, source, "old/it") == saved.manifest

    copied = between.copy(source, "old/it", target, "new/it")
    again = between.copy(source, "old/it", target, "new/it")

    assert copied == again == saved.manifest
    found = whole(target, "new/it", tmp_path / "back")
    assert (found / MANIFEST_NAME).read_bytes() == (saved.path / MANIFEST_NAME).read_bytes()
    assert (found / "d" / "b").read_bytes() == b"2"


def test_another_checkpoint_is_never_replaced(places: tuple[Backend, Backend], save: Save, tmp_path: Path) -> None:
    source, target = places
    between.push(save(1).path, source, "x")
    between.push(save(2).path, target, "x")
    before = whole(target, "x", tmp_path / "before") / MANIFEST_NAME

    for attempt in (lambda: between.copy(source, "x", target, "x"), lambda: between.push(save(3).path, target, "x")):
        with pytest.raises(CheckpointError, match="another checkpoint at .*/x, and none is ever replaced"):
            attempt()
    assert (whole(target, "x", tmp_path / "after") / MANIFEST_NAME).read_bytes() == before.read_bytes()


def test_one_that_lost_a_file_over_there_is_said_so(places: tuple[Backend, Backend], save: Save) -> None:
    saved = save(1, {"a": b"1", "b": b"2"})
    for place in places:
        between.push(saved.path, place, "x")
    places[1].delete(["x/b"])

    with pytest.raises(CheckpointError, match="/x is not complete: remove it first"):
        between.copy(places[0], "x", places[1], "x")


def test_what_is_not_there_is_not_found(places: tuple[Backend, Backend]) -> None:
    with pytest.raises(CheckpointNotFoundError):
        between.copy(places[0], "none", places[1], "x")
    assert not places[1].exists(f"x/{MANIFEST_NAME}")


# --- directories of files ----------------------------------------------------------------------------------


def test_files_that_were_never_reported_become_a_checkpoint_there_and_stay_as_they_are(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "d").mkdir(parents=True)
    (source / "d" / "a").write_bytes(b"x")
    (source / "link").symlink_to("d/a")
    os.utime(source / "d" / "a", (1e9, 1e9))
    (tmp_path / "place").mkdir()

    uri = between.push_to(source, f"{tmp_path.as_uri()}/place/runs/it/")

    assert uri.endswith("/place/runs/it")
    content = verify.check(tmp_path / "place" / "runs" / "it")
    assert sorted(entry.name for entry in content.files) == ["d/a", "link"]
    assert (content.created, content.name) == (1e9, "it")
    assert sorted(os.listdir(source)) == ["d", "link"] and (source / "link").is_symlink()
    assert between.push_to(source, uri) == uri, "the same again is no error"


def test_a_published_one_keeps_its_manifest(tmp_path: Path, save: Save) -> None:
    saved = save(7)
    (tmp_path / "place").mkdir()

    between.push_to(saved.path, f"{tmp_path.as_uri()}/place/copy")

    assert manifest.read(tmp_path / "place" / "copy").digest == saved.digest


@pytest.mark.parametrize("uri", ["s3://bucket", "nowhere://x/y", "s4://bucket/x"])
def test_an_address_that_names_no_checkpoint_is_refused(tmp_path: Path, uri: str) -> None:
    with pytest.raises(InvalidSettingError):
        between.push_to(tmp_path, uri)


# --- comparing ---------------------------------------------------------------------------------------------


def test_only_what_is_here_and_there_and_not_the_same_differs(places: tuple[Backend, Backend], tmp_path: Path) -> None:
    place, here = places[0], tmp_path / "here"
    here.mkdir()
    names = [f"f{number:02}" for number in range(40)]
    for name in names:
        (here / name).write_bytes(b"same")
    place.push(here, "p", names)
    (here / "f05").write_bytes(b"also")  # as long as before
    (here / "f33").write_bytes(b"longer than before")
    place.delete(["p/f07", "p/f33"])
    (here / "f09").unlink()

    assert between.differing(here, place, "p", names) == ["f05"]
    assert between.differing(here, place, "none", names) == []
    assert between.differing(here, place, "p", []) == []


PATHS = st.lists(st.sampled_from(["a", "ab", "b"]), min_size=1, max_size=4).map("/".join)


@given(st.sampled_from(["s3", "gs", "memory", "file"]), PATHS, st.sampled_from(["s3", "gs", "memory", "file"]), PATHS)
def test_what_two_places_of_a_bucket_have_in_common(scheme: str, path: str, another: str, other: str) -> None:
    one, two = f"{scheme}://{path}", f"{another}://{other}"
    found = between.common(one, two)

    assert found == between.common(two, one)
    if found is None:
        assert one != two
        assert scheme != another or scheme == "file" or path.split("/")[0] != other.split("/")[0]
    else:
        assert all(uri == found or uri.startswith(f"{found}/") for uri in (one, two))
