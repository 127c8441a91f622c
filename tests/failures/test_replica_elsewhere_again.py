"""What somebody from outside did with replicas: moved them, lost a part, ran `restore=` on another machine."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from replicas import Store, Watched

import tuner as tune
from tests.failures.checkpoint_faults import Crash, die, in_child
from trainables.errors import InvalidSettingError
from trainables.store import fs
from trainables.transfer import transfer_jobs
from trainables.transfer.job_worker import JobWorker
from trainables.transfer.local import LocalBackend
from tuner.cli import main
from tuner.error import ExperimentDamagedError, ExperimentExistsError, ResumeError, SettingError
from tuner.opening import restore as inheriting


def count(config: dict[str, Any]) -> None:
    checkpoint = tune.get_checkpoint()
    step = int(checkpoint.to_dict()["step"]) if checkpoint is not None else 0
    while step < 5:
        step += 1
        tune.report({"step": step}, checkpoint=tune.Checkpoint.from_dict({"step": step}))


def run(storage: Path, place: Path | str | None, **settings: Any) -> Any:
    config = tune.SyncConfig() if place is None else tune.SyncConfig(upload_dir=place)
    chosen = {
        "name": "e", "executor": "inline", "verbose": 0, "num_samples": 3, "keep_checkpoints_num": 2, "resume": "AUTO",
        "sync_config": config, "max_concurrent_trials": 1, **settings,
    }  # fmt: skip
    return tune.run(count, storage_path=storage, **chosen)


def killed(storage: Path, place: Path | str, at: int) -> None:
    status = in_child(lambda: run(storage, place, callbacks=[Crash(at, trials=2)]))
    assert os.WIFSIGNALED(status)


def test_f13_a_replica_that_was_moved_is_what_results_are_read_from(tmp_path: Path) -> None:
    killed(tmp_path / "a", tmp_path / "old", 3)
    shutil.rmtree(tmp_path / "a")
    os.rename(tmp_path / "old", tmp_path / "new")
    analysis = run(tmp_path / "b", tmp_path / "new")
    shutil.rmtree(tmp_path / "b")

    again = run(tmp_path / "c", tmp_path / "new")
    for found in (analysis, again):
        assert [trial.checkpoint.to_dict()["step"] for trial in found.trials] == [5, 5, 5]


def test_r5_a_replica_without_its_description_is_left_alone(tmp_path: Path) -> None:
    run(tmp_path / "a", tmp_path / "place")
    os.unlink(tmp_path / "place" / "e" / "experiment.json")
    before = sorted(str(file) for file in (tmp_path / "place").rglob("*") if "generations" not in str(file))

    with pytest.raises(ExperimentDamagedError, match="holds checkpoints but no experiment.json"):
        run(tmp_path / "b", tmp_path / "place")
    assert before == sorted(str(file) for file in (tmp_path / "place").rglob("*") if "generations" not in str(file))


def test_r4_a_restored_experiment_goes_on_from_its_own_replica_on_another_machine(tmp_path: Path) -> None:
    run(tmp_path / "a", tmp_path / "first", num_samples=1)
    restored = {"name": "n", "restore": f"{tmp_path.as_uri()}/first/e", "num_samples": 3}
    first = run(tmp_path / "b", tmp_path / "second", **restored)
    shutil.rmtree(tmp_path / "b")

    again = run(tmp_path / "c", tmp_path / "second", **restored)
    assert [trial.trial_id for trial in again.trials] == [trial.trial_id for trial in first.trials]
    assert [trial.attempt for trial in again.trials] == [trial.attempt for trial in first.trials], "nothing ran again"


def test_r5_resume_local_does_not_look_elsewhere(tmp_path: Path) -> None:
    run(tmp_path / "a", tmp_path / "place")
    with pytest.raises(ResumeError, match="there is no experiment at"):
        run(tmp_path / "b", tmp_path / "place", resume="LOCAL")


def test_a_place_within_the_experiment_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    for place in ("e", "e/copies"):
        with pytest.raises(SettingError, match="lies within the experiment's own directory"):
            run(tmp_path / "a", tmp_path / "a" / place)
    assert not (tmp_path / "a").exists()


def test_verify_does_not_count_what_is_only_elsewhere_as_missing(tmp_path: Path, capsys: Any) -> None:
    run(tmp_path / "a", tmp_path / "place")
    shutil.rmtree(tmp_path / "a")
    run(tmp_path / "b", tmp_path / "place")
    assert main(["verify", str(tmp_path / "b" / "e")]) == 0
    said = capsys.readouterr().out
    assert f"{tmp_path}/place/e" in said and "no problems" in said


# --- restore= an experiment elsewhere: its checkpoints are copied over there, and the old one may go -------------


def steps(trial: Any) -> list[int]:
    return [trial.open_checkpoint(record).to_dict()["step"] for record in trial.checkpoints]


def whole_without_the_old_one(analysis: Any, uri: str, count: int) -> None:
    """All results and checkpoints of all trials are had from the new replica alone."""
    shutil.rmtree(analysis.experiment_path)
    there = tune.ExperimentAnalysis(uri, metric="step", mode="max")
    assert [trial.status for trial in there.trials] == ["TERMINATED"] * count
    assert [steps(trial) for trial in there.trials] == [[4, 5]] * count
    for result in tune.ResultGrid(there):
        assert result.checkpoint is not None and result.checkpoint.to_dict()["step"] == 5
        assert [made.to_dict()["step"] for made, _ in result.best_checkpoints] == [4, 5]
        assert result.metrics_dataframe is not None and list(result.metrics_dataframe["step"]) == [1, 2, 3, 4, 5]
    assert there.best_checkpoint is not None


@pytest.mark.parametrize("target", ["the same place", "another prefix", "a directory"])
def test_r4_a_restored_experiment_needs_nothing_of_the_old_one(
    tmp_path: Path, store: Store, watched: Watched, target: str, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNE_CACHE_DIR", str(tmp_path / "cache"))
    killed(tmp_path / "a", store.uri, 3)
    ended = {trial.status for trial in store.state(tmp_path / "books").trials}
    assert ended == {"TERMINATED", "RUNNING"}
    old = {key: store.backend.read(key) for key in store.keys()}
    shutil.rmtree(tmp_path / "a")
    read: list[str] = []
    watched.before = lambda method, key, headers: read.append(key) if method == "GET" else None
    places = {"the same place": None, "another prefix": f"{store.uri}/../new", "a directory": str(tmp_path / "place")}
    place = places[target]
    if place is not None and ".." in place:
        place = store.uri.removesuffix("/runs") + "/new"

    analysis = run(tmp_path / "b", place, name="n", restore=f"{store.uri}/e", num_samples=3)

    payload = [key for key in read if "/e/" in key and "/checkpoint_" in key and not key.endswith(".manifest.json")]
    assert bool(payload) == (target == "a directory"), "within a bucket nothing is fetched to be copied"
    assert {key: store.backend.read(key) for key in store.keys()} == old, "the old one is not touched"
    assert main(["verify", analysis.experiment_path]) == 0
    uri = f"{place or store.uri}/n"
    store.backend.delete_tree("e")
    assert main(["verify", uri]) == 0
    assert "no problems" in capsys.readouterr().out
    whole_without_the_old_one(analysis, uri, 3)


def dies_at(number: int, kind: type[transfer_jobs.TransferJob]) -> Callable[[], None]:
    """What makes the process die before that job of its kind is done."""

    def patch() -> None:
        seen, real = [], JobWorker._do

        def do(self: JobWorker, job: Any, moved: Any) -> bytes:
            seen.append(job) if isinstance(job, kind) else None
            if len(seen) == number:
                die()
            return real(self, job, moved)

        JobWorker._do = do  # type: ignore[method-assign]

    return patch


@pytest.mark.parametrize(
    ("number", "kind", "machine"),
    [
        (3, transfer_jobs.CopyPayload, "the same machine"),
        (3, transfer_jobs.CopyManifest, "another machine"),
        pytest.param(1, transfer_jobs.CopyPayload, "another machine", marks=pytest.mark.soak),
        pytest.param(6, transfer_jobs.CopyManifest, "the same machine", marks=pytest.mark.soak),
    ],
)
def test_r10_a_restore_that_was_killed_while_it_copied_goes_on(
    tmp_path: Path, number: int, kind: type[transfer_jobs.TransferJob], machine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNE_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "place").mkdir()
    store = Store(LocalBackend(tmp_path / "place"))
    run(tmp_path / "a", tmp_path / "place")
    shutil.rmtree(tmp_path / "a")
    again = {"name": "n", "restore": tune.SyncConfig(upload_dir=str(tmp_path / "place")), "num_samples": 4}
    patch = dies_at(number, kind)

    def first() -> None:
        patch()
        run(tmp_path / "b", None, **again)

    assert os.WIFSIGNALED(in_child(first))
    complete = {key for found in store.checkpoints("n").values() for key in found.values()}
    assert len(complete) == (number - 1 if kind is transfer_jobs.CopyManifest else len(complete)) < 6
    if machine == "another machine":
        shutil.rmtree(tmp_path / "b")
    copied: list[str] = []
    real = JobWorker._do
    monkeypatch.setattr(
        JobWorker,
        "_do",
        lambda self, job, moved: (
            copied.append(job.key) if isinstance(job, transfer_jobs.CopyPayload) else None,
            real(self, job, moved),
        )[1],
    )

    analysis = run(tmp_path / "b", None, **again)

    assert len(copied) == len(set(copied)) == 6 - len(complete) and not complete & set(copied)
    assert fs.exists(tmp_path / "place" / "e" / "experiment.json")
    shutil.rmtree(tmp_path / "place" / "e")
    assert main(["verify", analysis.experiment_path]) == 0 and main(["verify", f"{tmp_path}/place/n"]) == 0
    whole_without_the_old_one(analysis, f"{tmp_path.as_uri()}/place/n", 4)


def test_r4_a_checkpoint_that_is_damaged_in_the_old_replica_is_named_and_nothing_else_is_lost(
    tmp_path: Path, caplog: Any
) -> None:
    analysis = run(tmp_path / "a", tmp_path / "place")
    broken = analysis.trials[0].checkpoints[0].ref.name
    shutil.rmtree(tmp_path / "a")
    (damaged, *_) = (
        file
        for file in (tmp_path / "place" / "e" / analysis.trials[0].dirname / broken).iterdir()
        if file.name != ".manifest.json"
    )
    damaged.unlink()

    restored = run(
        tmp_path / "b", None, name="n", restore=tune.SyncConfig(upload_dir=str(tmp_path / "place")), num_samples=3
    )

    shutil.rmtree(tmp_path / "place" / "e")
    assert [steps(trial) for trial in restored.trials] == [[5], [4, 5], [4, 5]]
    assert len([line for line in caplog.messages if broken in line and "is not used" in line]) == 1
    assert main(["verify", f"{tmp_path}/place/n"]) == 0


@pytest.mark.parametrize("taken", ["e", "n"])
def test_restore_under_a_name_that_is_taken_over_there_is_refused_and_touches_nothing(
    tmp_path: Path, store: Store, taken: str
) -> None:
    for name in {"e", taken}:
        run(tmp_path / "a", store.uri, name=name)
    before = {key: store.backend.read(key) for name in ("e", "n") for key in store.keys(name)}

    with pytest.raises(ExperimentExistsError, match=f"there is an experiment at .*/{taken}: "):
        run(tmp_path / "b", store.uri, name=taken, restore=f"{store.uri}/e", resume=False)

    assert {key: store.backend.read(key) for name in ("e", "n") for key in store.keys(name)} == before
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("name", ["e", "n"])
def test_overwrite_is_refused_with_an_experiment_to_restore(tmp_path: Path, elsewhere: bool, name: str) -> None:
    """One of the two would be lost, and which is not said."""
    run(tmp_path / "a", tmp_path / "place")
    before = sorted(tmp_path.rglob("*"))
    restore = f"{tmp_path.as_uri()}/place/e" if elsewhere else tmp_path / "a" / "e"

    with pytest.raises(SettingError, match=r"overwrite=True .* restore="):
        run(tmp_path / "a", None, name=name, restore=restore, resume=False, overwrite=True)

    assert sorted(tmp_path.rglob("*")) == before


def test_restore_under_a_name_that_is_taken_here_is_refused(tmp_path: Path) -> None:
    for name in ("e", "n"):
        run(tmp_path / "a", None, name=name)
    before = sorted(tmp_path.rglob("*"))

    with pytest.raises(ExperimentExistsError, match="there is an experiment .*at .*/n: "):
        run(tmp_path / "a", None, name="n", restore=tmp_path / "a" / "e", resume=False)

    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("refused", ["place", "settings", "space"])
def test_a_restore_that_is_refused_leaves_nothing_under_the_new_name(
    tmp_path: Path, elsewhere: bool, refused: str
) -> None:
    run(tmp_path / "a", tmp_path / "place", config={"x": tune.uniform(0, 1)})
    restore = f"{tmp_path.as_uri()}/place/e" if elsewhere else tmp_path / "a" / "e"
    before = sorted(tmp_path.rglob("*"))
    space = {"x": tune.uniform(0, 1)}
    wrong: dict[str, dict[str, Any]] = {
        "place": {"config": space, "place": tmp_path / "b" / "n" / "inside"},
        "settings": {"config": space, "place": None, "sync_config": tune.SyncConfig(keep_local=1)},
        "space": {"config": {"y": tune.uniform(0, 1)}, "place": None},
    }

    with pytest.raises((SettingError, ResumeError)):
        run(tmp_path / "b", name="n", restore=restore, num_samples=4, **wrong[refused])

    assert sorted(tmp_path.rglob("*")) == before
    right: dict[str, Any] = {"config": space, "num_samples": 4, "resume": False}
    assert len(run(tmp_path / "b", None, name="n", restore=restore, **right).trials) == 4


@pytest.mark.parametrize("restore", ["foo://x", "foo://x/y"])
def test_restore_from_an_unknown_scheme_says_so(tmp_path: Path, restore: str) -> None:
    with pytest.raises(InvalidSettingError, match="the scheme 'foo' is not known"):
        run(tmp_path / "a", None, name="n", restore=restore)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_r12_two_restores_at_once_leave_each_other_what_they_have_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: bool
) -> None:
    run(tmp_path / "a", tmp_path / "place" if elsewhere else None)
    place = tune.SyncConfig(upload_dir=str(tmp_path / "place"))
    restored = {"name": "n", "restore": place if elsewhere else tmp_path / "a" / "e"}
    module = "tuner.opening.restore._fetch" if elsewhere else "tuner.opening.restore._copy"
    begun: list[Any] = []
    real: Callable[..., Any] = inheriting._fetch if elsewhere else inheriting._copy

    def copy(*arguments: Any, **more: Any) -> Any:
        answer = real(*arguments, **more)
        if not begun:
            begun.append("one that starts meanwhile")
            begun.append(run(tmp_path / "b", None, num_samples=4, **restored))
        return answer

    monkeypatch.setattr(module, copy)

    analysis = run(tmp_path / "b", None, num_samples=4, **restored)

    assert [trial.trial_id for trial in analysis.trials] == [trial.trial_id for trial in begun[1].trials]
    assert [steps(trial) for trial in analysis.trials] == [[4, 5]] * 4
    assert [name for name in os.listdir(tmp_path / "b") if "inherited" in name] == []


def test_what_a_killed_restore_had_copied_is_removed_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path / "a", None)
    restored = {"name": "n", "restore": tmp_path / "a" / "e"}

    def first() -> None:
        inheriting._rename = lambda *arguments: die()  # type: ignore[assignment]
        run(tmp_path / "b", None, **restored)

    assert os.WIFSIGNALED(in_child(first))
    (left,) = os.listdir(tmp_path / "b")
    assert "inherited" in left
    run(tmp_path / "b", None, **restored)
    assert not (tmp_path / "b" / left).exists()


@pytest.mark.parametrize("elsewhere", [False, True])
def test_r1_what_restore_copies_is_durable_before_it_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: bool
) -> None:
    run(tmp_path / "a", tmp_path / "place" if elsewhere else None)
    synced, late, real_sync, real_rename = set(), [], os.fsync, fs.rename

    def sync(fd: int) -> None:
        real_sync(fd)
        synced.add(os.fstat(fd).st_ino)

    def rename(source: Any, target: Any) -> None:
        if Path(target) == tmp_path / "b" / "n":
            late.append([path for path in (Path(source), *Path(source).rglob("*")) if path.stat().st_ino not in synced])
        real_rename(source, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(fs, "rename", rename)
    none = tune.SyncConfig(upload_dir=str(tmp_path / "place"), syncer=None)
    restore = tune.SyncConfig(upload_dir=str(tmp_path / "place")) if elsewhere else tmp_path / "a" / "e"
    config = none if elsewhere else tune.SyncConfig()
    restored = run(tmp_path / "b", None, name="n", restore=restore, sync_config=config)

    assert late == [[]]
    assert [steps(trial) for trial in restored.trials] == [[4, 5]] * 3


def test_r4_without_a_place_for_copies_a_restored_experiment_is_whole_here(tmp_path: Path) -> None:
    run(tmp_path / "a", tmp_path / "place")
    shutil.rmtree(tmp_path / "a")
    restore = tune.SyncConfig(upload_dir=str(tmp_path / "place"))
    none = tune.SyncConfig(upload_dir=str(tmp_path / "place"), syncer=None)
    restored = run(tmp_path / "b", None, name="n", restore=restore, num_samples=3, sync_config=none)
    shutil.rmtree(tmp_path / "place")
    assert [steps(trial) for trial in restored.trials] == [[4, 5]] * 3
    assert main(["verify", restored.experiment_path]) == 0
