"""An experiment that is replaced is there, whole, until it is given up: whatever is killed in between."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from trainables.store import fs
from tuner.experiment import replacing
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.reader import is_experiment, read_settings

CALLS = ("rename", "mkdir", "rmdir", "unlink", "fsync_dir")


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def make(root: Path, name: str) -> ExperimentPaths:
    paths = ExperimentPaths(root)
    for file in ("journal/000001-000001.jsonl", "blobs/ab", f"train_{name}/trial.json", f"train_{name}/ck/model"):
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(name)
    (root / "generations").mkdir(exist_ok=True)
    (root / "generations" / "000001.json").write_text("an owner")
    paths.experiment_json.write_text(json.dumps({"format": 1, "name": name}))
    return paths


def killed_after(calls: int, work: Callable[[], object]) -> bool:
    """Do it in a process that is killed after so many calls that change the disk; False if it came to its end."""
    child = os.fork()
    if child == 0:
        left = calls

        def counted(real: Callable[..., object]) -> Callable[..., object]:
            def call(*arguments: object, **more: object) -> object:
                nonlocal left
                if left == 0:
                    os.kill(os.getpid(), 9)
                left -= 1
                return real(*arguments, **more)

            return call

        for name in CALLS:
            setattr(fs, name, counted(getattr(fs, name)))
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def replace(paths: ExperimentPaths) -> None:
    replacing.move_aside(paths)
    make(paths.root, "new")


def test_t09_killed_anywhere_while_it_is_replaced_the_old_one_comes_back(tmp_path: Path) -> None:
    calls = 0
    while True:
        paths = make(tmp_path / str(calls) / "e", "old")
        before = contents(paths.root)
        over = not killed_after(calls, lambda paths=paths: replace(paths))
        assert replacing.interrupted(paths) or contents(paths.root) == before
        replacing.put_back(paths)
        assert contents(paths.root) == before
        assert not replacing.interrupted(paths)
        if over:
            break
        calls += 1
    assert calls > 5


def test_t09_killed_anywhere_while_it_is_put_back_the_next_owner_ends_that(tmp_path: Path) -> None:
    calls = 0
    while True:
        paths = make(tmp_path / str(calls) / "e", "old")
        before = contents(paths.root)
        replace(paths)
        over = not killed_after(calls, lambda paths=paths: replacing.put_back(paths))
        replacing.put_back(paths)
        assert contents(paths.root) == before
        assert not [name for name in os.listdir(paths.root) if name.startswith(".")]
        if over:
            break
        calls += 1
    assert calls > 5


def test_t09_killed_anywhere_while_it_is_given_up_it_is_one_or_the_other(tmp_path: Path) -> None:
    kept = set()
    for calls in range(20):
        paths = make(tmp_path / str(calls) / "e", "old")
        before = contents(paths.root)
        replace(paths)
        new = {name: data for name, data in contents(paths.root).items() if not name.startswith(".replaced/")}

        def give_up(paths: ExperimentPaths = paths) -> None:
            removed = replacing.give_up(paths)
            assert removed is not None
            fs.rmtree(removed)

        killed_after(calls, give_up)
        kept.add(replacing.put_back(paths))
        replacing.remove_given_up(paths)
        assert contents(paths.root) == (before if calls == 0 else new)
    assert kept == {True, False}


def test_readers_see_the_old_one_until_it_is_given_up(tmp_path: Path) -> None:
    paths = make(tmp_path / "e", "old")
    replacing.move_aside(paths)
    assert is_experiment(paths) and read_settings(paths)["name"] == "old"
    make(paths.root, "new")
    assert read_settings(paths)["name"] == "old"
    replacing.give_up(paths)
    assert read_settings(paths)["name"] == "new"


@pytest.mark.parametrize("mine", ["notes.txt", ".hidden", "folder"])
def test_what_was_begun_goes_and_what_a_person_put_there_stays(tmp_path: Path, mine: str) -> None:
    paths = make(tmp_path / "e", "new")
    (paths.root / mine).mkdir() if mine == "folder" else (paths.root / mine).touch()
    replacing.remove_begun(paths)
    assert sorted(os.listdir(paths.root)) == sorted(["generations", mine])
