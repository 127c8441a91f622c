"""What programs for Ray 1.13 to 2.6 do with checkpoints."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest

from trainables.checkpoint import Checkpoint
from trainables.errors import CheckpointError
from trainables.torch import TorchCheckpoint


@pytest.fixture
def files(tmp_path: Path) -> Path:
    directory = tmp_path / "files"
    directory.mkdir()
    (directory / "model").write_bytes(b"weights")
    return directory


def test_where_a_checkpoint_is_has_the_names_of_all_versions(files: Path) -> None:
    here, there, held = Checkpoint(files), Checkpoint.from_uri("s3://bucket/c"), Checkpoint.from_dict({"a": 1})

    assert here.get_internal_representation() == ("local_path", str(files))
    assert there.get_internal_representation() == ("uri", "s3://bucket/c")
    assert held.get_internal_representation() == ("data_dict", {"a": 1})
    assert (here.local_path, there.local_path, held.local_path) == (str(files), None, None)
    assert (here.cloud_path, there.cloud_path, held.cloud_path) == (None, "s3://bucket/c", None)
    assert (here.value, there.dir_or_data, held.dir_or_data) == (str(files), "s3://bucket/c", {"a": 1})
    assert here.to_air_checkpoint() is here


def test_a_checkpoint_becomes_one_of_another_class() -> None:
    made = TorchCheckpoint.from_checkpoint(Checkpoint.from_dict({"model": {"w": 1}}))

    assert type(made) is TorchCheckpoint and made.to_dict() == {"model": {"w": 1}}


def test_object_references_are_refused_by_name() -> None:
    with pytest.raises(CheckpointError, match=r"Checkpoint\.from_object_ref\(\) is not here.*from_dict"):
        Checkpoint.from_object_ref(object())
    with pytest.raises(CheckpointError, match=r"to_object_ref\(\) is not here.*a URI that every process"):
        Checkpoint.from_dict({}).to_object_ref()


def test_a_preprocessor_is_kept_in_a_dict_and_in_a_directory(files: Path, tmp_path: Path) -> None:
    scale = {"mean": 3}
    for made in (Checkpoint(files), Checkpoint.from_dict({"a": 1})):
        assert made.get_preprocessor() is None
        made.set_preprocessor(scale)
        made.set_preprocessor(scale)
        assert made.get_preprocessor() == scale
        assert Checkpoint(made.to_directory(tmp_path / str(made.in_memory))).get_preprocessor() == scale
    with pytest.raises(CheckpointError, match="before it is reported"):
        Checkpoint.from_uri("s3://bucket/c").set_preprocessor(scale)


def test_what_is_gone_says_what_to_use(files: Path) -> None:
    made = Checkpoint(files)
    with pytest.raises(AttributeError, match=r"'Checkpoint' object has no attribute 'download'; instead: to_directory"):
        made.download()  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="no attribute 'nothing_like_it'$"):
        _ = made.nothing_like_it  # type: ignore[attr-defined]
    assert not hasattr(made, "download")
    assert copy.deepcopy(made) == pickle.loads(pickle.dumps(made)) == made
