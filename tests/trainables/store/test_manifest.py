"""The manifest: what is written of a checkpoint, and which names no directory is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trainables.store.harness import rewrite
from trainables.errors import CheckpointCorruptError, CheckpointError
from trainables.store import manifest, verify


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
