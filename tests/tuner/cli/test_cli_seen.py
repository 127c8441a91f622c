"""What there is to see: `show --why`, `retention`, `report`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tests.tuner.ui.made import is_made, needs_page
from tuner.cli import main
from tuner.schedulers import ASHAScheduler

SCORES = [3.0, 9.0, 1.0, 5.0]


def train(config: dict[str, Any]) -> None:
    for score in SCORES:
        tune.report({"auc": score + config["x"]}, checkpoint=tune.Checkpoint.from_dict({"a": 1}))


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    tune.run(
        train,
        config={"x": tune.grid_search([0, 1])},
        metric="auc",
        mode="max",
        keep_checkpoints_num=1,
        checkpoint_score_attr="auc",
        name="seen",
        storage_path=str(tmp_path),
        executor="inline",
        verbose=0,
    )
    return tmp_path / "seen"


def answer(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> str:
    capsys.readouterr()
    assert main(arguments) == status, capsys.readouterr().err
    said = capsys.readouterr()
    return said.err if status else said.out


def files_of(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def test_why_explains_every_checkpoint(experiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = answer(capsys, "show", str(experiment), "0", "--why")
    facts = json.loads(answer(capsys, "show", str(experiment), "0", "--why", "--json"))

    assert "kept are best:1:auc, and always the latest" in said
    assert "auc=3  deleted: not kept by best:1:auc, for checkpoint_000002" in said
    assert "auc=5  kept: latest" in said
    assert [(one["iteration"], one["fate"]) for one in facts["why"]] == [
        (1, "deleted"),
        (2, "kept"),
        (3, "deleted"),
        (4, "kept"),
    ]
    assert facts["unknown"] == 0


def test_why_needs_a_trial(experiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "tuner show EXPERIMENT TRIAL --why" in answer(capsys, "show", str(experiment), "--why", status=2)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"stop": {"training_iteration": 2}}, "stop: training_iteration 2 >= 2"),
        ({"scheduler": ASHAScheduler(max_t=3, grace_period=1)}, "ASHA's limit: 3 iterations"),
        ({}, "returned"),
    ],
)
def test_a_trial_that_has_ended_says_who_ended_it(
    settings: dict[str, Any], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = {"config": {"x": 0}, "metric": "auc", "mode": "max", "storage_path": str(tmp_path), "name": "seen"}
    tune.run(train, **plan, executor="inline", verbose=0, **settings)
    said = answer(capsys, "show", str(tmp_path / "seen"), "0")
    reason = json.loads(answer(capsys, "show", str(tmp_path / "seen"), "0", "--json"))["reason"]
    assert reason == sentence and f"\nended: {sentence}\n" in said


def test_another_policy_is_shown_and_nothing_is_touched(experiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = files_of(experiment)

    said = answer(capsys, "retention", str(experiment), "--policy", "best:2:min-auc", "--policy", "every:2")
    facts = json.loads(answer(capsys, "retention", str(experiment), "--policy", "latest:3", "--json"))

    assert "kept: 4" in said and "by best:1:auc" in said
    assert "with best:2:min-auc or every:2: 8" in said
    assert "+checkpoint_000003" in said
    assert [[one["iteration"] for one in row["would_keep"]] for row in facts["trials"]] == [[2, 3, 4]] * 2
    assert [[one["iteration"] for one in row["kept"]] for row in facts["trials"]] == [[2, 4]] * 2
    assert files_of(experiment) == before


def test_a_policy_that_is_none_is_refused(experiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "best:2:auc" in answer(capsys, "retention", str(experiment), "--policy", "newest", status=2)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(
            ["report", "--metric", "nope"],
            "no trial has reported a metric 'nope'; reported, nearest first: auc",
            marks=needs_page,
        ),
        (["report", "-o", "x.pdf"], "path='x.pdf' is not accepted; a report is a page, and its file ends in .html"),
        (["retention", "--policy", "best:1:au"], "no trial has reported a metric 'au'; reported, nearest first: auc"),
        (["retention", "--policy", "pareto:auc,min-los"], "no trial has reported a metric 'los'"),
    ],
)
def test_what_would_show_nothing_is_refused(
    words: list[str], said: str, experiment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files_of(experiment)
    assert said in answer(capsys, words[0], str(experiment), *words[1:], status=2)
    assert files_of(experiment) == before


@needs_page
def test_the_report_lies_in_the_experiment_or_where_it_is_wanted(
    experiment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert answer(capsys, "report", str(experiment)) == f"{experiment / 'report.html'}\n"
    assert answer(capsys, "report", str(experiment), "-o", str(tmp_path / "mine.html")) == f"{tmp_path / 'mine.html'}\n"

    page = (tmp_path / "mine.html").read_text()
    assert "/curves.json" in page and page.startswith("<!doctype html>")
    assert answer(capsys, "verify", str(experiment)).endswith("no problems\n")


def test_of_an_experiment_elsewhere_they_are_the_same(experiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = "memory://seen-elsewhere/seen"
    assert main(["cp", str(experiment), there]) == 0

    why = json.loads(answer(capsys, "show", there, "0", "--why", "--json"))["why"]
    assert why == json.loads(answer(capsys, "show", str(experiment), "0", "--why", "--json"))["why"]
    arguments = ("--policy", "latest:3", "--json")
    kept = json.loads(answer(capsys, "retention", there, *arguments))["trials"]
    assert kept == json.loads(answer(capsys, "retention", str(experiment), *arguments))["trials"]
    if is_made:
        assert answer(capsys, "report", there) == f"{there}/report.html\n"
    assert tune.ExperimentAnalysis(there).plot("curves").data
