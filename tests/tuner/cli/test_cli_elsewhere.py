"""The verbs on experiments elsewhere: in a bucket of a real server, and in a shared directory."""

from __future__ import annotations

import itertools
import json
import os
import pickle
import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import blake3
import msgspec
import pytest

import tuner as tune
from tests.servers.s3 import ENVIRONMENT, make_bucket, s3_server
from trainables.errors import TransferError
from trainables.store.manifest import MANIFEST_NAME
from trainables.transfer import between, remote_checkpoints
from trainables.transfer.open import open_backend
from trainables.wire import CheckpointRef
from tuner.cli import main
from tuner.clock import SystemClock
from tuner.experiment import events as ev
from tuner.experiment.generations import read_records
from tuner.experiment.journal import JournalWriter, read_journal
from tuner.experiment.lock import claim
from tuner.experiment.paths import ExperimentPaths
from tuner.tools import sync as sync_tool

_NUMBERS = itertools.count()
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    with s3_server() as port:
        yield port


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TUNE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def bucket(server: int, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in {**ENVIRONMENT, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server}"}.items():
        monkeypatch.setenv(name, value)
    return f"s3://{make_bucket(server, f'cli-{next(_NUMBERS)}')}/runs"


@pytest.fixture(params=["s3", "directory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    found: str = request.getfixturevalue("bucket") if request.param == "s3" else str(tmp_path / "share")
    return found


def counts(config: dict[str, Any]) -> None:
    for n in (1, 2, 3):
        tune.report({"n": n}, checkpoint=tune.Checkpoint.from_dict({"n": n}))


def ran(place: str | None, storage: Path, resume: str | None = None, **more: Any) -> Path:
    tune.run(
        counts,
        resume=resume,
        name="mine",
        config={"i": tune.grid_search([0, 1])},
        metric="n",
        storage_path=storage,
        sync_config=tune.SyncConfig(upload_dir=place, **more),
        executor="inline",
        verbose=0,
    )
    return storage / "mine"


def answer(capsys: pytest.CaptureFixture[str], *arguments: str | Path, status: int = 0) -> str:
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == status, capsys.readouterr().err
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) != 0
    return capsys.readouterr().err


def contents(experiment: str | Path) -> dict[str, bytes]:
    """Every file of the checkpoints of an experiment, with its bytes."""
    above, _, name = str(experiment).rpartition("/")
    backend = open_backend(above)
    keys = [entry.key for entry in backend.list(name) if "/checkpoint_" in entry.key]
    found = {key.removeprefix(f"{name}/"): backend.read(key) for key in keys}
    backend.close()
    return found


# --- ls, show, verify ----------------------------------------------------------------------------------


def test_ls_lists_a_place_elsewhere(place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran(place, tmp_path / "results")
    backend = open_backend(place)
    backend.put("foreign/file", b"x")
    backend.put("broken/experiment.json", b"{")
    backend.close()

    rows = {row["name"]: row for row in json.loads(answer(capsys, "ls", place, "--json"))}

    assert sorted(rows) == ["broken", "mine"]
    assert (rows["mine"]["trials"], rows["mine"]["done"], rows["mine"]["checkpoints"]) == (2, 2, 6)
    assert rows["mine"]["path"] == f"{place}/mine"
    assert "unreadable" in rows["broken"]["state"]


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


def test_show_of_a_place_elsewhere(bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran(bucket, tmp_path / "results")
    shutil.rmtree(tmp_path / "results")

    shown = answer(capsys, "show", f"{bucket}/mine")
    facts = json.loads(answer(capsys, "show", f"{bucket}/mine", "1", "--json"))

    assert shown.startswith(f"{bucket}/mine\n") and shown.count("TERMINATED") == 2
    assert facts["path"].startswith(f"{bucket}/mine/") and facts["config"] == {"i": 1}


def test_show_tells_the_copies(bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    experiment = ran(bucket, tmp_path / "results", keep_local=1)

    shown = answer(capsys, "show", experiment)
    (copy,) = json.loads(answer(capsys, "show", experiment, "--json"))["copies"]

    assert f"copies at {bucket}/mine: 6 checkpoints, the newest saved " in shown and "nothing is waiting" in shown
    assert (copy["place"], copy["checkpoints"], copy["lacking"]) == (f"{bucket}/mine", 6, 0)
    assert "not here" in answer(capsys, "show", experiment, "0")
    assert json.loads(answer(capsys, "show", ran(None, tmp_path / "alone"), "--json"))["copies"] == []


@pytest.mark.parametrize("new", ["here", "there"])
def test_show_names_no_copies_of_the_experiment_that_was_continued(
    new: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = ran(f"{tmp_path}/old", tmp_path / "first")
    there = f"{tmp_path}/new/mine"
    tune.run(
        counts,
        restore=f"{tmp_path}/old/mine" if new == "there" else old,
        name="mine",
        storage_path=tmp_path / "second",
        sync_config=tune.SyncConfig(upload_dir=f"{tmp_path}/new", syncer="auto" if new == "there" else None),
        executor="inline",
        verbose=0,
    )
    copies = json.loads(answer(capsys, "show", tmp_path / "second" / "mine", "--json"))["copies"]
    trial = json.loads(answer(capsys, "show", tmp_path / "second" / "mine", "0", "--json"))

    assert [(copy["place"], copy["checkpoints"], copy["lacking"]) for copy in copies] == (
        [(there, 6, 0)] if new == "there" else []
    )
    assert [item["copies"] for item in trial["checkpoints"]] == [[there] if new == "there" else []] * 3


def test_verify_hashes_everything_there(bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran(bucket, tmp_path / "results")
    found = json.loads(answer(capsys, "verify", f"{bucket}/mine", "--json"))
    assert (found["trials"], found["checkpoints"], found["problems"]) == (2, 6, []) and found["blobs"]

    backend = open_backend(bucket)
    keys = [entry.key for entry in backend.list("mine")]
    payloads = [key for key in keys if key.endswith("dict_checkpoint.pkl")]
    backend.put(payloads[0], b"x" * len(backend.read(payloads[0])))
    backend.put(payloads[1], b"short")
    backend.delete([payloads[2].replace("dict_checkpoint.pkl", MANIFEST_NAME)])
    backend.put(next(key for key in keys if "/blobs/" in key), b"spoiled")
    backend.close()

    problems = json.loads(answer(capsys, "verify", f"{bucket}/mine", "--json", status=1))["problems"]
    assert len(problems) == 4, problems
    assert all(problem.startswith(f"{bucket}/mine/") or "mine/" in problem for problem in problems)


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
@pytest.mark.parametrize("form", ["{0}", "file://{0}", "{0}/../link/mine", "{0}/sub/mine"])
def test_sync_of_an_experiment_with_itself_is_refused(
    way: str, form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = ran(None, tmp_path / "results")
    (experiment / "sub").mkdir()
    (experiment.parent / "link").symlink_to(experiment.parent)
    before = sorted(experiment.rglob("*"))

    said = refused(capsys, "sync", experiment, way, form.format(experiment))

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

    def dies(*arguments: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise TransferError("the store is gone")
        return real(*arguments)

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


@pytest.mark.parametrize("where", ["place", "here"])
def test_verify_looks_at_a_single_checkpoint(
    where: str, bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = ran(None, tmp_path / "results")
    above = bucket if where == "place" else str(tmp_path / "best")
    answer(capsys, "cp", next(experiment.glob("*_00000")) / "checkpoint_000003", f"{above}/")

    said = answer(capsys, "verify", f"{above}/checkpoint_000003")
    assert said.startswith(f"{above}/checkpoint_000003: a checkpoint (") and said.endswith("no problems\n")
    backend = open_backend(above)
    payload = "checkpoint_000003/dict_checkpoint.pkl"
    backend.put(payload, b"x" * len(backend.read(payload)))
    backend.close()
    found = json.loads(answer(capsys, "verify", f"{above}/checkpoint_000003", "--json", status=1))
    assert (
        found["problems"] == [f"{above}/{payload} is not what was published: its BLAKE3 hash differs"]
        and found["checkpoints"] == 1
    )


def test_verify_says_where_a_checkpoint_lies(bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    experiment = ran(bucket, tmp_path / "results", keep_local=1)
    found = json.loads(answer(capsys, "verify", experiment, "--json"))
    assert found["problems"] == [] and len(found["notes"]) == 4
    assert all(note.endswith(f"is not here: it was copied to {bucket}/mine") for note in found["notes"])


# --- attacks -------------------------------------------------------------------------------------------


class Poison:
    """Ends this process when it is unpickled."""

    def __reduce__(self) -> tuple[Any, tuple[int]]:
        return os._exit, (99,)


def poison(blobs: Path) -> None:
    """Every blob becomes one that must not be unpickled, under its own hash and under that of what was there."""
    data = pickle.dumps(Poison())
    for blob in list(blobs.iterdir()):
        settings = blobs.parent / "experiment.json"
        settings.write_text(settings.read_text().replace(blob.name, blake3.blake3(data).hexdigest()))
        blob.unlink()
    (blobs / blake3.blake3(data).hexdigest()).write_bytes(data)


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
