from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from trainables.errors import InvalidSettingError, PublishError, RanksError
from trainables.store import fs, manifest
from trainables.torch import AtomicDirectory

pytestmark = pytest.mark.torch

SCRIPT = Path(__file__).with_name("kill_points.py")


def save(saver: AtomicDirectory, content: str = "x", *, forced: bool = False) -> str:
    directory = saver.prepare_checkpoint_directory(force_save=forced)
    Path(directory, "checkpoint.pt").write_text(content)
    saver.symlink_latest(directory)
    return directory


def checkpoints(output: Path) -> list[str]:
    return sorted(entry for entry in os.listdir(output) if "_checkpoint_" in entry and "latest" not in entry)


def test_the_link_is_the_path_that_was_prepared_and_leads_there_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    saver = AtomicDirectory("out", is_master=True)
    prepared = save(saver, "first")
    monkeypatch.chdir("/")

    read = os.readlink(tmp_path / "out" / saver.symlink_name)

    assert read == prepared == saver.latest_checkpoint() == str(tmp_path / "out" / "AtomicDirectory_checkpoint_0")
    assert Path(read, "checkpoint.pt").read_text() == "first"
    assert (tmp_path / "out" / "AtomicDirectory.latest_checkpoint.name").read_text() == os.path.basename(prepared)


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


def test_d07_the_old_one_stays_until_the_new_one_is_complete(tmp_path: Path) -> None:
    saver = AtomicDirectory(tmp_path, True, keep_last=1)
    first = save(saver, "first")
    second = saver.prepare_checkpoint_directory()
    Path(second, "checkpoint.pt").write_text("half")

    assert Path(first, "checkpoint.pt").read_text() == "first"
    assert os.readlink(tmp_path / saver.symlink_name) == first
    again = AtomicDirectory(tmp_path, True, keep_last=1)
    assert again.latest_checkpoint() == first
    assert not os.path.exists(second), "the half one is removed at the next start"


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


@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", ["0 1 links", "3 1 links", "3 2 no-links"])
def test_f15_killed_between_any_two_calls_the_next_start_needs_no_hand(quick_disk: Path, how: str) -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, quick_disk, *how.split()], capture_output=True, text=True, timeout=280
    )

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["wrong"] == []
    assert found["points"] > 20


@pytest.mark.soak
@pytest.mark.parametrize("links", ["links", "no-links"])
@pytest.mark.parametrize("keep", [1, 2, 3, 5])
@pytest.mark.parametrize("before", [1, 2, 4, 9])
def test_f15_killed_between_any_two_calls_at_every_length(quick_disk: Path, before: int, keep: int, links: str) -> None:
    test_f15_killed_between_any_two_calls_the_next_start_needs_no_hand(quick_disk, f"{before} {keep} {links}")


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


def test_async_savers_have_a_name_for_each_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        saver = AtomicDirectory(tmp_path, is_master=True, strategy="async")
        assert saver.symlink_name == f"AtomicDirectory_rank_{rank}.latest_checkpoint"
        save(saver, forced=rank == "1")

    assert checkpoints(tmp_path) == ["AtomicDirectory_rank_0_checkpoint_0", "AtomicDirectory_rank_1_checkpoint_0_force"]
    mono = AtomicDirectory(tmp_path, is_master=True, strategy="mono", name="alone")
    save(mono)
    assert mono.symlink_name == "alone.latest_checkpoint"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"output_directory": ""}, "output_directory='' is not accepted; accepted: a path"),
        ({"output_directory": __file__}, "test_atomic_directory.py' is not accepted; accepted: a directory"),
        ({"is_master": 1}, "is_master=1 is not accepted; accepted: True, False"),
        ({"is_master": False}, "is_master=False is not accepted; accepted: True"),
        ({"is_master": False, "strategy": "async"}, "is_master=False is not accepted"),
        ({"name": "a/b"}, "name='a/b' is not accepted; accepted: a plain name"),
        ({"name": ""}, "name='' is not accepted"),
        ({"keep_last": 0}, r"keep_last=0 is not accepted; accepted: -1 \(all\), or a whole number >= 1"),
        ({"keep_last": -2}, "keep_last=-2 is not accepted"),
        ({"keep_last": True}, "keep_last=True is not accepted"),
        ({"strategy": "sync"}, "'sync_any', 'sync_all', 'async', 'mono'"),
        ({"timeout_s": 0}, "timeout_s=0 is not accepted"),
        ({"sync_config": "s3://bucket"}, "a SyncConfig with upload_dir"),
    ],
)
def test_bad_input_is_named(tmp_path: Path, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidSettingError, match=said):
        AtomicDirectory(**{"output_directory": tmp_path, "is_master": True, **arguments})


