"""Names and places."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tuner.error import ExperimentDamagedError, SettingError
from tuner.experiment import paths
from tuner.experiment.hostile import check_name
from tuner.experiment.paths import ExperimentPaths, as_local_path, check_experiment_name, default_storage, safe_name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("train_ab12", "train_ab12"),
        ("a b/c", "a_b_c"),
        ("../../etc", "_._.._etc"),
        ("..", "_."),
        (".hidden", "_hidden"),
        ("--help", "_-help"),
        ("naïve", "na_ve"),
        ("", "_"),
        ("\0", "_"),
    ],
)
def test_a_safe_name_stays_in_its_directory(text: str, name: str) -> None:
    assert safe_name(text) == name


def test_a_long_name_is_cut_and_stays_unique() -> None:
    first, second = safe_name("x" * 100 + "1"), safe_name("x" * 100 + "2")
    assert len(first) == len(second) == 60
    assert first != second
    assert safe_name("x" * 60) == "x" * 60


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", "x\0"])
def test_a_name_from_outside_never_leaves_its_directory(name: str) -> None:
    with pytest.raises(ExperimentDamagedError):
        check_name(name)
    with pytest.raises(SettingError):
        check_experiment_name(name)


@pytest.mark.parametrize("name", ["my run 3", "größe", ".x", "-x", " ", "a\nb", "\udc80", "x" * 121, 7, b"x", None])
def test_a_name_that_some_system_would_change_is_refused(name: object) -> None:
    with pytest.raises(SettingError, match=re.escape(f"name={name!r} is not accepted; accepted are at most 120")):
        check_experiment_name(name)


@pytest.mark.parametrize(("name", "near"), [("my run 3", "my_run_3"), ("group/run", "group_run"), ("lr=0.1", "lr_0.1")])
def test_a_name_that_would_be_accepted_is_said(name: str, near: str) -> None:
    with pytest.raises(SettingError, match=re.escape(f"the first neither . nor -; {near!r} is")):
        check_experiment_name(name)


@pytest.mark.parametrize("name", ["digits", "A-Z.a_9", "_x", "x" * 120])
def test_a_name_of_letters_digits_and_few_signs_is_accepted(name: str) -> None:
    check_experiment_name(name)


def test_local_paths_in_every_form(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/someone")
    assert as_local_path("results") == tmp_path / "results"
    assert as_local_path(Path("/a/b")) == Path("/a/b")
    assert as_local_path("~/r") == Path("/home/someone/r")
    assert as_local_path("file:///a%20b/c") == Path("/a b/c")
    assert as_local_path("file://localhost/a") == Path("/a")


@pytest.mark.parametrize(
    "place",
    [
        "s3://bucket/x",
        "file://host/x",
        "C:\\results",
        "c:/results",
        "\\\\host\\share",
        "",
        "a\0b",
        "a\ud800b",
        3,
        b"/tmp",
        None,
    ],
)
def test_a_place_that_is_not_here_is_refused_by_name(place: Any) -> None:
    with pytest.raises(SettingError, match=re.escape(repr(place)) if place != "" else "empty"):
        as_local_path(place)


def test_default_storage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("TUNE_RESULT_DIR", raising=False)
    assert default_storage() == tmp_path / "tuner_results"
    monkeypatch.setenv("TUNE_RESULT_DIR", "/elsewhere")
    assert default_storage() == Path("/elsewhere")


def test_file_names_read_back() -> None:
    layout = ExperimentPaths(Path("x"))
    assert layout.segment(3, 17).name == "000003-000017.jsonl"
    assert layout.snapshot(3, 12345).name == "snapshot-000003-00012345.json"
    assert paths.parse_segment(layout.segment(3, 17).name) == (3, 17)
    assert paths.parse_snapshot(layout.snapshot(3, 12345).name) == (3, 12345)
    assert paths.parse_generation(layout.generation(4).name) == 4
    assert paths.parse_segment("000003-000017.jsonl.tmp") is None
    assert paths.parse_segment(layout.segment(1234567, 1).name) == (1234567, 1), "more digits than planned"
