"""What a command saves: when it is complete, of which step, and each once."""

from __future__ import annotations

import glob
import os
import time
from pathlib import Path

import pytest

from trainables.command.found import Complete, FoundCheckpoints, IncompleteError, translated


def nothing(path: Path) -> None:
    raise AssertionError(f"{path} was set aside")


def steps(finder: FoundCheckpoints, *, ended: bool = False) -> list[object]:
    found = finder.look(ended=ended)
    for each in found:
        finder.taken(each)
    return [each.step for each in found]


def escape(path: Path) -> str:
    return glob.escape(str(path))


def saved(directory: Path, *files: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for name in ("weights", *files):
        (directory / name).write_bytes(b"x" * 100)
    return directory


@pytest.mark.parametrize(
    ("pattern", "name", "step"),
    [
        ("/t/ckpt-(?P<step>[0-9]+)", "/t/ckpt-12", "12"),
        ("/t/**/e(?P<step>[0-9.]+)-*.pt", "/t/a/b/e1.5-x.pt", "1.5"),
        ("/t/[[]x]/step_(?P<step>\\d+)", "/t/[x]/step_3", "3"),
        ("/t/[!.]*-(?P<step>[0-9]+)?", "/t/a-7z", "7"),
    ],
)
def test_a_pattern_finds_the_step(pattern: str, name: str, step: str) -> None:
    match = translated(pattern)[1].fullmatch(name)
    assert match is not None and match["step"] == step


def test_a_rename_completes_at_once_and_each_is_found_once(tmp_path: Path) -> None:
    finder = FoundCheckpoints(f"{escape(tmp_path)}/ckpt-(?P<step>[0-9]+)", Complete(), None, nothing)
    saved(tmp_path / ".tmp").rename(tmp_path / "ckpt-2")
    saved(tmp_path / ".tmp").rename(tmp_path / "ckpt-10")
    saved(tmp_path / "ckpt-last")
    assert steps(finder) == [2, 10] and steps(finder) == []


def test_a_marker_completes(tmp_path: Path) -> None:
    finder = FoundCheckpoints(f"{escape(tmp_path)}/ckpt-(?P<step>[0-9]+)", Complete(marker="DONE"), None, nothing)
    path = saved(tmp_path / "ckpt-1")
    assert steps(finder) == []
    finder.raise_if_never(ended=False)
    (path / "DONE").touch()
    assert steps(finder) == [1]


def test_one_that_never_completes_is_named_when_the_next_begins(tmp_path: Path) -> None:
    finder = FoundCheckpoints(f"{escape(tmp_path)}/ckpt-*", Complete(marker="DONE"), None, nothing)
    for n in (1, 2):
        saved(tmp_path / f"ckpt-{n}")
        steps(finder)
    with pytest.raises(IncompleteError, match="no file 'DONE'.*has begun.*quiet_s"):
        finder.raise_if_never(ended=False)


def test_what_is_quiet_is_complete_and_what_changes_is_not(tmp_path: Path) -> None:
    finder = FoundCheckpoints(f"{escape(tmp_path)}/ckpt-*", Complete(quiet_s=0.3), None, nothing)
    path, until = saved(tmp_path / "ckpt-1"), time.monotonic() + 1.0
    while time.monotonic() < until:
        with open(path / "weights", "ab") as file:
            file.write(b"y")
        assert steps(finder) == []
    while not (found := finder.look(ended=False)):
        time.sleep(0.02)
    assert time.monotonic() - until >= 0.2
    with open(path / "weights", "ab") as file:
        file.write(b"y")
    assert not finder.unchanged(found[0])
    assert steps(finder, ended=True) == [None]


def test_a_directory_of_one_name_is_found_again_when_it_was_made_anew(tmp_path: Path) -> None:
    finder = FoundCheckpoints(f"{escape(tmp_path)}/last", Complete(marker="DONE"), None, nothing)
    saved(tmp_path / "last", "DONE")
    assert steps(finder) == [None]
    for name in os.listdir(tmp_path / "last"):
        (tmp_path / "last" / name).unlink()
    assert steps(finder) == []
    saved(tmp_path / "last", "DONE")
    assert steps(finder) == [None]


def test_what_is_newer_than_the_start_is_set_aside(tmp_path: Path) -> None:
    for n in (1, 2, 3):
        saved(tmp_path / f"ckpt-{n}")
    aside: list[str] = []
    pattern = f"{escape(tmp_path)}/ckpt-(?P<step>[0-9]+)"
    finder = FoundCheckpoints(pattern, Complete(), 2, lambda path: aside.append(path.name))
    assert aside == ["ckpt-3"]
    assert [step for step in steps(finder) if step != 3] == []


def test_what_vanishes_is_passed_over(tmp_path: Path) -> None:
    finder = FoundCheckpoints(f"{escape(tmp_path)}/ckpt-*", Complete(), None, nothing)
    path = saved(tmp_path / "ckpt-1")
    (found,) = finder.look(ended=False)
    for name in os.listdir(path):
        (path / name).unlink()
    path.rmdir()
    assert not finder.unchanged(found) and steps(finder) == []


def test_what_a_killed_command_left_is_not_quiet(tmp_path: Path) -> None:
    finder = FoundCheckpoints(f"{escape(tmp_path)}/ckpt-*", Complete(quiet_s=60), None, nothing)
    saved(tmp_path / "ckpt-1")
    assert steps(finder) == [] and steps(finder, ended=False) == []
    assert steps(finder, ended=True) == [None]


def test_what_is_published_is_no_save_of_the_commands(tmp_path: Path) -> None:
    saved(tmp_path / "checkpoint_000001", ".manifest.json")
    finder = FoundCheckpoints(f"{escape(tmp_path)}/**/weights", Complete(), 0, nothing, own=tmp_path)
    saved(tmp_path / "checkpoint_000002" / "below")
    (tmp_path / "checkpoint_000002" / ".manifest.json").touch()
    saved(tmp_path / "run" / "a")
    assert [each.path for each in finder.look(ended=False)] == [tmp_path / "run" / "a" / "weights"]


def test_symlinks_are_what_they_lead_to_and_one_that_leads_nowhere_is_found_too(tmp_path: Path) -> None:
    finder = FoundCheckpoints(f"{escape(tmp_path)}/ckpt-*", Complete(), None, nothing)
    saved(tmp_path / "real")
    (tmp_path / "ckpt-1").symlink_to("real")
    (saved(tmp_path / "ckpt-2") / "lost").symlink_to("nowhere")  # whoever clones it names it
    assert steps(finder) == [None, None] and steps(finder) == []
