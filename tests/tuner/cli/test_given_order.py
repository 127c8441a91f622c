"""Orders that start a driver's life in the foreground, and are the first thing that it does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tuner as tune
from tests.tuner.replicated import answer, refused
from tuner.cli.load_object import load_object
from tuner.orders.mailbox import Mailbox

TRAIN = f"{Path(__file__).parents[2] / 'scripts' / 'saves_each_step.py'}:train"


def test_retry_add_and_fork_start_a_driver_and_wait_for_what_came_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "e"
    tune.run(
        load_object(TRAIN, tmp_path),
        name="e",
        storage_path=tmp_path,
        config={"x": tune.uniform(0, 9), "steps": 4, "fails": tune.grid_search([False, True])},
        executor="inline",
        raise_on_failed_trial=False,
        verbose=0,
    )
    assert "--run starts one here, or --if-dead wait" in refused(capsys, "retry", root, "1")
    for options, said in (
        (["--run"], "name the trainable with --trainable"),
        (["--run", "--trainable", TRAIN + "s"], "has no 'trains'; did you mean 'train'?"),
        (["--trainable", TRAIN], "--trainable goes with --run"),
    ):
        assert said in refused(capsys, "retry", root, "1", *options)
    assert not Mailbox(root).waiting()
    for words, status, why in (
        (["retry", root, "1"], 1, "goes on from iteration 2"),  # it fails again
        (["add", root, "x=8", "fails=false"], 1, "_o0000"),
        (["fork", root, "0@2", "x=3", "steps=6"], 1, "from 0@2"),
        (["add", root, "x=-1"], 1, "is not a value of"),
    ):
        said = json.loads(answer(capsys, *words, "--run", "--trainable", TRAIN, "--json", status=status))
        assert said["state"] == ("refused" if "x=-1" in words else "done") and why in said["why"]
    trials = tune.ExperimentAnalysis(str(root)).trials
    assert [(trial.iteration, trial.status) for trial in trials] == [
        (4, "TERMINATED"),
        (2, "ERROR"),
        (4, "TERMINATED"),
        (6, "TERMINATED"),
    ]
    assert [trial.last_result["loss"] for trial in trials[2:]] == [2.0, 0.5]