def test_what_lies_in_the_way_is_named_and_so_is_a_name_that_is_too_long(tmp_path: Path) -> None:
    for name in ("run.latest_checkpoint.name", ".run.saving"):
        (tmp_path / name / name).mkdir(parents=True)
        with pytest.raises(PublishError, match=f"{name}"):
            AtomicDirectory(tmp_path / name, True, "run")
    (tmp_path / "file").touch()
    for place in (tmp_path / "file" / "below", tmp_path / ("x" * 300)):
        with pytest.raises(PublishError, match=place.name):
            AtomicDirectory(place, True)


def test_several_ranks_without_a_group_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RanksError, match='WORLD_SIZE is 2 .*init_process_group.* "mono"'):
        AtomicDirectory(tmp_path, is_master=True)
    save(AtomicDirectory(tmp_path, is_master=True, strategy="mono"))


def test_a_comparison_of_numpy_or_torch_decides_on_a_milestone(tmp_path: Path) -> None:
    saver = AtomicDirectory(tmp_path, True, "run")
    votes = [torch.tensor(0.5) > 0.4, numpy.float32(0.5) > 0.4, torch.tensor([0.5]) < 0.4]
    assert [os.path.basename(save(saver, forced=vote)) for vote in votes] == [  # type: ignore[arg-type]
        "run_checkpoint_0_force",
        "run_checkpoint_1_force",
        "run_checkpoint_2",
    ]
    for wrong in ("yes", 1, torch.ones(2) > 0, torch.ones(1)):
        with pytest.raises(InvalidSettingError, match="force_save=.* is not accepted"):
            saver.prepare_checkpoint_directory(force_save=wrong)  # type: ignore[arg-type]


ANOTHER = """
import sys
from trainables.errors import SessionError
from trainables.torch import AtomicDirectory
try:
    saver = AtomicDirectory(sys.argv[1], True, "run", 1)
except SessionError as error:
    print(error)
else:
    saver.symlink_latest(saver.prepare_checkpoint_directory())
    print("saved", AtomicDirectory(sys.argv[1], True, "another").latest_checkpoint())
"""


def test_f33_a_second_run_in_the_same_directory_is_refused_and_touches_nothing(tmp_path: Path) -> None:
    def another() -> str:
        done = subprocess.run([sys.executable, "-c", ANOTHER, tmp_path], capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr
        return done.stderr + done.stdout

    saver = AtomicDirectory(tmp_path, True, "run", 1)
    first = save(saver, "first")
    second = saver.prepare_checkpoint_directory()

    said = another()
    assert f"process {os.getpid()} " in said and "name=" in said, said
    assert os.path.isdir(second)
    Path(second, "checkpoint.pt").write_text("second")
    saver.symlink_latest(second)
    assert saver.latest_checkpoint() == second != first
    child = os.fork()
    if child == 0:  # as a loader's worker: it outlives the saver, and owns nothing
        signal.pause()
    try:
        again = AtomicDirectory(tmp_path, True, "run", 1)
        saver.close()
        assert "is saving" in another()
        subprocess.run(["sh", "-c", 'printf "process 1 on elsewhere" > "$0"', tmp_path / ".run.owner"], check=True)
        said = another()
        assert "process 1 on elsewhere is saving" in said and "saved None" in said, "that may be long gone"
        again.close()
        assert another() == "saved None\n"
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_only_the_prepared_directory_can_be_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saver = AtomicDirectory(tmp_path, True)
    with pytest.raises(InvalidSettingError, match=r"what prepare_checkpoint_directory\(\) returned last \(none\)"):
        saver.symlink_latest(tmp_path)
    directory = saver.prepare_checkpoint_directory()
    for other in (tmp_path / "other", None, 3):
        with pytest.raises(InvalidSettingError, match="AtomicDirectory_checkpoint_0"):
            saver.symlink_latest(other)  # type: ignore[arg-type]
    monkeypatch.chdir(tmp_path)
    saver.symlink_latest(os.path.basename(directory))
    assert saver.latest_checkpoint() == directory
