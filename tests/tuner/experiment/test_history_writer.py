"""The writer of a history: what is packed, what goes when there is no room, and that nobody waits for it."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tuner.experiment.history_harness import Life, numbers, read, whole
from trainables.store import fs
from tuner.error import OwnedElsewhereError
from tuner.experiment import history_format as packed
from tuner.experiment.history_writer import HISTORY_BYTES
from tuner.experiment.paths import ExperimentPaths


def test_the_oldest_goes_first_and_what_is_left_begins_with_a_snapshot(paths: ExperimentPaths) -> None:
    life = Life(paths, history_bytes=40_000)
    for _ in range(12):
        life.write(10, width=500)
        life.compact()
        size = sum(path.stat().st_size for path in paths.history.iterdir())
        assert size <= 40_000
    assert size > 20_000
    history = read(paths)
    assert not history.is_whole and history.notes == []
    first = numbers(history)[0]
    assert history.base == b"%d" % (first - 1), "what the facts before that add up to"
    assert numbers(history) == list(range(first, 122))
    assert history.since == 1000.0 + first


def test_none_is_kept_where_that_is_asked_for(paths: ExperimentPaths) -> None:
    life = Life(paths, history_bytes=0)
    life.write(3)
    life.compact()
    assert not paths.history.exists() and not paths.segment(1, 1).exists()
    assert numbers(read(paths)) == [] and read(paths).base == b"4"


def test_one_that_is_larger_than_all_may_be_is_not_kept(paths: ExperimentPaths) -> None:
    life = Life(paths, history_bytes=1000)
    life.write(10, width=500)
    life.compact()
    assert os.listdir(paths.history) == [] if paths.history.exists() else True
    assert not paths.segment(1, 1).exists()


def test_a_driver_killed_after_the_pack_packs_nothing_twice(paths: ExperimentPaths) -> None:
    life = Life(paths)
    life.write(5)
    kept = {name: (paths.journal / name).read_bytes() for name in [paths.segment(1, 1).name]}
    life.compact()
    life.write(1)
    life.die()
    for name, data in kept.items():
        (paths.journal / name).write_bytes(data)  # it was killed before it could remove them
    whole(paths)
    heir = Life(paths, 2)
    heir.write(3)
    heir.compact()
    history = whole(paths)
    names = [entry.name for pack in sorted(paths.history.iterdir()) for entry in packed.read_index(pack)[0].files]
    assert len(names) == len(set(names)), names
    assert not paths.segment(1, 1).exists()
    assert history.contents.last_seq == 11


def test_a_driver_killed_in_the_middle_of_a_pack_loses_nothing(
    paths: ExperimentPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = Life(paths)
    life.write(5)

    class Killed(BaseException):
        """Nothing runs any more."""

    def kill(source: Any, target: Any) -> None:
        if Path(target).parent == paths.history:
            raise Killed
        os.rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(fs, "rename", kill)
        with pytest.raises(Killed):
            life.compact()
    assert [name[:1] for name in os.listdir(paths.history)] == ["."], "half a pack, under no pack's name"
    life.die()
    whole(paths)
    heir = Life(paths, 2)
    heir.write(1)
    heir.compact()
    assert whole(paths).contents.last_seq == 8


def test_who_was_taken_over_removes_nothing(paths: ExperimentPaths) -> None:
    owned = True

    def guard() -> None:
        if not owned:
            raise OwnedElsewhereError("taken over")

    life = Life(paths, guard=guard)
    life.write(3)
    life.compact(grace_s=60)
    owned = False
    life.journal.archive()
    assert not paths.history.exists() and paths.segment(1, 1).exists()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk of its own."""
    mount = tmp_path / "disk"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8M", "tmpfs", str(mount)], check=True)
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=True)


@pytest.mark.root
def test_t17_on_a_full_disk_the_history_is_given_up_with_one_line(disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    paths = ExperimentPaths(disk / "exp")
    life = Life(paths)
    life.write(200, width=5000)
    life.compact(grace_s=60)
    with open(disk / "ballast", "ab", buffering=0) as ballast, pytest.raises(OSError, match="No space"):
        while ballast.write(bytes(4096)):
            pass
    segments = [path for path in paths.journal.iterdir() if path.name == paths.segment(1, 1).name]
    assert segments
    life.journal.archive()
    assert [record.getMessage() for record in caplog.records] == [
        f"{paths.journal}: what the facts 1 to 201 said of checkpoints that are gone is given up: "
        "No space left on device"
    ]
    assert os.listdir(paths.history) == [], "half a pack takes no room either"
    assert not paths.segment(1, 1).exists(), "what it would have packed makes room"
    (disk / "ballast").unlink()
    life.write(3)
    life.compact()
    life.write(1)
    assert read(paths).base == b"201" and numbers(read(paths)) == [202, 203, 204, 205]


def test_another_error_leaves_everything_for_the_next_compaction(
    paths: ExperimentPaths, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    life = Life(paths)
    life.write(3)

    def refuse(path: Any, *_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(fs, "make_dirs", refuse)
        life.compact()
    assert "could not be packed and stays as it is" in caplog.text
    assert paths.segment(1, 1).exists()
    life.write(1)
    life.compact()
    assert whole(paths).contents.last_seq == 5 and not paths.segment(1, 1).exists()


def test_packing_waits_for_nobody_and_nobody_for_it(paths: ExperimentPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    life = Life(paths, sync="thread")
    life.write(3)
    held, reached = threading.Event(), threading.Event()
    real = fs.replace_file

    def slow(path: Any, data: bytes) -> None:
        if Path(path).parent == paths.history:
            reached.set()
            assert held.wait(30)
        real(path, data)

    monkeypatch.setattr(fs, "replace_file", slow)
    life.compact()
    assert reached.wait(30)
    life.write(3)
    life.compact()  # the disk hangs: facts and snapshots go on
    assert len(numbers(whole(paths))) == 7
    held.set()
    life.journal.close()
    whole(paths)


def test_how_much_is_kept_by_default() -> None:
    assert HISTORY_BYTES == 256_000_000
