"""What a run may use is said with what it has used; how long it takes is what the terminal says."""

from __future__ import annotations

import json
import subprocess
import sys
from math import inf
from pathlib import Path

import pytest

import tuner as tune
from tests.tuner.ui.served import client, data, serving
from tuner.executors import InlineExecutor
from tuner.experiment.history import History
from tuner.experiment.journal_reader import read_journal
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.reader import state_of
from tuner.experiment.trial import Trial
from tuner.progress.observed import pace_of
from tuner.ui.live_experiment import LiveExperiment
from tuner.ui.picture import picture_of
from tuner.ui.seen import Seen
from tuner.ui.sources import LocalSource
from tuner.ui.views.limits import left

SCRIPT = Path(__file__).parents[2] / "scripts" / "limited_run.py"


def test_the_time_left_is_the_terminals(experiment: Path) -> None:
    paths = ExperimentPaths(experiment)
    live = LiveExperiment("one", LocalSource(paths))
    facts = [(fact.seq, fact.body) for fact in History(paths, read_journal(paths)).facts()]
    told = 0
    for count in range(1, len(facts)):
        picture, state = picture_of(paths, (0, None), facts[:count]), state_of(paths, None, facts[:count])
        finished = sum(trial.is_finished() for trial in state.trials)
        until = max((trial.last_heard_of for trial in state.trials), default=0.0) + 5.0
        shown = left(Seen(live, picture), finished, 9, until)
        said = pace_of(state.trials, until).left(9 - finished, until)
        told += said is not None
        if said is None:
            assert shown["left_s"] is None and shown["left_said"] is None
        else:
            assert shown["left_said"] == str(said)
            assert [shown["left_s"], shown["left_most_s"]] == pytest.approx([said.likely, said.most])
    assert told > 10


def test_the_limits_of_a_run_that_goes_on(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, str(SCRIPT), str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as run:
        assert run.stdin is not None and run.stdout is not None
        try:
            assert run.stdout.readline() == b"saved\n"
            settings = json.loads((tmp_path / "limited" / "experiment.json").read_bytes())
            assert settings["checkpoint_budget"] == 5_000_000 and settings["max_concurrent_trials"] == 3
            with serving([tmp_path / "limited"]) as one, client(one) as pages:
                told = data(pages, "e/limited/overview.json")
                assert told["counts"][Trial.RUNNING] == 1 and told["slots"] == {"used": 1, "limit": 3}
                assert told["budget"] == {"limit": 5_000_000, "kind": "bytes", "used": told["checkpoints"]["bytes"]}
                time = told["time_budget"]
                assert time["limit_s"] == 3600 and 0 <= time["used_s"] < 600
                assert time["used_s"] + time["left_s"] == pytest.approx(3600)
                run.stdin.write(b"go\n")
                run.stdin.close()
                assert run.wait(60) == 0
            with serving([tmp_path / "limited"]) as one, client(one) as pages:
                over = data(pages, "e/limited/overview.json")
                assert over["time_budget"] == {"limit_s": 3600, "used_s": None, "left_s": None}
                assert data(pages, f"e/limited/overview.json?at={over['seq'] - 1}")["time_budget"] is None
        finally:
            run.kill()


def test_a_best_that_is_infinite_is_said(tmp_path: Path) -> None:
    tune.run(
        lambda config: {"loss": config["x"]},
        name="diverged",
        storage_path=tmp_path,
        metric="loss",
        mode="min",
        config={"x": tune.grid_search([1.0, -inf])},
        executor=InlineExecutor(),
        verbose=0,
    )
    with serving([tmp_path]) as one, client(one) as pages:
        best = data(pages, "e/diverged/overview.json")["best"]
        assert (best["index"], best["value"], best["said"]) == (1, None, "-inf")
        side = data(pages, "e/diverged/compare.json?with=diverged")["sides"][0]
        assert (side["best"]["value"], side["best"]["said"]) == (None, "-inf")
