"""Numbered directories, the pointer to the latest, and what of a killed save the next start finds."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainables.torch.harness import checkpoints, save
from trainables.errors import InvalidSettingError, PublishError
from trainables.store import fs, manifest
from trainables.torch import AtomicDirectory
from trainables.torch.numbered import NumberedCheckpoints, SaverNames, surplus

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("keep", [1, 2, 3, -1])
def test_the_newest_stay_and_forced_ones_beside_them(tmp_path: Path, keep: int) -> None:
    saver = AtomicDirectory(tmp_path, True, "run", keep)
    forced = {2, 5}
    for number in range(8):
        complete = [name for name in checkpoints(tmp_path) if manifest.is_published(tmp_path / name)]
        directory = saver.prepare_checkpoint_directory(force_save=number in forced)
        assert [name for name in checkpoints(tmp_path) if name != os.path.basename(directory)] == complete, (
            "while saving"
        )
        Path(directory, "checkpoint.pt").write_text("x")
        saver.symlink_latest(directory)

        plain = [n for n in range(number + 1) if n not in forced]
        kept = plain if keep == -1 else plain[-keep:]
        expected = {f"run_checkpoint_{n}" for n in kept} | {f"run_checkpoint_{n}_force" for n in forced if n <= number}
        assert set(checkpoints(tmp_path)) == expected
        assert os.readlink(tmp_path / saver.symlink_name) == directory


def test_d22_leftovers_never_block(tmp_path: Path) -> None:
    saver = AtomicDirectory(tmp_path, True)
    save(saver)
    link = tmp_path / saver.symlink_name
    for name in (f"{link.name}_temp", f".{link.name}.tmp", f".{link.name}.0123abcd.tmp"):
        os.symlink(tmp_path / "nowhere", tmp_path / name)
    (tmp_path / f".{link.name}.name.tmp").write_text("torn")

    assert os.readlink(link) != save(saver) == os.readlink(link)
    started = AtomicDirectory(tmp_path, True)
    assert os.readlink(link) == started.latest_checkpoint()


def test_f15_a_moved_tree_is_mended_at_the_start(tmp_path: Path) -> None:
    save(AtomicDirectory(tmp_path / "old", True), "here")
    shutil.move(tmp_path / "old", tmp_path / "new")

    saver = AtomicDirectory(tmp_path / "new", True)

    latest = os.readlink(tmp_path / "new" / saver.symlink_name)
    assert latest == saver.latest_checkpoint() == str(tmp_path / "new" / "AtomicDirectory_checkpoint_0")
    assert Path(latest, "checkpoint.pt").read_text() == "here"


@pytest.mark.parametrize("lost", ["link", "pointer", "both"])
def test_f15_a_lost_link_or_pointer_is_mended(tmp_path: Path, lost: str) -> None:
    saver = AtomicDirectory(tmp_path, True)
    save(saver)
    latest = save(saver)
    if lost != "pointer":
        (tmp_path / saver.symlink_name).unlink()
    if lost != "link":
        (tmp_path / f"{saver.symlink_name}.name").unlink()

    again = AtomicDirectory(tmp_path, True)

    assert again.latest_checkpoint() == latest == os.readlink(tmp_path / saver.symlink_name)
    assert (tmp_path / f"{saver.symlink_name}.name").read_text() == os.path.basename(latest)


def test_f15_where_links_are_refused_the_pointer_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(target: Any, path: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(fs, "symlink", refused)
    saver = AtomicDirectory(tmp_path, True, keep_last=1)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            latest = save(saver)

    assert len([record for record in caplog.records if "could not be made a link" in record.message]) == 1
    assert AtomicDirectory(tmp_path, True, keep_last=1).latest_checkpoint() == latest
    assert checkpoints(tmp_path) == [os.path.basename(latest)]


def test_f03_a_broken_latest_is_set_aside_and_the_one_before_is_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    saver = AtomicDirectory(tmp_path, True, "run")
    first = save(saver, "first")
    for _ in range(2):
        Path(save(saver, "later"), "checkpoint.pt").write_text("LATER")

    with caplog.at_level(logging.WARNING):
        again = AtomicDirectory(tmp_path, True, "run")

    assert again.latest_checkpoint() == first == os.readlink(tmp_path / again.symlink_name)
    assert len([record for record in caplog.records if "set aside" in record.message]) == 2
    assert os.path.basename(save(again)) == "run_checkpoint_3", "a number is never used twice"


def test_what_cycling_utils_left_is_the_latest_and_is_never_deleted(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"AtomicDirectory_checkpoint_{number}").mkdir()
        (tmp_path / f"AtomicDirectory_checkpoint_{number}" / "checkpoint.pt").write_text(str(number))
    os.symlink("/old/place/AtomicDirectory_checkpoint_1", tmp_path / "AtomicDirectory.latest_checkpoint")

    saver = AtomicDirectory(tmp_path, True, keep_last=1)

    assert saver.latest_checkpoint() == str(tmp_path / "AtomicDirectory_checkpoint_1")
    assert os.readlink(tmp_path / saver.symlink_name) == saver.latest_checkpoint()
    save(saver)
    save(saver)
    assert checkpoints(tmp_path) == [f"AtomicDirectory_checkpoint_{number}" for number in (0, 1, 2, 4)]


def test_savers_of_several_names_do_not_touch_each_other(tmp_path: Path) -> None:
    first, second = (AtomicDirectory(tmp_path, True, name, 1) for name in ("a", "ab"))
    for _ in range(2):
        kept = [save(first), save(second)]

    assert [first.latest_checkpoint(), second.latest_checkpoint()] == kept
    assert len(checkpoints(tmp_path)) == 2
    assert AtomicDirectory(tmp_path, True, "a", 1).latest_checkpoint() == kept[0]


def test_a_save_that_the_disk_refuses_leaves_the_latest_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saver = AtomicDirectory(tmp_path, True, keep_last=1)
    first = save(saver, "first")

    def full(path: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(fs, "fsync_file", full)
        with pytest.raises(PublishError, match=r"No space left on device; \d+ bytes are free"):
            save(saver)

    assert saver.latest_checkpoint() == first == os.readlink(tmp_path / saver.symlink_name)
    assert checkpoints(tmp_path) == [os.path.basename(first)]
    second = save(saver, "second")
    assert checkpoints(tmp_path) == [os.path.basename(second)]


def test_f34_a_deletion_that_fails_is_tried_again_and_disturbs_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saver = AtomicDirectory(tmp_path, True, keep_last=1)
    save(saver)
    real = fs.rename

    def busy(source: Any, target: Any) -> None:
        if ".deleting-" in str(target):
            raise OSError(16, "Device or resource busy")
        real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(fs, "rename", busy)
        save(saver)
        assert len(checkpoints(tmp_path)) == 2
    save(saver)
    assert len(checkpoints(tmp_path)) == 1


# --- what it does on disk, without a saver -----------------------------------------------------------------


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., NumberedCheckpoints]]:
    """opened(keep_last) starts on the same directory, as the next process would."""
    made: list[NumberedCheckpoints] = []

    def make(keep_last: int | None = None, name: str = "run") -> NumberedCheckpoints:
        for before in made:
            before.release()
        made.append(NumberedCheckpoints(tmp_path / "out", name, keep_last=keep_last))
        made[-1].start()
        return made[-1]

    yield make
    for each in made:
        each.release()


def published(numbered: NumberedCheckpoints, *, forced: bool = False) -> Path:
    path = numbered.prepare(forced=forced)
    (path / "x").write_text(path.name)
    numbered.publish(path)
    return path


@given(
    st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=12, unique_by=lambda each: each[0]),
    st.none() | st.integers(1, 5),
)
def test_the_newest_and_the_forced_are_never_surplus(given_: list[tuple[int, bool]], keep: int | None) -> None:
    names = SaverNames("run")
    all_ = [names.of(index, forced) for index, forced in sorted(given_)]

    gone = surplus(all_, keep)

    left = [each for each in all_ if each not in gone]
    assert not any(each.forced for each in gone)
    plain = [each for each in left if not each.forced]
    assert keep is None or len(plain) == min(keep, sum(not each.forced for each in all_))
    assert gone == [] or max(each.index for each in gone) < min(each.index for each in plain)
    assert keep is not None or gone == []


@given(st.text(st.sampled_from("ab.*[("), min_size=1, max_size=4), st.integers(0, 10**18 - 1), st.booleans())
def test_a_name_tells_its_number_and_those_of_another_saver_tell_nothing(name: str, index: int, forced: bool) -> None:
    names = SaverNames(name)
    made = names.of(index, forced)

    assert names.parse(made.name) == made
    for other in (f"x{made.name}", f"{made.name}x", f"{name}_checkpoint_", f"{name}_checkpoint_-1", names.link):
        assert names.parse(other) is None
    assert SaverNames(f"{name}b").parse(made.name) is None


def test_numbers_go_on_after_everything_that_was_ever_there(opened: Callable[..., NumberedCheckpoints]) -> None:
    first = published(opened())
    numbered = opened()
    prepared = numbered.prepare(forced=False)
    assert [first.name, prepared.name] == ["run_checkpoint_0", "run_checkpoint_1"]
    assert numbered.prepare(forced=True).name == "run_checkpoint_2_force"
    assert not prepared.exists(), "a save that nobody published goes with the next"
    again = opened()
    assert again.names.parse(again.prepare(forced=False).name).index > 0  # type: ignore[union-attr]


def test_a_directory_of_somebodys_is_passed_over_and_never_emptied(
    opened: Callable[..., NumberedCheckpoints], tmp_path: Path
) -> None:
    numbered = opened()
    (tmp_path / "out" / "run_checkpoint_0").mkdir()
    (tmp_path / "out" / "run_checkpoint_0" / "theirs").touch()

    assert numbered.prepare(forced=False).name == "run_checkpoint_1"
    assert (tmp_path / "out" / "run_checkpoint_0" / "theirs").exists()


def test_only_what_was_prepared_last_is_published(opened: Callable[..., NumberedCheckpoints], tmp_path: Path) -> None:
    numbered = opened()
    with pytest.raises(InvalidSettingError, match=r"returned last \(none\)"):
        numbered.publish(tmp_path)
    path = numbered.prepare(forced=False)
    with pytest.raises(InvalidSettingError, match="run_checkpoint_0"):
        numbered.publish(tmp_path / "out" / "run_checkpoint_7")
    numbered.publish(path)
    with pytest.raises(InvalidSettingError, match=r"\(none\)"):
        numbered.publish(path)
    assert [each.name for each in numbered.complete] == ["run_checkpoint_0"]


def test_what_comes_from_a_copy_takes_its_place_by_its_number(opened: Callable[..., NumberedCheckpoints]) -> None:
    numbered = opened()
    paths = [published(numbered) for _ in range(3)]
    again = opened()
    again._complete.clear()  # as on a new machine, where the copy brings them one by one

    for path in (paths[2], paths[0]):
        again.adopt(path.name)

    assert [each.index for each in again.complete] == [0, 2]
    assert again.latest() == "run_checkpoint_2"
    assert again.prepare(forced=False).name == "run_checkpoint_3"


def test_a_file_in_the_place_of_the_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(InvalidSettingError, match="a directory, there or not"):
        NumberedCheckpoints(tmp_path / "file", "run", keep_last=None).start()


def test_a_directory_in_the_place_of_the_link_is_set_aside(opened: Callable[..., NumberedCheckpoints]) -> None:
    numbered = opened()
    link = numbered.directory / numbered.names.link
    (link / "theirs").mkdir(parents=True)

    path = published(numbered)

    assert os.readlink(link) == str(path)
    assert list(numbered.directory.rglob("theirs")), "nothing of it is lost"
