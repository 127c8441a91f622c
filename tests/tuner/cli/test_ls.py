"""tuner ls: experiments and what stands in them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tuner as tune
from tests.tuner.replicated import answer, ran
from trainables.transfer.open import open_backend
from tuner.cli import main, output
from tuner.error import MetricMissingError


def test_ls_counts_trials_and_checkpoints(experiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = json.loads(answer(capsys, "ls", str(experiment.parent), "--json"))

    assert (row["name"], row["trials"], row["done"], row["checkpoints"]) == ("small", 3, 3, 6)
    assert (row["state"], row["best"]["metric"]) == ("finished", "loss")
    header, line = answer(capsys, "ls", str(experiment.parent)).splitlines()
    assert header.split()[:6] == ["name", "started", "state", "best", "trials", "done"]
    assert f"finished  loss {row['best']['value']:.5g}  3       3     0 " in line


def test_ls_of_a_directory_without_experiments_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "something").mkdir()

    assert answer(capsys, "ls", str(tmp_path)) == f"no experiments in {tmp_path}\n"


def test_ls_lists_a_damaged_experiment_as_one(experiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (experiment / "experiment.json").write_text("{")

    capsys.readouterr()
    assert main(["ls", str(experiment.parent)]) == 0
    said = capsys.readouterr()
    assert "unreadable" in said.out
    assert said.err.startswith("tuner ls: small: unreadable: ") and said.err.count("\n") == 1


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


def test_ls_in_a_narrow_terminal_shows_what_has_become_of_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(config: dict[str, float]) -> None:
        tune.report({"loss": config["x"]})

    settings = {"config": {"x": tune.uniform(0, 1)}, "num_samples": 2, "storage_path": tmp_path, "mode": "min"}
    with pytest.raises(MetricMissingError):
        tune.run(train, metric="los", name="typo", executor="inline", verbose=0, **settings)
    tune.run(train, metric="loss", name="a", executor="inline", verbose=0, **settings)
    monkeypatch.setattr(output, "terminal_width", lambda: 80)

    header, *lines, _, hidden = answer(capsys, "ls", tmp_path).splitlines()

    assert header.split() == ["name", "started", "state", "best", "trials", "done", "failed"]
    assert any("the driver failed" in line for line in lines), "whole: there is room for it"
    assert max(map(len, [header, *lines])) <= 80 and "running" in hidden
