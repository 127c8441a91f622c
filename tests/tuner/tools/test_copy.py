"""tuner cp: experiments and checkpoints copied from one place to another, whole or not at all."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tests.tuner.replicated import answer, contents, counts, ran, refused
from trainables.errors import TransferError
from trainables.store.manifest import MANIFEST_NAME
from trainables.transfer import between
from trainables.transfer.open import open_backend
from tuner.cli import main

# --- cp ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["up", "down", "there", "here"])
def test_cp_copies_an_experiment(way: str, bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    experiment = ran(bucket, tmp_path / "results")
    source = f"{bucket}/mine" if way in ("down", "there") else str(experiment)
    target = f"{bucket}/copy" if way in ("up", "there") else str(tmp_path / "copy")

    assert "6 checkpoints" in answer(capsys, "cp", source, target)

    assert contents(target) == contents(experiment)
    assert "no problems" in answer(capsys, "verify", target)
    assert (len(tune.ExperimentAnalysis(target).trials), "copy" in refused(capsys, "cp", source, target)) == (2, True)
    shutil.rmtree(tmp_path / "results")
    grid = tune.Tuner.restore(target, counts, tune_config=tune.TuneConfig(num_samples=2), run_config=INLINE).fit()
    assert [result.checkpoint.to_dict() for result in grid] == [{"n": 3}] * 4


INLINE = tune.RunConfig(executor="inline", verbose=0)


def test_cp_under_a_place(bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    experiment = ran(None, tmp_path / "results")

    answer(capsys, "cp", experiment, f"{bucket}/copies/")

    assert contents(f"{bucket}/copies/mine") == contents(experiment)


@pytest.mark.parametrize("way", ["up", "down", "there", "here"])
def test_cp_copies_a_checkpoint(way: str, bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trial = next(ran(bucket, tmp_path / "results").glob("*_00001")).name
    there, here = (
        f"{bucket}/mine/{trial}/checkpoint_000002",
        tmp_path / "results" / "mine" / trial / "checkpoint_000002",
    )
    source = there if way in ("down", "there") else str(here)
    target = f"{bucket}/best one" if way in ("up", "there") else str(tmp_path / "best one")

    for _ in range(2):
        answer(capsys, "cp", source, target)

    assert tune.Checkpoint.from_uri(target).to_dict() == {"n": 2}
    assert tune.Checkpoint.from_uri(target).metrics["n"] == 2
    other = f"{source[:-1]}3"
    assert "another checkpoint" in refused(capsys, "cp", other, target)


def test_a_copy_that_was_cut_off_is_no_experiment_and_is_taken_up(
    bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = ran(None, tmp_path / "results")
    real, left = between.copy, [3]

    def dies(*arguments: Any, **named: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise TransferError("the store is gone")
        return real(*arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(between, "copy", dies)
        assert "the store is gone" in refused(capsys, "cp", experiment, f"{bucket}/copy")
    assert answer(capsys, "ls", bucket).startswith("no experiments in")

    answer(capsys, "cp", experiment, f"{bucket}/copy")

    assert contents(f"{bucket}/copy") == contents(experiment)


def test_what_is_broken_is_named_and_the_rest_is_copied(
    bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = ran(None, tmp_path / "results")
    spoiled = next(experiment.glob("*_00000")) / "checkpoint_000002"
    (spoiled / "dict_checkpoint.pkl").write_bytes(b"spoiled")

    capsys.readouterr()
    assert main(["cp", str(experiment), f"{bucket}/copy"]) == 1

    assert "checkpoint_000002" in capsys.readouterr().err
    manifests = [key for key in contents(f"{bucket}/copy") if key.endswith(MANIFEST_NAME)]
    assert len(manifests) == 5


def test_what_is_neither_is_said(bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plain").mkdir()
    for source in (tmp_path / "plain", f"{bucket}/nobody"):
        assert "neither an experiment nor a checkpoint" in refused(capsys, "cp", source, tmp_path / "copy")


def test_cp_into_itself_is_refused(place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer(capsys, "cp", ran(None, tmp_path / "results"), f"{place}/mine")
    before = contents(f"{place}/mine")

    for target in ("mine/sub", "mine/"):
        assert "into itself" in refused(capsys, "cp", f"{place}/mine", f"{place}/{target}")
    assert contents(f"{place}/mine") == before
    answer(capsys, "cp", f"{place}/mine", f"{place}/mine2")  # beside it


def test_cp_mixes_nothing_with_what_is_there(place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    experiment = ran(None, tmp_path / "results")
    checkpoint = next(experiment.glob("*_00000")) / "checkpoint_000001"
    backend = open_backend(place)
    backend.put("thesis/chapter 1", b"mine")

    for source in (experiment, checkpoint):
        said = refused(capsys, "cp", source, f"{place}/thesis")
        assert f"'{place}/thesis'" in said and "holds chapter 1" in said and f"'{place}/thesis/'" in said
    assert [entry.key for entry in backend.list("thesis")] == ["thesis/chapter 1"]

    answer(capsys, "cp", experiment, f"{place}/thesis/")
    answer(capsys, "cp", checkpoint, f"{place}/thesis/")
    assert contents(f"{place}/thesis/mine") == contents(experiment)
    assert not [entry.key for entry in backend.list("thesis") if "copying" in entry.key]
    backend.close()
    (tmp_path / "empty").mkdir()
    answer(capsys, "cp", experiment, tmp_path / "empty")
    assert contents(tmp_path / "empty") == contents(experiment)


def test_cp_takes_up_a_copy_of_the_same_experiment_only(
    bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment, other = ran(None, tmp_path / "results"), ran(None, tmp_path / "others")
    with monkeypatch.context() as patch:
        patch.setattr(between, "copy", lambda *arguments: (_ for _ in ()).throw(TransferError("the store is gone")))
        refused(capsys, "cp", experiment, f"{bucket}/copy")

    assert "nothing is mixed" in refused(capsys, "cp", other, f"{bucket}/copy")
    answer(capsys, "cp", experiment, f"{bucket}/copy")
    assert contents(f"{bucket}/copy") == contents(experiment)
