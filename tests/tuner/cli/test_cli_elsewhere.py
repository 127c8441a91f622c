"""The verbs on experiments elsewhere: in a bucket of a real server, and in a shared directory."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tuner as tune
from tests.tuner.replicated import answer, poison, ran, refused
from trainables.store.manifest import MANIFEST_NAME
from trainables.transfer.open import open_backend
from trainables.wire import CheckpointRef
from tuner.clock import SystemClock
from tuner.experiment import events as ev
from tuner.experiment.journal import JournalWriter, read_journal
from tuner.experiment.paths import ExperimentPaths


def test_names_with_odd_characters_stay_on_their_line(bucket: str, capsys: pytest.CaptureFixture[str]) -> None:
    backend = open_backend(bucket)
    names = ["a\nb", "c\x1b[2Jd", "-rf $(x); 'e'", "ünï", "x" * 200]
    for name in names:
        backend.put(f"{name}/experiment.json", b"{}")
    backend.close()

    shown = answer(capsys, "ls", bucket)

    assert shown.count("unreadable") == len(names) and "\x1b" not in shown and "a\\nb" in shown
    assert sorted(row["name"] for row in json.loads(answer(capsys, "ls", bucket, "--json"))) == sorted(names)
    for name in names:
        assert "cannot be read" in refused(capsys, "show", f"{bucket}/{name}")


def test_local_names_with_odd_characters_stay_on_their_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["a\nb", "c\x1b[2Jd", "-rf $(x); 'e'", os.fsdecode(b"half\xff")]
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "experiment.json").write_text('{"format": 1}')

    shown = answer(capsys, "ls", tmp_path)

    assert "\x1b" not in shown and "a\\nb" in shown and len(shown.splitlines()) == 1 + len(names)
    assert len(json.loads(answer(capsys, "ls", tmp_path, "--json"))) == len(names)
    for name in names:
        assert "\x1b" not in answer(capsys, "show", tmp_path / name)


def saves_an_empty_directory(config: dict[str, Any]) -> None:
    with tune.checkpoint_dir(step=1) as directory:
        Path(directory, "logs", "empty").mkdir(parents=True)
    tune.report(n=1)


@pytest.mark.parametrize("how", ["replica", "cp"])
def test_a_copy_in_a_directory_needs_no_empty_directories(
    how: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    storage, share = tmp_path / "results", tmp_path / "share"
    sync = tune.SyncConfig(upload_dir=share if how == "replica" else None)
    tune.run(
        saves_an_empty_directory, name="mine", storage_path=storage, sync_config=sync, executor="inline", verbose=0
    )
    if how == "cp":
        answer(capsys, "cp", storage / "mine", share / "mine")
    assert "no problems" in answer(capsys, "verify", share / "mine")
    (lost,) = (storage / "mine").glob("*/checkpoint_*/logs")
    shutil.rmtree(lost)
    assert "an empty directory, is missing" in answer(capsys, "verify", storage / "mine", status=1)


# --- what is damaged over there --------------------------------------------------------------------------


def test_what_is_damaged_there_is_named_by_its_uri(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = ran(place, tmp_path / "results")
    answer(capsys, "sync", experiment)  # another segment, that builds on the first
    backend = open_backend(place)
    segment = min(entry.key for entry in backend.list("mine") if "/journal/0" in entry.key)
    found = next(entry.key for entry in backend.list("mine") if entry.key.endswith(MANIFEST_NAME))
    data = backend.read(segment)
    backend.put(segment, data[: len(data) // 2].rpartition(b"\n")[0] + b"\n")
    backend.put(found, b"spoiled")
    backend.close()
    shutil.rmtree(experiment)
    uri = f"{place}/mine"

    commands = [["show", uri], ["verify", uri], ["cp", uri, tmp_path / "copy"], ["sync", experiment, "--from", uri]]
    for command in commands:
        said = refused(capsys, *command)
        assert f"{uri}/journal" in said and "is missing" in said, said
    with pytest.raises(tune.TuneError, match=f"^{uri}/journal: "):
        ran(place, tmp_path / "results", resume="AUTO")

    said = refused(capsys, "cp", f"{place}/{found.rpartition('/')[0]}", tmp_path / "copy")
    assert f"the manifest of {place}/{found.rpartition('/')[0]} cannot be read" in said
    assert not (tmp_path / "copy").exists()


# --- attacks -------------------------------------------------------------------------------------------


def test_t06_a_poisoned_blob_is_never_touched(bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    experiment = ran(bucket, tmp_path / "results")
    poison(experiment / "blobs")
    answer(capsys, "cp", experiment, f"{bucket}/evil")

    answer(capsys, "ls", bucket)
    answer(capsys, "show", f"{bucket}/evil")
    answer(capsys, "show", f"{bucket}/evil", "0")
    answer(capsys, "verify", f"{bucket}/evil")
    answer(capsys, "cp", f"{bucket}/evil", tmp_path / "evil")
    answer(capsys, "sync", tmp_path / "evil", "--to", f"{bucket}/more/evil")
    answer(capsys, "sync", tmp_path / "back", "--from", f"{bucket}/evil")
    assert len(tune.ExperimentAnalysis(f"{bucket}/evil").results_df) == 2


@pytest.mark.parametrize("name", ["../../out", "/out", "..", "a/../../out"])
@pytest.mark.parametrize("where", ["dirname", "checkpoint"])
def test_r8_a_journal_that_leads_out_writes_nothing_outside(
    name: str, where: str, bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = ran(None, tmp_path / "results")

    contents_ = read_journal(ExperimentPaths(experiment))
    journal = JournalWriter(
        ExperimentPaths(experiment), 1, next_seq=contents_.last_seq + 1, clock=SystemClock(), sync="inline"
    )
    raw = msgspec.Raw(b"{}")
    if where == "dirname":
        journal.append(ev.encode(ev.TrialCreated("evil", 9, raw, raw, "", "evil", name)))
    else:
        trial = tune.ExperimentAnalysis(experiment).trials[0].trial_id
        journal.append(ev.encode(ev.CheckpointPublished(CheckpointRef(trial, name, 1, 1, 9, 9), 1, "", 0.0, raw)))
    journal.close()
    backend = open_backend(bucket)
    files = [path.relative_to(experiment).as_posix() for path in experiment.rglob("*") if path.is_file()]
    backend.push(experiment, "evil", files)
    backend.close()
    before = {path for path in tmp_path.rglob("*") if "cache" not in path.parts}

    for command in (
        ["show", f"{bucket}/evil"],
        ["verify", f"{bucket}/evil"],
        ["cp", f"{bucket}/evil", str(tmp_path / "copy")],
        ["sync", str(tmp_path / "synced"), "--from", f"{bucket}/evil"],
    ):
        assert "no name of a directory" in refused(capsys, *command)

    after = {path for path in tmp_path.rglob("*") if "cache" not in path.parts}
    made = {path.relative_to(tmp_path).parts[0] for path in after - before}
    assert made <= {"synced", "copy"}, "nothing is written outside"
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.name == "out"]


def test_r8_links_in_a_shared_directory_are_not_followed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    experiment = ran(str(tmp_path / "share"), tmp_path / "results")
    secret = tmp_path / "secret"
    secret.write_text("secret")
    payload = next((tmp_path / "share" / "mine").rglob("dict_checkpoint.pkl"))
    payload.unlink()
    payload.symlink_to(secret)
    shutil.rmtree(experiment)

    refused(capsys, "sync", experiment, "--from", tmp_path / "share" / "mine")

    assert not [path for path in experiment.rglob("*") if path.is_file() and path.read_bytes() == b"secret"]
