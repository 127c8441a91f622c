"""Settings that are not accepted are refused at once, with the value, what is accepted, and the nearest name (D20)."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from trainables.errors import InvalidSettingError
from tuner.error import ResourceError, SettingError


def train(config: dict[str, Any]) -> None:
    tune.report({"loss": 1.0})


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"metric": 5}, "metric=5 is not accepted; accepted are the name of a metric"),
        ({"metric": ["a", 5]}, "metric=['a', 5] is not accepted"),
        ({"metric": ""}, "metric='' is not accepted"),
        ({"overwrite": "x"}, "overwrite='x' is not accepted; accepted: True, False"),
        ({"raise_on_failed_trial": "x"}, "raise_on_failed_trial='x' is not accepted; accepted: True, False"),
        ({"takeover": "False"}, "takeover='False' is not accepted; accepted: True, False"),
        ({"chdir_to_trial_dir": "no"}, "chdir_to_trial_dir='no' is not accepted"),
        ({"checkpoint_at_end": "x"}, "checkpoint_at_end='x' is not accepted"),
        ({"storage_path": ""}, "storage_path='' is not accepted; accepted: None, a path, one with ~, or file:///..."),
        ({"restore": 5}, "restore=5 is not accepted; accepted is a checkpoint"),
        ({"restore": ""}, "restore='' is not accepted; accepted is a checkpoint"),
        ({"max_concurrent_trials": -1}, "accepted are 1, 2, ... and None or 0 (no limit)"),
        ({"points_to_evaluate": []}, "search_alg=BasicVariantGenerator(points_to_evaluate=...)"),
        ({"grace_period": 1}, "scheduler=AsyncHyperBandScheduler(grace_period=...)"),
        ({"upload_dir": "s3://b"}, "sync_config=SyncConfig(upload_dir=...)"),
        ({"num_to_keep": 1}, "checkpoint_config=CheckpointConfig(num_to_keep=...)"),
        ({"param_space": {}}, "belongs to another: Tuner(param_space=...)"),
        ({"num_sample": 2}, "did you mean 'num_samples'?"),
    ],
)
def test_d20_a_setting_of_another_kind_is_refused_and_nothing_is_made(
    tmp_path: Path, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        tune.run(train, **{"storage_path": tmp_path / "results", "executor": "inline", **settings})
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("call", [tune.Tuner.can_restore, lambda path: tune.Tuner.restore(path, train)])
@pytest.mark.parametrize("path", [5, "", None])
def test_d20_a_restore_needs_a_path(call: Any, path: Any) -> None:
    with pytest.raises(SettingError, match=re.escape(f"path={path!r} is not accepted; accepted is an experim")):
        call(path)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: tune.TuneConfig(num_sample=3), "argument of TuneConfig 'num_sample'; did you mean 'num_samples'?"),
        (lambda: tune.Tuner(train, param_spce={}), "argument of Tuner 'param_spce'; did you mean 'param_space'?"),
        (
            lambda: tune.Tuner.restore("x", train, resume_erored=True),
            "argument of Tuner.restore 'resume_erored'; did you mean 'resume_errored'?",
        ),
        (lambda: tune.Tuner.restore("x", train, restart_errored="no"), "restart_errored='no' is not accepted"),
    ],
)
def test_d20_a_misspelt_argument_has_the_nearest(call: Any, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        call()


def test_d20_a_misspelt_resource_has_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match="did you mean 'cpu'"):
        tune.run(train, storage_path=tmp_path, resources_per_trial={"cpus": 1})


@pytest.mark.parametrize(
    ("name", "place"),
    [("ASHAScheduler", "schedulers"), ("LocalExecutor", "executors"), ("JsonLoggerCallback", "logger")],
)
def test_what_lies_in_a_module_of_its_own_is_told_where(name: str, place: str) -> None:
    with pytest.raises(AttributeError, match=f"from tuner.{place} import {name}"):
        getattr(tune, name)


@pytest.mark.parametrize(
    ("inside", "said"),
    [
        ((), "is empty"),
        (("run/experiment.json",), "holds experiments; give one of them: run"),
        (("trial.json", "result.json"), "is the directory of a trial"),
    ],
)
def test_d20_restore_of_a_directory_that_is_no_checkpoint_is_refused(
    tmp_path: Path, inside: tuple[str, ...], said: str
) -> None:
    given = tmp_path / "given"
    given.mkdir()
    for name in inside:
        (given / name).parent.mkdir(exist_ok=True)
        (given / name).write_text("{}")
    with pytest.raises(SettingError, match=re.escape(said)):
        tune.run(train, storage_path=tmp_path / "results", restore=given, executor="inline")
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("place", ["s3://b/../x", "s3://b//x//y", "gs://b/x//y", "s4://b/x", "s3://", "s3://|x/y"])
@pytest.mark.parametrize("setting", ["SyncConfig: upload_dir", "storage_path"])
def test_d20_a_place_that_cannot_be_meant_is_refused_with_the_setting_that_names_it(
    tmp_path: Path, setting: str, place: str
) -> None:
    given: dict[str, Any] = {"storage_path": place}
    if setting != "storage_path":
        given = {"storage_path": tmp_path / "results", "sync_config": tune.SyncConfig(upload_dir=place)}
    with pytest.raises(InvalidSettingError, match=f"^{re.escape(setting)}: .*{re.escape(place)}"):
        tune.run(train, name="e", executor="inline", **given)
    assert not (tmp_path / "results").exists()


def test_d20_restore_of_a_trials_directory_names_its_checkpoints(tmp_path: Path) -> None:
    def saves(config: dict[str, Any]) -> None:
        tune.report({"loss": 1.0}, checkpoint=tune.Checkpoint.from_dict({"a": 1}))

    settings: dict[str, Any] = {"storage_path": tmp_path, "executor": "inline", "verbose": 0}
    trial = tune.run(saves, name="first", **settings).trials[0]
    with pytest.raises(SettingError, match="holds checkpoints; give one of them: checkpoint_000001"):
        tune.run(saves, name="second", restore=trial.path, **settings)


class Locked:
    """Can be pickled, and not be unpickled."""

    def __reduce__(self) -> Any:
        return _open, ("no",)


LOCKED = True


def _open(word: str) -> Any:
    if LOCKED:
        raise PermissionError(f"{word} entry")
    return word


@pytest.mark.parametrize("executor", ["inline", "local"])
def test_t06_a_config_value_that_cannot_be_unpickled_is_named(tmp_path: Path, executor: str) -> None:
    with pytest.raises(TypeError, match=r"config value model/lock is a .*Locked.*cannot be unpickled: Permission"):
        tune.run(
            train, name="e", config={"model": {"lock": Locked()}}, storage_path=tmp_path, executor=executor, verbose=0
        )
    assert not (tmp_path / "e").exists()


def test_t06_a_blob_that_cannot_be_unpickled_any_more_is_named_with_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(globals(), "LOCKED", False)
        tune.run(train, name="e", config={"a": [Locked()]}, storage_path=tmp_path, executor="inline", verbose=0)
    (trial,) = tune.ExperimentAnalysis(tmp_path / "e").trials
    with pytest.raises(TypeError, match=r"config value a/0 is a .*cannot be unpickled: PermissionError"):
        _ = trial.config


def _counts(config: dict[str, Any]) -> None:
    for n in (1, 2):
        tune.report({"n": n}, checkpoint=tune.Checkpoint.from_dict({"n": n}))


class _FailsEarly(tune.Callback):
    def setup(self, **info: Any) -> None:
        raise RuntimeError("no licence today")


def _tree(root: Path) -> dict[str, bytes | None]:
    """Every path below a directory, with the content of the files."""
    return {str(path.relative_to(root)): path.read_bytes() if path.is_file() else None for path in root.rglob("*")}


_OTHER_SPACE = ({"config": {"i": tune.grid_search([1, 2, 3])}}, "the search space is not the one that .*share/e was")
_OTHER_CODE = ({"run_or_experiment": train}, "share/e was run with the trainable '_counts', not 'train'")
_NO_SCHEDULER = ({"scheduler": "nobody"}, "nobody")
_NO_SETUP = ({"callbacks": [_FailsEarly()]}, "no licence today")


@pytest.mark.parametrize(
    ("machine", "changed", "raised"),
    [
        *(("empty", *case) for case in (_OTHER_SPACE, _OTHER_CODE, _NO_SCHEDULER, _NO_SETUP)),
        ("made", *_NO_SETUP),
        ("older", *_OTHER_SPACE),
    ],
)
def test_r5_a_refused_resume_leaves_the_disk_as_it_was(
    tmp_path: Path, machine: str, changed: dict[str, Any], raised: str
) -> None:
    first = tmp_path / "first"
    settings: dict[str, Any] = {
        "run_or_experiment": _counts,
        "name": "e",
        "config": {"i": tune.grid_search([1, 2])},
        "sync_config": tune.SyncConfig(upload_dir=tmp_path / "share"),
        "executor": "inline",
        "verbose": 0,
    }
    tune.run(**settings, storage_path=first)
    if machine == "older":
        shutil.copytree(first, tmp_path / "other" / "disk", copy_function=shutil.copy2)
        tune.run(**{**settings, "num_samples": 2}, storage_path=first, resume=True)
    elif machine == "made":
        (tmp_path / "other" / "disk").mkdir(parents=True)
    before = _tree(tmp_path / "other")
    more = {"num_samples": 3, "resume": "AUTO", "storage_path": tmp_path / "other" / "disk"}

    with pytest.raises(Exception, match=raised):
        tune.run(**{**settings, **more, **changed})

    assert _tree(tmp_path / "other") == before
    assert (tmp_path / "other").exists() == (machine != "empty")
    analysis = tune.run(**{**settings, **more})
    assert [trial.checkpoint.to_dict() for trial in analysis.trials] == [{"n": 2}] * 6
