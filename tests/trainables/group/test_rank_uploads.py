"""What ranks save goes to the replica from them: a real group, and a directory as the place."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path

import cloudpickle
import psutil
import pytest

from tests.trainables.group.harness import files, leftovers, run_group, saved, trial_dir
from trainables import session
from trainables.group import rank_uploads
from trainables.job import Replicated
from trainables.store import fs, manifest
from trainables.testing import MemoryLink
from trainables.wire import Finished, SaveUploaded


def replicated(root: Path, text: str = "this run") -> Replicated:
    place = root / "copies"
    (place / "e").mkdir(parents=True)
    (place / "e" / "owner").write_text("of this run")
    return Replicated(cloudpickle.dumps({"place": str(place)}), "e/t", ("e/owner", text), "e/next", timeout_s=100)


def test_each_rank_brings_to_the_replica_what_of_the_checkpoint_is_its_own(tmp_path: Path) -> None:
    for case, keep in (("merged", False), ("kept", True)):
        root = tmp_path / case

        def save(rank: int, reserved: bool = not keep) -> None:
            with session.checkpoint_dir() as directory:
                Path(directory, "deep").mkdir()
                for name in ("all", "deep/all", f"deep/of_{rank}", *([".manifest.json"] if reserved else [])):
                    Path(directory, name).write_text(str(rank))
            session.report({})

        link = run_group(save, root, replicated=replicated(root), keep_all_ranks=keep)

        assert link.end == Finished()
        there = root / "copies" / "e" / "t" / "checkpoint_000001"
        (uploaded,) = link.of(SaveUploaded)
        assert uploaded.ref.name == there.name and not uploaded.problem
        assert not leftovers(root)
        if keep:
            assert link.published
            published = manifest.read(trial_dir(root) / there.name).manifest
            assert uploaded.sent == {entry.name: entry.blake3 for entry in published.files}
            assert sorted(path.name for path in there.iterdir()) == ["rank_0", "rank_1"]
        else:  # that name is reserved, and a checkpoint with it is not published: nor may it seem to be complete there
            assert not link.published
            assert files(there) == {"all": "0", "deep/all": "0", "deep/of_0": "0", "deep/of_1": "1"}
            assert not (there / ".manifest.json").exists()


def test_where_the_place_is_another_one_or_has_another_owner_nothing_is_brought(tmp_path: Path) -> None:
    def save(rank: int) -> None:
        session.report({}, checkpoint=saved(**{f"of_{rank}": "x"}))

    for case in ("another", "taken"):
        root = tmp_path / case
        place = replicated(root, "that run" if case == "another" else "this run")
        if case == "taken":
            (root / "copies" / "e" / "next").touch()
        link = run_group(save, root, replicated=place)

        assert link.end == Finished() and link.published
        (uploaded,) = link.of(SaveUploaded)
        assert uploaded.sent == {}
        wanted = "is another place here" if case == "another" else "was written by another driver"
        assert uploaded.problem.count(wanted) == 2
        assert sorted(path.name for path in (root / "copies" / "e").iterdir()) == (
            ["owner"] if case == "another" else ["next", "owner"]
        )


def test_what_a_rank_could_not_keep_until_it_is_sent_is_told_of_where_the_checkpoint_is_saved_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = fs.mkdir

    def full(path: fs.PathLike, mode: int = 0o777) -> None:
        if "upload-rank1" in str(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        make(path, mode)

    monkeypatch.setattr(fs, "mkdir", full)
    link = run_group(
        lambda rank: session.report({}, checkpoint=saved(**{f"of_{rank}": "x"})),
        tmp_path,
        replicated=replicated(tmp_path),
    )

    assert link.end == Finished() and link.published
    (uploaded,) = link.of(SaveUploaded)
    assert list(uploaded.sent) == ["of_0"]
    assert uploaded.problem.startswith("rank 1 ") and os.strerror(errno.ENOSPC) in uploaded.problem


def hangs(source: str, target: str) -> None:
    """Copies; a checkpoint for ever."""
    if "checkpoint_" in target:
        Path(target).parents[2].joinpath(f"begun-{os.getpid()}").touch()
        threading.Event().wait()
    shutil.copytree(source, target, dirs_exist_ok=True)


@pytest.mark.parametrize("how", ["given up", "cannot begin", "told to leave"])
def test_a_rank_that_has_returned_does_not_wait_for_a_place_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    place = replace(
        replicated(tmp_path), arguments=cloudpickle.dumps({"place": str(tmp_path / "copies"), "syncer": hangs})
    )
    monkeypatch.setattr(rank_uploads, "_PARTING_S", 1000.0 if how == "told to leave" else 0.5)
    monkeypatch.setattr(rank_uploads, "_END_S", 1000.0 if how == "given up" else 0.5)
    if how == "cannot begin":
        monkeypatch.setattr(rank_uploads, "ProcessClient", lambda *_, **__: threading.Event().wait())
    link = MemoryLink()

    def leave() -> None:
        while not list((tmp_path / "copies").glob("begun-*")):
            time.sleep(0.02)
        link.halt()

    watcher = threading.Thread(target=leave)
    if how == "told to leave":
        watcher.start()
    run_group(
        lambda rank: session.report({}, checkpoint=saved(**{f"of_{rank}": "x"})),
        tmp_path,
        link=link,
        replicated=place,
    )

    assert link.end == Finished() and link.published
    assert [message.sent for message in link.of(SaveUploaded)] == ([] if how == "told to leave" else [{}])
    assert not list(trial_dir(tmp_path).glob("*-rank*"))
    for begun in (tmp_path / "copies").glob("begun-*"):
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(int(begun.name.partition("-")[2])).wait(60)
    if how == "told to leave":
        watcher.join()
