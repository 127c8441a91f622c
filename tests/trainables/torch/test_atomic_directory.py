""""""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from tests.listings import SCRIPTS
from tests.trainables.torch.harness import checkpoints, save
from trainables.errors import InvalidSettingError, PublishError, RanksError
from trainables.torch import AtomicDirectory

pytestmark = pytest.mark.torch


SCRIPT = Path(__file__).with_name("kill_points.py")


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


ANOTHER = SCRIPTS / "another_saver.py"


def test_f33_a_second_run_in_the_same_directory_is_refused_and_touches_nothing(tmp_path: Path) -> None:
    def another() -> str:
        done = subprocess.run([sys.executable, ANOTHER, tmp_path], capture_output=True, text=True, timeout=100)
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
