"""`TUNE_EXISTING=aside`: the earlier experiment is whole under one of two names, wherever a kill -9 hits."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tests.servers.s3 import ENVIRONMENT, make_bucket, s3_server
from tests.tuner.opening.harness import CLOCK, Opening, files, ran, train
from trainables.errors import TrainablesError
from trainables.transfer.open import open_backend
from trainables.transfer.transfer_jobs import ListKeys, Read
from tuner.error import ExperimentExistsError, OwnedElsewhereError, SettingError, TuneError
from tuner.experiment.existing import Existing, Rerun
from tuner.experiment.lock import claim
from tuner.experiment.paths import EXPERIMENT_NAME, ExperimentPaths
from tuner.opening import again, moving_aside
from tuner.syncer.moving import MARKER, RemoteMove

_NUMBERS = itertools.count()


@pytest.fixture(autouse=True)
def aside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNE_EXISTING", "aside")


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    with s3_server() as port:
        yield port


@pytest.fixture(params=["directory", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "directory":
        return str(tmp_path / "place")
    port = request.getfixturevalue("server")
    for name, value in {**ENVIRONMENT, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}.items():
        monkeypatch.setenv(name, value)
    return f"s3://{make_bucket(port, f'aside-{next(_NUMBERS)}')}/runs"


def ids_here(storage: Path) -> dict[str, list[str]]:
    """Id of each experiment -> its names."""
    found: dict[str, list[str]] = {}
    for path in sorted(storage.glob("[!.]*/experiment.json")):
        found.setdefault(json.loads(path.read_text())["id"], []).append(path.parent.name)
    return found


def ids_there(place: str) -> tuple[dict[str, list[str]], dict[str, set[str]]]:
    """The same of a replica; and the keys of each name, but for those that say who owned it."""
    keys: dict[str, set[str]] = {}
    found: dict[str, list[str]] = {}
    with open_backend(place) as backend:
        for entry in backend.list():
            name, _, key = entry.key.partition("/")
            if not key.startswith("generations/"):
                keys.setdefault(name, set()).add(key)
        for name in [name for name, of_it in keys.items() if "experiment.json" in of_it]:
            found.setdefault(json.loads(backend.read(f"{name}/experiment.json"))["id"], []).append(name)
    return found, keys


def killed(steps: int, start: Callable[[], None]) -> bool:
    """Have another process start, and kill it before the step of a move that comes after so many; False: none did."""
    pid = os.fork()
    if pid:
        return os.WIFSIGNALED(os.waitpid(pid, 0)[1])
    left = itertools.count(steps, -1)

    def before(work: Any) -> Any:
        def step(*arguments: Any, **named: Any) -> Any:
            if not any(isinstance(argument, (Read, ListKeys)) for argument in arguments) and next(left) <= 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return work(*arguments, **named)

        return step

    code = 1
    try:
        RemoteMove._do = before(RemoteMove._do)  # type: ignore[method-assign]
        moving_aside._rename = before(moving_aside._rename)
        moving_aside.fs.remove_quietly = before(moving_aside.fs.remove_quietly)  # type: ignore[attr-defined]
        start()
        code = 0
    finally:
        os._exit(code)


def steps_of(place: str) -> Iterable[int]:
    """Of a bucket a few: `tests/tuner/syncer/test_moving.py` has them all."""
    return (3, 7) if place.startswith("s3:") else itertools.count()


def test_killed_before_any_step_of_a_move_nothing_is_lost_or_mixed(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = tmp_path / "here"
    ran(storage, place)
    whole: dict[str, set[str]] = {}
    for steps in steps_of(place):
        there, keys = ids_there(place)
        whole |= {id: keys[names[-1]] for id, names in there.items()}
        assert set(whole) == set(ids_here(storage))
        if not killed(steps, lambda: ran(storage, place)):
            break
        there, keys = ids_there(place)
        assert {id for id, names in ids_here(storage).items() if len(names) == 1} == set(whole)
        for id, wanted in whole.items():
            assert any(keys[name] >= wanted for name in there.get(id, ())), f"after {steps} steps {id} is whole"
        monkeypatch.setenv("TUNE_EXISTING", "resume" if steps % 2 else "aside")
        ran(storage, place)
        monkeypatch.setenv("TUNE_EXISTING", "aside")
        again._calls.clear()  # another process
    else:
        ran(storage, place)
    assert steps > 5
    there, keys = ids_there(place)
    assert not any(MARKER in names for names in keys.values())
    assert there == ids_here(storage) and all(len(names) == 1 for names in there.values()), "here and there alike"
    ran(storage, place, name="e.1", resume=True)
    shutil.rmtree(storage / "e.1")
    ran(storage, place, name="e.1", resume="AUTO")
    assert ids_there(place)[0] == ids_here(storage)


def test_what_is_only_in_the_replica_moves_there(tmp_path: Path, place: str) -> None:
    ran(tmp_path / "one", place)
    ran(tmp_path / "two", place)
    (old,), (new,) = ids_here(tmp_path / "one"), ids_here(tmp_path / "two")
    assert ids_there(place)[0] == {old: ["e.1"], new: ["e"]}
    assert not (tmp_path / "two" / "e.1").exists()


def test_the_line_says_where_it_is_and_names_resume(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ran(tmp_path)
    before = files(tmp_path / "e")
    ran(tmp_path, verbose=1)
    lines = [line for line in capfd.readouterr().out.splitlines() if "moved aside" in line]
    assert len(lines) == 1 and str(tmp_path / "e.1") in lines[0] and "TUNE_EXISTING=resume" in lines[0]
    after = files(tmp_path / "e.1")
    said = {"name": "e.1", "moved_from": "e"}
    assert json.loads(after.pop("experiment.json")) == {**json.loads(before.pop("experiment.json")), **said}
    assert after == before


def test_a_number_is_free_only_if_it_is_here_and_in_the_replica(tmp_path: Path) -> None:
    storage, place = tmp_path / "here", tmp_path / "place"
    ran(storage, place)
    (place / "e.1").mkdir()
    (place / "e.1" / "x").touch()
    (storage / "e.2").mkdir()
    (storage / "e.2" / "x").touch()
    (storage / "e.3").mkdir()  # nothing is in it
    ran(storage, place)
    assert (storage / "e.3" / "experiment.json").exists() and (place / "e.3" / "experiment.json").exists()


@pytest.mark.parametrize("name", ["e.1", "n" * EXPERIMENT_NAME])
def test_any_name_has_a_next_one_that_can_be_given_again(tmp_path: Path, name: str) -> None:
    ran(tmp_path, name=name)
    ran(tmp_path, name=name)
    (other,) = {path.name for path in tmp_path.iterdir() if not path.name.startswith(".")} - {name}
    ran(tmp_path, name=other, resume=True)


@pytest.mark.parametrize("more", [{}, {"overwrite": True}], ids=["aside", "replaced"])
def test_what_a_killed_run_left_in_the_temporary_directory_goes_with_its_name(
    tmp_path: Path, more: dict[str, bool]
) -> None:
    ran(tmp_path)
    (id,) = ids_here(tmp_path)
    left, of_another = tmp_path / ".tmp" / id, tmp_path / ".tmp" / "another"
    for directory in (left, of_another):
        directory.mkdir(parents=True)
        (directory / "trainable.pickle").touch()
    ran(tmp_path, **more)
    assert not left.exists() and (of_another / "trainable.pickle").exists()


def test_one_with_a_living_owner_stays(tmp_path: Path) -> None:
    storage, place = tmp_path / "here", tmp_path / "place"
    ran(storage, place)
    before = files(tmp_path)
    owner = claim(ExperimentPaths(storage / "e"), clock=CLOCK)
    with pytest.raises(OwnedElsewhereError, match="owned by another driver"):
        ran(storage, place)
    with open_backend(str(place)) as backend:
        backend.put("e/generations/000002.json", (storage / "e/generations/000002.json").read_bytes())
        with pytest.raises(OwnedElsewhereError, match=r"place/e is owned by another driver"):
            ran(tmp_path / "another", place)
        backend.delete(["e/generations/000002.json"])
    owner.release()
    shutil.rmtree(tmp_path / "another", ignore_errors=True)
    assert files(tmp_path) == before


def test_what_cannot_be_moved_over_there_is_said_before_anything_moves(tmp_path: Path) -> None:
    copies = tune.SyncConfig(upload_dir=str(tmp_path / "place"), syncer="cp -r {source}. {target}")
    (tmp_path / "place").mkdir()
    arguments: dict[str, Any] = {"sync_config": copies}
    ran(tmp_path / "here", **arguments)
    before = files(tmp_path)
    with pytest.raises(ExperimentExistsError, match=r"can neither rename nor.*resume=\"AUTO\".*another name"):
        ran(tmp_path / "here", **arguments)
    assert files(tmp_path) == before


def test_an_explicit_word_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran(tmp_path)
    (old,) = ids_here(tmp_path)
    ran(tmp_path, resume="AUTO")
    ran(tmp_path, resume=True)
    assert ids_here(tmp_path) == {old: ["e"]}
    monkeypatch.setenv("TUNE_EXISTING", "resume")
    again._calls.clear()
    ran(tmp_path, overwrite=True)
    assert old not in ids_here(tmp_path) and len(ids_here(tmp_path)) == 1
    monkeypatch.setenv("TUNE_EXISTING", "away")
    with pytest.raises(SettingError, match="TUNE_EXISTING='away' is not accepted; accepted are error, aside, resume"):
        ran(tmp_path)


def test_the_error_names_this_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TUNE_EXISTING")
    ran(tmp_path / "here", tmp_path / "place")
    for storage in ("here", "another"):
        with pytest.raises(ExperimentExistsError, match="TUNE_EXISTING=aside moves it to another name"):
            ran(tmp_path / storage, tmp_path / "place")


def test_one_that_never_had_a_result_is_replaced_as_ever(tmp_path: Path) -> None:
    def fails(config: dict[str, Any]) -> None:
        raise RuntimeError("no result")

    ran(tmp_path, trainable=fails, raise_on_failed_trial=False)
    ran(tmp_path)
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == ["e"]


def test_results_and_a_checkpoint_of_the_earlier_one_are_found_where_it_is_now(tmp_path: Path) -> None:
    def counts(config: dict[str, Any]) -> None:
        checkpoint = tune.get_checkpoint()
        n = checkpoint.to_dict()["n"] if checkpoint is not None else 0
        tune.report({"n": n + 1}, checkpoint=tune.Checkpoint.from_dict({"n": n + 1}))

    settings: dict[str, Any] = {"name": "e", "storage_path": tmp_path, "executor": "inline", "verbose": 0}
    first = tune.run(counts, metric="n", **settings)
    path = Path(str(first.best_checkpoint.path))  # type: ignore[union-attr]
    second = tune.run(counts, metric="n", restore=path, **settings)
    third = tune.run(counts, metric="n", restore=first.best_checkpoint, **settings)
    assert [first.best_result["n"], second.best_result["n"], third.best_result["n"]] == [1, 2, 2]  # type: ignore[index]
    assert [Path(str(one.best_logdir)).parent.name for one in (first, second, third)] == ["e.1", "e.2", "e"]
    assert [len(one.best_dataframe) for one in (first, second, third)] == [1, 1, 1]
    assert first.experiment_path == str(tmp_path / "e.1") and first.best_checkpoint.to_dict()["n"] == 1  # type: ignore[union-attr]


def test_checkpoints_that_are_only_in_the_replica_are_found_under_the_new_name(tmp_path: Path) -> None:
    place = tmp_path / "place"
    copies = tune.SyncConfig(upload_dir=str(place), keep_local=1)

    def saves(config: dict[str, Any]) -> None:
        for n in (1, 2):
            tune.report({"n": n}, checkpoint=tune.Checkpoint.from_dict({"n": n}))

    settings: dict[str, Any] = {"name": "e", "storage_path": tmp_path / "here", "executor": "inline", "verbose": 0}
    kept = tune.run(saves, metric="n", mode="min", sync_config=copies, **settings)
    tune.run(train, sync_config=copies, **settings)
    tune.run(train, sync_config=copies, **{**settings, "name": "e.1"})  # which makes it e.1.1
    for analysis in (kept, tune.ExperimentAnalysis(tmp_path / "here" / "e.1.1", metric="n", mode="min")):
        trial = analysis.trials[0]
        assert not (trial.directory / trial.checkpoints[0].ref.name).exists() and trial.directory.is_dir()
        assert [record.copies for record in trial.checkpoints] == [[f"{place}/e.1.1"]] * 2
        assert analysis.best_checkpoint.to_dict()["n"] == 1  # type: ignore[union-attr]


def test_what_refuses_the_new_run_refuses_it_before_anything_moves(tmp_path: Path) -> None:
    ran(tmp_path)
    before, lock = files(tmp_path), threading.Lock()

    def holds(config: dict[str, Any]) -> None:
        lock.release()

    refused: list[dict[str, Any]] = [
        {"trainable": holds, "executor": "local"},
        {"scheduler": "no such one"},
        {"resources_per_trial": {"cpu": 10**6}},
    ]
    for settings in refused:
        with pytest.raises((TuneError, TrainablesError)):
            ran(tmp_path, **settings)
    assert files(tmp_path) == before


@pytest.mark.parametrize("what", ["moved", "resumed", "in the replica"])
def test_who_comes_second_looks_again(tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, place = tmp_path / "here", tmp_path / "place"
    ran(storage, place)

    def faster() -> None:
        if what == "moved":
            ran(storage, place)
        elif what == "resumed":
            ran(storage, place, resume=True)
        else:
            record = (storage / "e/generations/000001.json").read_bytes().replace(b":1,", b":2,", 1)
            with open_backend(str(place)) as backend:
                backend.put("e/generations/000002.json", record)

    opening = Opening(storage, place, rerun=Rerun(Existing.ASIDE))
    assert opening.start(faster) is None
    assert set(ids_here(storage)) == set(ids_there(str(place))[0]) and not (storage / "e" / ".moving-aside").exists()
    if what != "in the replica":
        assert opening.start() is None  # it is moved now
        assert len(ids_here(storage)) == (2 if what == "moved" else 1)
        assert opening.start() is not None
