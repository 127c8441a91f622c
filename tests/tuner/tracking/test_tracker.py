"""What adapters share."""

from __future__ import annotations

from pathlib import Path

from tuner.tracking.tracker import TrackedRun, files_of


def test_a_second_run_of_a_trial_has_a_key_of_its_own() -> None:
    assert [TrackedRun("id", "name", "e", Path(), {}, number=number).key for number in (1, 2)] == ["id", "id-2"]


def test_a_checkpoints_own_list_of_files_is_none_of_the_users(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for name in (".manifest.json", "a", "deep/b"):
        (tmp_path / name).write_text("")
    assert list(files_of(str(tmp_path))) == [(f"{tmp_path}/a", "a"), (f"{tmp_path}/deep/b", "deep/b")]
