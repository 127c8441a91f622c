"""tuner sync: a copy is made, completed and fetched; two histories are never joined."""

from __future__ import annotations

import json
import os
import shutil
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tests.tuner.replicated import answer, contents, poison, ran, refused
from trainables.store.manifest import MANIFEST_NAME
from trainables.transfer import remote_checkpoints
from trainables.transfer.open import open_backend
from tuner.clock import SystemClock
from tuner.experiment.generations import read_records
from tuner.experiment.journal import read_journal
from tuner.experiment.lock import claim
from tuner.experiment.paths import ExperimentPaths
from tuner.tools import sync as sync_tool

# --- sync ----------------------------------------------------------------------------------------------


def test_sync_makes_a_copy_and_completes_one(place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    experiment = ran(None, tmp_path / "results")

    assert answer(capsys, "sync", experiment, "--to", f"{place}/mine") == f"{place}/mine: complete\n"
    assert contents(f"{place}/mine") == contents(experiment)
    assert "no problems" in answer(capsys, "verify", f"{place}/mine")
    assert json.loads(answer(capsys, "ls", place, "--json"))[0]["state"] == "finished"

    backend = open_backend(place)
    keys = (entry.key for entry in backend.list("mine"))
    (lost,) = {key.rpartition("/")[0] for key in keys if "_00000/checkpoint_000003" in key}
    backend.delete([f"{lost}/{MANIFEST_NAME}"])
    backend.close()
    assert answer(capsys, "sync", experiment) == f"{place}/mine: complete\n", "the journal says where"
    assert contents(f"{place}/mine") == contents(experiment)


def test_t07_what_a_dead_store_left_is_completed_by_sync(
    bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The settings say where, also when nothing ever arrived; nothing is unpickled to find out."""
    experiment = ran(None, tmp_path / "results")
    settings = json.loads((experiment / "experiment.json").read_text())
    (experiment / "experiment.json").write_text(json.dumps(settings | {"upload_dir": bucket}))
    poison(experiment / "blobs")

    answer(capsys, "sync", experiment)

    assert contents(f"{bucket}/mine") == contents(experiment)


def test_sync_fetches_everything(place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    experiment = ran(place, tmp_path / "results")
    whole = contents(experiment)
    shutil.rmtree(experiment)

    said = answer(capsys, "sync", experiment, "--from", f"{place}/mine")
    assert "fetched: 6 checkpoints\n" in said and contents(experiment) == whole
    assert "no problems" in answer(capsys, "verify", experiment)
    shutil.rmtree(next(experiment.glob("*_00000")) / "checkpoint_000002")
    assert "fetched: 1 checkpoint\n" in answer(capsys, "sync", experiment, "--from", f"{place}/mine")
    assert contents(experiment) == whole


def test_sync_gives_signs_of_life_while_it_fetches(
    bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = ran(bucket, tmp_path / "results")
    shutil.rmtree(next(experiment.glob("*_00000")) / "checkpoint_000002")
    monkeypatch.setattr(sync_tool, "beating", partial(sync_tool.beating, every_s=0.01))
    fetch, beats = remote_checkpoints.fetch, []

    def slowly(*arguments: Any, **more: Any) -> Any:
        deadline = time.monotonic() + 30
        while not (now := read_records(ExperimentPaths(experiment))[-1].heartbeat):
            assert time.monotonic() < deadline, "another host would take it for dead"
        beats.append(now)
        return fetch(*arguments, **more)

    monkeypatch.setattr(remote_checkpoints, "fetch", slowly)
    assert "fetched: 1 checkpoint\n" in answer(capsys, "sync", experiment, "--from", f"{bucket}/mine")
    assert beats


def test_sync_is_refused_beside_a_live_owner(bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    experiment = ran(bucket, tmp_path / "results")
    before = contents(f"{bucket}/mine")
    owner = claim(ExperimentPaths(experiment), clock=SystemClock())
    try:
        for way in (["--to", f"{bucket}/mine"], ["--from", f"{bucket}/mine"], []):
            assert "owned by another driver" in refused(capsys, "sync", experiment, *way)
    finally:
        owner.release()
    assert contents(f"{bucket}/mine") == before


def test_sync_never_joins_two_histories(bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran(bucket, tmp_path / "results")
    other = ran(None, tmp_path / "other")
    before, here = contents(f"{bucket}/mine"), read_journal(ExperimentPaths(other)).last_seq

    for way in ("--to", "--from"):
        assert "two experiments" in refused(capsys, "sync", other, way, f"{bucket}/mine")

    assert contents(f"{bucket}/mine") == before and read_journal(ExperimentPaths(other)).last_seq == here


def test_a_newer_copy_is_not_pushed_over(bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    experiment = ran(bucket, tmp_path / "results")
    shutil.copytree(experiment, tmp_path / "old" / "mine")
    answer(capsys, "sync", experiment)  # a generation later

    assert "--from" in refused(capsys, "sync", tmp_path / "old" / "mine", "--to", f"{bucket}/mine")
    answer(capsys, "sync", tmp_path / "old" / "mine", "--from", f"{bucket}/mine")
    assert read_journal(ExperimentPaths(tmp_path / "old" / "mine")).generation == 2


MERGING = "rsync -sa {source} {target}"


def test_sync_says_what_it_needs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    experiment = ran(None, tmp_path / "results")

    assert "--to URI" in refused(capsys, "sync", experiment)
    assert "/mine" in refused(capsys, "sync", experiment, "--to", str(tmp_path / "other name"))
    assert "nobody" in refused(capsys, "sync", experiment, "--from", str(tmp_path / "nobody"))
    assert "not copied by a command" in refused(capsys, "sync", experiment, "--syncer", MERGING)
    assert "--to" in refused(capsys, "sync", experiment, "--to", "s3://b/mine", "--syncer", MERGING)


@pytest.mark.parametrize("way", ["--to", "--from"])
@pytest.mark.parametrize("form", ["{path}", "{uri}", "{path}/../link/mine", "{path}/sub/mine"])
def test_sync_of_an_experiment_with_itself_is_refused(
    way: str, form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = ran(None, tmp_path / "results")
    (experiment / "sub").mkdir()
    (experiment.parent / "link").symlink_to(experiment.parent)
    before = sorted(experiment.rglob("*"))

    said = refused(capsys, "sync", experiment, way, form.format(path=experiment, uri=experiment.as_uri()))

    assert "where the experiment itself lies" in said
    assert sorted(experiment.rglob("*")) == before


@pytest.mark.parametrize("delete_template", [None, "rm -rf -- {target}"])
def test_t07_what_a_command_left_is_completed_by_sync(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], delete_template: str | None
) -> None:
    experiment = ran(None, tmp_path / "results")
    made = tune.SyncConfig(upload_dir=tmp_path / "share", syncer=MERGING, delete_template=delete_template)
    settings = json.loads((experiment / "experiment.json").read_text())
    assert settings["sync_command"] is None
    fields = ("syncer", "delete_template", "options")
    command = {"upload_dir": str(made.upload_dir)} | {name: getattr(made, name) for name in fields}
    (experiment / "experiment.json").write_text(json.dumps(settings | {"sync_command": command}))
    poison(experiment / "blobs")

    again = ["--syncer", MERGING, *([] if delete_template is None else ["--delete-template", delete_template])]
    assert f"--syncer '{MERGING}'" in refused(capsys, "sync", experiment)
    assert not (tmp_path / "share" / "mine").exists(), "what stands in stored settings is not run (R8)"
    for _ in range(2):
        assert answer(capsys, "sync", experiment, *again) == f"{tmp_path}/share/mine: complete\n"
        assert contents(f"{tmp_path}/share/mine") == contents(experiment)
    shutil.rmtree(experiment)
    assert len(tune.ExperimentAnalysis(tmp_path / "share" / "mine").trials) == 2


def test_t07_a_command_stands_in_the_settings_as_text_and_a_function_does_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ran(f"{tmp_path}/by command", tmp_path / "first", syncer=MERGING)
    stored = json.loads((command / "experiment.json").read_text())["sync_command"]
    assert stored == {
        "upload_dir": f"{tmp_path}/by command",
        "syncer": MERGING,
        "delete_template": None,
        "options": "",
    }
    lost = next((tmp_path / "by command" / "mine").rglob("result.json"))
    lost.unlink()
    answer(capsys, "sync", command, "--syncer", MERGING)
    assert lost.exists()

    def copies(source: str, target: str) -> None:
        if os.path.isdir(source):
            shutil.copytree(source, target, dirs_exist_ok=True)

    function = ran(f"{tmp_path}/by function", tmp_path / "second", syncer=copies)
    said = refused(capsys, "sync", function)
    assert "by a function" in said and 'resume="AUTO"' in said and "--to URI" in said
