from __future__ import annotations

import os
import pickle
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from trainables.checkpoint import Checkpoint
from trainables.errors import CheckpointCorruptError, CheckpointError, CheckpointNotFoundError
from trainables.store import delete, publish, staging, verify
from trainables.wire import CheckpointRef


@pytest.fixture
def files(tmp_path: Path) -> Path:
    directory = tmp_path / "mine"
    (directory / "sub").mkdir(parents=True)
    (directory / "empty").mkdir()
    (directory / "model.bin").write_bytes(b"m" * 100)
    (directory / "sub" / "ünïcode.txt").write_text("x")
    return directory


def tree_of(directory: str | Path) -> dict[str, bytes | None]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() if path.is_file() else None
        for path in Path(directory).rglob("*")
    }


def published(checkpoint: Checkpoint, trial_dir: Path) -> Checkpoint:
    if checkpoint.in_memory:
        staged = staging.new_directory(trial_dir, "1")
        checkpoint._materialize(staged)
    else:
        staged = staging.lend(Path(checkpoint.path), trial_dir, "1")
    ref = CheckpointRef("t", "checkpoint_000004", 1, 1, 1, 4)
    prepared = publish.prepare(staged, ref=ref, metrics=msgspec.Raw(b'{"loss":0.5}'), created=1.0)
    return Checkpoint(publish.commit(prepared, trial_dir / ref.name).path)


def test_as_directory_of_a_directory_copies_nothing(files: Path) -> None:
    with Checkpoint.from_directory(files).as_directory() as path:
        assert path == str(files)
    assert files.is_dir()


def test_to_directory_copies_everything(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    checkpoint = Checkpoint.from_directory(str(files))
    assert checkpoint.to_directory(tmp_path / "new" / "copy") == str(tmp_path / "new" / "copy")
    assert tree_of(tmp_path / "new" / "copy") == tree_of(files)
    (tmp_path / "new" / "copy" / "model.bin").write_bytes(b"other")
    assert checkpoint.to_directory(tmp_path / "new" / "copy") == str(tmp_path / "new" / "copy")
    assert tree_of(tmp_path / "new" / "copy") == tree_of(files), "merging replaces"
    assert tree_of(checkpoint.to_directory()) == tree_of(files)


@pytest.mark.parametrize("way", ["itself", "a link to it", "a uri", "a uri of a link"])
def test_a_copy_onto_itself_leaves_it_as_it_is(way: str, files: Path, tmp_path: Path) -> None:
    stored = published(Checkpoint(files), tmp_path / "trial")
    (tmp_path / "link").symlink_to("trial")
    here = Path(stored.path)
    target = tmp_path / "link" / here.name if "link" in way else here
    before = tree_of(here)
    if "uri" in way:
        assert stored.to_uri(target.as_uri()) == target.as_uri()
    else:
        assert stored.to_directory(target) == str(target)
    assert tree_of(here) == before and verify.problems(here) == []


def test_a_copy_that_would_replace_its_own_source_is_refused(tmp_path: Path) -> None:
    """Inside the checkpoint, above it, and through links on either side: nothing is touched."""
    mine = tmp_path / "up" / "mine"
    (mine / "mine").mkdir(parents=True)
    for place in (mine, mine / "mine"):
        (place / "model.bin").write_bytes(str(place).encode())
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine").symlink_to(mine)
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "model.bin").symlink_to(mine / "model.bin")
    before = tree_of(tmp_path)
    for source, target in (
        (mine, mine / "mine"),
        (mine, mine / "not yet" / "deep"),
        (mine, tmp_path / "other" / "mine" / "new"),
        (mine, mine.parent),
        (mine, tmp_path / "other"),
        (tmp_path / "linked", mine),
    ):
        with pytest.raises(CheckpointError, match="another directory"):
            Checkpoint(source).to_directory(target)
        assert tree_of(tmp_path) == before
    assert Checkpoint(tmp_path / "linked").to_directory(mine.parent) == str(mine.parent), "nothing of its own is there"
    assert (mine.parent / "model.bin").read_bytes() == (mine / "model.bin").read_bytes()


