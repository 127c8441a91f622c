"""The table of settings: what `run`, the configs and the config file take is what it says."""

from __future__ import annotations

import datetime
import inspect
import re
from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import pytest

import tuner as tune
from trainables.config import Budget, ScalingConfig
from trainables.errors import InvalidSettingError
from trainables.job import Job
from tuner.cli.config_file import KEYS
from tuner.error import SettingError
from tuner.run import run
from tuner.spec import Giver, Spec, checked, default_of, given_by, stored_settings

OTHER_NAMES = {"param_space": "config", "trainable": "run_or_experiment"}
"""Settings that `run` calls as Ray does."""
IN_PARTS = {
    "failure_config": {"max_failures", "fail_fast"},
    "checkpoint_config": {"keep_checkpoints_num", "checkpoint_score_attr", "checkpoint_freq", "checkpoint_at_end"},
    "storage_path": {"local_dir"},
    "resume": {"resume_config"},
}
"""Settings that `run` takes in parts, too."""
WITHIN = {"inherits", "trainable_name", "resources_for", "rerun", "started_by", "takes_max"}
"""What no argument says."""
NOT_IN_A_FILE = {
    "progress_reporter", "trial_name_creator", "trial_dirname_creator", "chdir_to_trial_dir", "sync_config",
    "checkpoint_config", "local_dir", "resume_config", "on_end", "on_failure",
}  # fmt: skip
"""Arguments of `run` that are objects or functions, second names, or what a resume is never to run by itself."""
SETTINGS = {each.name for each in fields(Spec)} - WITHIN


def train(config: dict[str, Any]) -> None:
    pass


def arguments() -> set[str]:
    """Of `run`, as the table has them."""
    plain = {OTHER_NAMES.get(name, name) for name in SETTINGS if name != "failure_config"}
    return plain | set().union(*IN_PARTS.values())


def test_run_takes_what_the_table_says() -> None:
    assert set(inspect.signature(run).parameters) - {"others"} == arguments()


def explained(kind: Any) -> dict[str, str]:
    """What `help` says of each argument."""
    listed = (inspect.getdoc(kind) or "").partition("Args:\n")[2].partition("\n\n")[0]
    entries = re.findall(r"(?ms)^    ([\w, ]+): (.*?)(?=^    \w|\Z)", listed)
    return {name: " ".join(text.split()) for names, text in entries for name in names.split(", ")}


@pytest.mark.parametrize(
    "kind",
    [
        run, tune.Tuner, tune.RunConfig, tune.TuneConfig, tune.FailureConfig, tune.CheckpointConfig, tune.SyncConfig,
        tune.ResumeConfig, ScalingConfig, Budget,
    ],
)  # fmt: skip
def test_help_says_of_every_argument_what_it_means(kind: Any) -> None:
    """And what None means where that is its default, and in what a time is measured."""
    said, known = explained(kind), inspect.signature(kind).parameters
    assert set(said) == set(known)
    vain = {name for name, text in said.items() if "without effect" in text}
    unsaid = {name for name, argument in known.items() if argument.default is None and "None" not in said[name]}
    assert unsaid <= vain, "what does None mean there?"
    assert {name for name, text in said.items() if len(text) < 10} == set()
    times = {name for name in known if name.endswith(("_s", "_period", "_timeout"))}
    assert {name for name in times if "second" not in said[name]} == set()


@pytest.mark.parametrize("kind", [run, tune.RunConfig])
def test_help_says_where_output_goes(kind: Any) -> None:
    text = " ".join((inspect.getdoc(kind) or "").split())
    assert "driver.log" in text and "terminal" in text and '"stdout" and "stderr"' in text
    assert 'See "Output"' not in text or "Output:" in text
    with pytest.raises(InvalidSettingError, match="0 .nothing.*3 "):
        tune.RunConfig(verbose=4)


def test_what_goes_to_a_worker_has_a_place_in_its_job() -> None:
    sent = Spec(trainable=train).for_worker()
    assert set(sent) == {"chdir", "publish", "keep_all_ranks", "name_by_index", "export_formats"}
    assert set(sent) <= {each.name for each in fields(Job)}


@pytest.mark.parametrize("name", sorted(SETTINGS - set(OTHER_NAMES) - {"failure_config"}))
def test_a_default_of_run_is_that_of_the_table(name: str) -> None:
    default = inspect.signature(run).parameters[name].default
    assert checked(name, default) == default_of(name)


def test_the_configs_of_a_tuner_have_what_the_table_says() -> None:
    tune_config = {each.name for each in fields(tune.TuneConfig)}
    run_config = {each.name for each in fields(tune.RunConfig)}
    assert tune_config == set(given_by(Giver.TUNE))
    assert run_config - {"local_dir", "storage_filesystem", "worker_runtime_env"} == set(given_by(Giver.RUN))


def test_a_config_file_has_the_arguments_of_run() -> None:
    names = {"config": "param_space", "run_or_experiment": "trainable"}
    assert set(KEYS) == {names.get(name, name) for name in arguments() - NOT_IN_A_FILE}


def test_what_is_stored_is_what_a_tuner_restores() -> None:
    assert stored_settings(Giver.TUNE, Giver.RUN) == stored_settings()
    assert not set(stored_settings()) & {"metric", "mode", "num_samples", "seed", "executor", "takeover", "name"}


def test_a_spec_is_never_changed_and_may_be_made_again() -> None:
    asked: dict[str, Any] = {"time_budget_s": datetime.timedelta(seconds=3), "resources_per_trial": lambda config: None}
    spec = Spec(trainable=train, metric="a", **asked)
    with pytest.raises(FrozenInstanceError):
        spec.metric = "b"  # type: ignore[misc]
    again = replace(spec, num_samples=2)
    assert (again.time_budget_s, again.mode, again.num_samples) == (3.0, "max", 2)
    assert again.resources_per_trial is None and again.resources_for is spec.resources_for
    assert again.trainable_name == spec.trainable_name == "train"


def test_a_setting_is_checked_alike_in_a_config_and_in_the_call() -> None:
    given: dict[str, Any] = {"trial_timeout_s": datetime.timedelta(minutes=1)}
    assert tune.RunConfig(**given).trial_timeout_s == Spec(train, **given).trial_timeout_s == 60.0
    for refused in ({"log_to_file": ""}, {"verbose": 4}, {"trial_timeout_s": float("nan")}, {"takeover": 1}):
        with pytest.raises(InvalidSettingError, match="accepted: "):
            tune.RunConfig(**refused)
        with pytest.raises(SettingError, match="accepted: "):
            Spec(train, **refused)


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_samples": 0}, {"num_samples": True}, {"metric": []}, {"mode": "best"}, {"time_budget_s": 0},
        {"seed": "1"}, {"trial_timeout_s": -1}, {"max_concurrent_trials": -1}, {"callbacks": "no"}, {"overwrite": 1},
        {"storage_path": ""}, {"restore": 3}, {"sync_config": "s3://b"}, {"log_to_file": ["one"]}, {"name": "a/b"},
        {"trial_name_creator": "no"}, {"chdir_to_trial_dir": "no"}, {"checkpoint_config": {}}, {"param_space": 3},
    ],
)  # fmt: skip
def test_what_is_not_accepted_is_named(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(SettingError, match="config" if name == "param_space" else name):
        Spec(trainable=train, **wrong)
