"""What holds at a start, and where it comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tuner.error import ResumeError
from tuner.experiment.blobs import Blobs
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.reader import read_settings
from tuner.opening.settings import SettingOrigin, Settings, changes, description_of, refuse_another
from tuner.spec import Giver, Spec, stored_settings


def train(config: dict[str, Any]) -> None:
    pass


def written(tmp_path: Path, spec: Spec) -> tuple[dict[str, Any], Blobs]:
    """What an experiment with these settings has stored."""
    paths = ExperimentPaths(tmp_path / "e")
    paths.root.mkdir()
    description_of(Settings.of(spec), {}, name="e", now=0.0).write(paths, {})
    return read_settings(paths), Blobs(paths.blobs)


def test_where_a_value_comes_from() -> None:
    settings = Settings.of(Spec(trainable=train, stop={"a": 1}, inherits=("verbose",), metric="a"))
    origins = settings.origins
    assert origins["stop"] is SettingOrigin.GIVEN
    assert (origins["metric"], origins["mode"]) == (SettingOrigin.GIVEN, SettingOrigin.GIVEN)
    assert origins["verbose"] is SettingOrigin.STORED
    assert {origins[name] for name in stored_settings(Giver.TUNE)} == {SettingOrigin.DEFAULT}


def test_what_is_not_given_anew_is_as_it_was_stored(tmp_path: Path) -> None:
    first = Spec(trainable=train, stop={"a": 1}, trial_timeout_s=7, verbose=2, param_space={"x": tune.uniform(0, 1)})
    description, blobs = written(tmp_path, first)
    inherits = (*stored_settings(Giver.RUN), "param_space")
    settings = Settings.of(Spec(trainable=train, inherits=inherits, time_budget_s=3))

    held = settings.with_stored(description, blobs.get, tmp_path).spec

    assert (held.stop, held.trial_timeout_s, held.verbose) == ({"a": 1}, 7, 2)
    assert list(held.param_space) == ["x"]
    assert held.time_budget_s == 3


def test_what_could_not_be_stored_is_asked_for(tmp_path: Path) -> None:
    stop = (print for _ in ())  # a generator cannot be pickled
    description, blobs = written(tmp_path, Spec(trainable=train, stop=stop))
    assert description["settings_lost"] == ["stop"]
    with pytest.raises(ResumeError, match="stop of .* could not be stored"):
        Settings.of(Spec(trainable=train, inherits=("stop",))).with_stored(description, blobs.get, tmp_path)
    Settings.of(Spec(trainable=train, inherits=("verbose",))).with_stored(description, blobs.get, tmp_path)


def test_restore_continues_with_what_was_not_given_anew(tmp_path: Path) -> None:
    first = Spec(trainable=train, metric="loss", mode="min", num_samples=5, stop={"a": 1}, verbose=0)
    description, blobs = written(tmp_path, first)
    there = tune.SyncConfig(upload_dir="s3://bucket/runs")
    settings = Settings.of(Spec(trainable=train, num_samples=9, verbose=1)).continuing(description, there)

    held = settings.with_stored(description, blobs.get, tmp_path).spec

    assert (held.metric, held.mode, held.num_samples, held.stop, held.verbose) == ("loss", "min", 9, {"a": 1}, 1)
    assert held.sync_config == there


def test_a_resume_says_what_decides_differently(tmp_path: Path) -> None:
    before, _ = written(tmp_path, Spec(trainable=train, metric="loss", mode="min"))
    settings = Settings.of(Spec(trainable=train, metric="loss", mode="max", scheduler="asha"))
    now = description_of(settings, before, name="e", now=1.0).plain
    assert now["id"] == before["id"] and now["seed"] == before["seed"]
    lines = changes(before, now)
    assert lines[0] == "mode: was 'min', now 'max', which is used from here on"
    assert len(lines) == 2 and lines[1].startswith("scheduler: was ")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"trainable": "other"}, "was run with the trainable 'other'"),
        ({"space": {"x": "uniform(0, 2)"}}, "the search space is not the one"),
    ],
)
def test_another_experiment_is_refused(tmp_path: Path, changed: dict[str, Any], words: str) -> None:
    spec = Spec(trainable=train, param_space={"x": tune.uniform(0, 1)})
    description, _ = written(tmp_path, spec)
    refuse_another(Settings.of(spec), description, tmp_path)
    with pytest.raises(ResumeError, match=words):
        refuse_another(Settings.of(spec), {**description, **changed}, tmp_path)
