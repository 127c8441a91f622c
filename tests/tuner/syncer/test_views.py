"""Read-only views of experiments elsewhere: fetched anew each time, as much as is asked for, and unpickled never."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tests.tuner.opening.harness import ran
from trainables.errors import InvalidSettingError
from trainables.transfer.open import open_backend
from tuner.error import ExperimentDamagedError, ExperimentNotFoundError, SettingError
from tuner.experiment.reader import read_settings
from tuner.syncer import views

_NUMBERS = itertools.count()


def fails_once(config: dict[str, Any]) -> None:
    tune.report({"a": 1}, checkpoint=tune.Checkpoint.from_dict({"a": 1}))
    if config["i"]:
        raise ValueError("no")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TUNE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[str]:
    """A place in memory, with an experiment `e` of two trials of which one has failed."""
    place = f"memory://views-{next(_NUMBERS)}/runs"
    ran(
        tmp_path / "results", trainable=fails_once, config={"i": tune.grid_search([0, 1])}, metric="a", mode="max",
        sync_config=tune.SyncConfig(upload_dir=place), raise_on_failed_trial=False,
    )  # fmt: skip
    yield place


def put(place: str, key: str, data: bytes) -> None:
    backend = open_backend(place)
    backend.put(key, data)
    backend.close()


@pytest.mark.parametrize(
    ("more", "brings"),
    [
        (views.journal_only, {"experiment.json", "generations", "journal"}),
        (views.warnings, {"experiment.json", "generations", "journal"}),  # none was given
        (views.stored_settings, {"experiment.json", "generations", "journal", "blobs"}),
    ],
)
def test_a_view_holds_what_was_asked_for_and_no_more(more: views.More, brings: set[str], place: str) -> None:
    with views.view(f"{place}/e", more) as paths:
        assert read_settings(paths)["name"] == "e"
        assert {path.name for path in paths.root.iterdir()} == brings


def test_what_an_analysis_reads_are_results_and_errors_and_no_checkpoint(place: str) -> None:
    with views.view(f"{place}/e", views.results) as paths:
        found = {path.name for path in paths.root.rglob("*") if path.is_file()}
        assert {"result.json", "error.txt"} <= found
        assert not list(paths.root.glob("*/checkpoint_*"))


def test_a_view_is_of_the_moment_and_what_a_killed_reader_left_is_no_part_of_it(place: str, cache: Path) -> None:
    with views.view(f"{place}/e") as paths:
        (paths.root / "of an earlier reader").touch()
        (paths.root.parent / ".incoming").mkdir()
        (paths.root.parent / ".incoming" / "half").touch()
        first = paths.root
    put(place, "e/generations/000009.json", b"{}")
    with views.view(f"{place}/e") as paths:
        assert paths.root == first and first.is_relative_to(cache)
        assert not (paths.root / "of an earlier reader").exists() and not (paths.root / "half").exists()
        assert paths.generation(9).exists()


def test_checkpoints_are_opened_where_the_experiment_lies_now(place: str) -> None:
    settings, state = views.load(f"{place}/e/")
    assert settings["metric"] == "a" and len(state.trials) == 2
    for trial in state.trials:
        (record,) = trial.checkpoints
        assert trial.open_checkpoint(record).uri == f"{place}/e/{trial.dirname}/{record.ref.name}"
        assert trial.open_checkpoint(record).to_dict() == {"a": 1}


def test_what_is_not_there_is_named_as_it_was_asked_for(place: str) -> None:
    with pytest.raises(ExperimentNotFoundError, match=f"there is no experiment at {place}/other"):
        views.load(f"{place}/other")


@pytest.mark.parametrize("uri", ["memory://", "memory:///", "s3://bucket"])
def test_a_place_without_a_name_is_no_experiment(uri: str) -> None:
    with pytest.raises(SettingError), views.view(uri):
        raise AssertionError("there is nothing to be seen")


def test_an_address_of_no_kind_is_refused() -> None:
    with pytest.raises((SettingError, InvalidSettingError)), views.opened("nothing://bucket/e"):
        raise AssertionError("there is nothing to be opened")


@pytest.mark.parametrize(
    ("key", "data"), [("experiment.json", b"{"), ("experiment.json", json.dumps({"format": "x"}).encode())]
)
def test_damage_is_named_by_the_place_and_not_by_the_cache(key: str, data: bytes, place: str, cache: Path) -> None:
    put(place, f"e/{key}", data)
    with pytest.raises(ExperimentDamagedError) as caught:
        views.load(f"{place}/e")
    assert f"{place}/e/{key}" in str(caught.value) and str(cache) not in str(caught.value)


def test_experiments_under_a_place_are_those_with_a_description(place: str) -> None:
    put(place, "foreign/file", b"x")
    put(place, "other/experiment.json", b"{}")
    shown, names = views.names_under(place)
    assert shown == place and sorted(names) == ["e", "other"]