def test_no_directory_is_made_for_a_copy_of_what_is_not_there(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    for target in (nowhere, tmp_path / "new"):
        with pytest.raises(CheckpointNotFoundError, match="nowhere"):
            Checkpoint(nowhere).to_directory(target)
    assert list(tmp_path.iterdir()) == []


def test_a_copy_of_a_published_checkpoint_is_not_published(files: Path, tmp_path: Path) -> None:
    copy = published(Checkpoint(files), tmp_path / "trial").to_directory(tmp_path / "copy")
    assert tree_of(copy) == tree_of(files)
    Checkpoint(copy).set_metadata({"mine": 1})


def test_a_dict_comes_back_before_and_after_publishing(tmp_path: Path) -> None:
    data = {"epoch": 3, "weights": [1.0, 2.0], 5: {"nested": (1, 2)}}
    checkpoint = Checkpoint.from_dict(data)
    assert checkpoint.to_dict() == data
    stored = published(checkpoint, tmp_path)
    assert stored.to_dict() == data
    assert sorted(os.listdir(stored.path)) == [".manifest.json", "dict_checkpoint.pkl"]
    with checkpoint.as_directory() as path:
        assert os.listdir(path) == ["dict_checkpoint.pkl"]
        assert Checkpoint(path).to_dict() == data
    assert not os.path.exists(path), "the temporary directory stayed"


class Loud:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (pytest.fail, ("unpickled",))


def test_r8_a_dict_is_unpickled_by_to_dict_only(tmp_path: Path) -> None:
    stored = published(Checkpoint.from_dict({"a": Loud()}), tmp_path)
    verify.check(Path(stored.path))
    copy = Checkpoint.from_bytes(stored.to_bytes())
    for checkpoint in (stored, copy):
        with checkpoint.as_directory():
            checkpoint.to_bytes()
        checkpoint.get_metadata(), repr(checkpoint), checkpoint.metrics
        with pytest.raises(pytest.fail.Exception):
            checkpoint.to_dict()


def test_what_a_dict_checkpoint_cannot_hold_is_named_by_its_key(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="'guard'"):
        Checkpoint.from_dict({"fine": 1, "guard": threading.Lock()}).to_directory(tmp_path / "d")
    with pytest.raises(TypeError, match="list"):
        Checkpoint.from_dict([1])  # type: ignore[arg-type]


def test_bytes_round_trip_for_directories_and_dicts(files: Path, tmp_path: Path) -> None:
    copy = Checkpoint.from_bytes(published(Checkpoint(files), tmp_path / "trial").to_bytes())
    assert tree_of(copy.to_directory(tmp_path / "back")) == tree_of(files)
    assert Checkpoint.from_bytes(Checkpoint.from_dict({"a": 1}).to_bytes()).to_dict() == {"a": 1}
    assert Checkpoint.from_bytes(pickle.dumps({"a": 1})).to_dict() == {"a": 1}, "as Ray's to_bytes() made them"
    assert Checkpoint.from_bytes(pickle.dumps([1])).to_dict() == {"bytes_data": [1]}
    for data in (b"", b"no checkpoint"):
        with pytest.raises(CheckpointError, match="to_bytes"):
            Checkpoint.from_bytes(data)


def test_bytes_that_were_cut_short_are_refused(files: Path) -> None:
    data = Checkpoint(files).to_bytes()
    content = len(data.rstrip(b"\0"))
    for length in (600, 1000, 5 * 512, 6 * 512, content // 512 * 512):
        with pytest.raises(CheckpointError, match=f"{length} bytes .* cut short"):
            Checkpoint.from_bytes(data[:length])
        with pytest.raises(CheckpointError, match=f"{length} bytes .* cut short"):
            Checkpoint.from_dict({"fs_checkpoint": data[:length]})
    middle = data[:1024] + b"damaged" + data[1031:]
    with pytest.raises(CheckpointError, match="bytes"):
        Checkpoint.from_bytes(middle)

    pickled = pickle.dumps({"weights": list(range(1000))})
    for length in (2, 20, len(pickled) - 1):
        with pytest.raises(CheckpointError, match="cannot be unpickled: .*cut short or damaged"):
            Checkpoint.from_bytes(pickled[:length]).to_dict()


def test_a_directory_as_a_dict_and_back(files: Path, tmp_path: Path) -> None:
    data = Checkpoint(files).to_dict()
    assert list(data) == ["fs_checkpoint"]
    assert tree_of(Checkpoint.from_dict(data).to_directory(tmp_path / "back")) == tree_of(files)


def test_r8_bytes_that_lead_out_of_the_directory_are_refused(tmp_path: Path) -> None:
    import io
    import tarfile

    for name, kind in (("../out", tarfile.REGTYPE), ("/out", tarfile.REGTYPE), ("link", tarfile.SYMTYPE)):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = kind, "/etc"
            tar.addfile(entry)
        with pytest.raises(CheckpointError, match="inside"):
            Checkpoint.from_bytes(buffer.getvalue()).to_directory(tmp_path / "target")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("form", [str, Path.as_uri])
def test_local_uris_are_paths(form: Callable[[Path], str], files: Path, tmp_path: Path) -> None:
    checkpoint = Checkpoint.from_uri(form(files))
    assert checkpoint.path == str(files) and checkpoint.uri == files.as_uri()
    assert Checkpoint.from_uri(checkpoint.uri or "") == checkpoint
    target = form(tmp_path / "copy")
    assert checkpoint.to_uri(target) == (tmp_path / "copy").as_uri()
    assert tree_of(tmp_path / "copy") == tree_of(files)


def test_relative_and_home_paths_are_made_absolute(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files.parent)
    monkeypatch.setenv("HOME", str(files.parent))
    checkpoint = Checkpoint("mine")
    monkeypatch.chdir("/")
    assert checkpoint == Checkpoint("~/mine") == Checkpoint(files)


def test_metadata_is_carried_into_the_published_checkpoint_and_fixed_there(files: Path, tmp_path: Path) -> None:
    for number, checkpoint in enumerate([Checkpoint(files), Checkpoint.from_dict({"a": 1})]):
        assert checkpoint.get_metadata() == {}
        checkpoint.set_metadata({"lr": 0.1, "gone": None})
        checkpoint.set_metadata({"lr": 0.1})
        checkpoint.update_metadata({"step": 3})
        stored = published(checkpoint, tmp_path / str(number))
        assert stored.get_metadata() == checkpoint.get_metadata() == {"lr": 0.1, "step": 3}
        with pytest.raises(CheckpointError, match="published and never changes"):
            stored.update_metadata({"step": 4})
        assert verify.problems(Path(stored.path)) == []
        with pytest.raises(TypeError):
            checkpoint.set_metadata({"bad": object()})
        assert checkpoint.get_metadata() == {"lr": 0.1, "step": 3}


def test_metadata_needs_a_directory(tmp_path: Path) -> None:
    with pytest.raises(CheckpointNotFoundError, match="nowhere"):
        Checkpoint(tmp_path / "nowhere").set_metadata({})


def test_facts_of_a_published_checkpoint(files: Path, tmp_path: Path) -> None:
    stored = published(Checkpoint(files), tmp_path / "trial")
    assert stored.iteration == 4 and stored.metrics == {"loss": 0.5}
    assert stored.manifest is not None and stored.manifest.trial_id == "t"
    for other in (Checkpoint(files), Checkpoint.from_dict({})):
        assert other.manifest is other.iteration is other.metrics is None


def test_equality_is_by_path_and_pickling_keeps_it(files: Path, tmp_path: Path) -> None:
    checkpoint = Checkpoint(files)
    assert checkpoint == Checkpoint.from_directory(f"{files}/") != Checkpoint(tmp_path)
    assert len({checkpoint, Checkpoint(files)}) == 1
    copy = pickle.loads(pickle.dumps(checkpoint))
    assert copy == checkpoint and copy.path == str(files)
    held = Checkpoint.from_dict({"a": 1})
    assert held == held != Checkpoint.from_dict({"a": 1})
    assert pickle.loads(pickle.dumps(held)).to_dict() == {"a": 1}
    assert repr(str(files)) in repr(checkpoint)
    assert "a" in repr(held) and "bytes" in repr(Checkpoint.from_bytes(b"\x80"))


def test_what_is_in_memory_has_no_path_yet() -> None:
    held = Checkpoint.from_dict({"a": 1})
    assert held.uri is None and held.in_memory and not held.handed_over
    with pytest.raises(CheckpointError, match="in memory"):
        _ = held.path


def test_it_stands_for_its_directory_where_a_path_is_wanted(files: Path) -> None:
    name = sorted(os.listdir(files))[0]
    assert os.path.join(Checkpoint(files), name) == str(files / name)
    with pytest.raises(CheckpointError, match=r"Checkpoint\(keys=\['a'\]\) has no directory before it is reported"):
        os.fspath(Checkpoint.from_dict({"a": 1}))


def test_subclasses_stay_what_they_are(files: Path) -> None:
    class Mine(Checkpoint):
        pass

    for made in (Mine.from_directory(files, move=True), Mine.from_dict({}), Mine.from_bytes(b"\x80")):
        assert type(made) is Mine
    assert Mine.from_directory(files, move=True).handed_over


def test_a_missing_or_broken_checkpoint_is_named_when_it_is_used(files: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointNotFoundError, match="nowhere"), Checkpoint(tmp_path / "nowhere").as_directory():
        pass
    stored = published(Checkpoint(files), tmp_path / "trial")
    with open(Path(stored.path) / "model.bin", "r+b") as file:
        file.write(b"x")
    for use in (stored.to_directory, stored.to_bytes, stored.to_dict):
        with pytest.raises(CheckpointCorruptError, match=r"model\.bin"):
            use()
    assert delete.pins.paths() == set()


def test_r3_a_checkpoint_is_not_deleted_while_it_is_open(files: Path, tmp_path: Path) -> None:
    stored = published(Checkpoint(files), tmp_path / "trial")
    with stored.as_directory() as path:
        assert delete.pins.paths() == {Path(path)}
        assert delete.delete(Path(path)) is False
        assert (Path(path) / "model.bin").read_bytes() == b"m" * 100
    assert delete.pins.paths() == set()
    assert delete.delete(Path(stored.path)) is True
