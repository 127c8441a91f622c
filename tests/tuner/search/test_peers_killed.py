"""Searchers of libraries that only `make test-peers` installs, in a driver that is killed with SIGKILL and resumed."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tests.failures.lifecycle_scripts import Script, Stage, iterations

pytestmark = [pytest.mark.peers, pytest.mark.timeout(400)]

SCRIPT = """
import json, os, sys, warnings
from tuner.search import create_searcher

warnings.simplefilter("ignore", DeprecationWarning)  # of the libraries themselves

def train(config):
    for n in (1, 2):
        tell("result")
        tune.report({"loss": (config["x"] - 2.5) ** 2 + config["n"] / n + (config["c"] == "a")})

if __name__ == "__main__":
    how, workers, settings = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
    analysis = tune.run(
        train, config={"x": tune.uniform(0, 5), "n": tune.randint(0, 9), "c": tune.choice("abc")}, num_samples=9,
        name=os.environ["NAME"], storage_path=os.environ["RESULTS"], resume="AUTO", metric="loss", mode="min", seed=7,
        search_alg=create_searcher(how, **settings), resources_per_trial={"cpu": 0.2}, max_concurrent_trials=workers,
        verbose=0,
    )
    print("configs", json.dumps([trial.config for trial in analysis.trials]))
"""
TRIALS = 9
MOST_S = {"nevergrad": 0.01, "smac": 0.5, "ax": 1.5}
"""About as long as a suggestion takes, and what follows it."""
SETTINGS = {"nevergrad": {"optimizer": "TwoPointsDE"}, "smac": {"n_initial_points": 4}, "ax": {}}


def configs(output: str) -> list[dict[str, Any]]:
    (line,) = [line for line in output.splitlines() if line.startswith("configs ")]
    found: list[dict[str, Any]] = json.loads(line.removeprefix("configs "))
    return found


def killed_at_any_moment(script: Script, draw: random.Random, how: str) -> None:
    """After some results, in whatever it does then: a suggestion, a line of the journal, a start."""
    script.hear("result", draw.randint(1, 3))
    time.sleep(draw.uniform(0, MOST_S[how]))
    script.kill()
    script.stage.unread()


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("how", list(SETTINGS))
def test_f14_f51_killed_three_times_no_suggestion_is_lost_or_doubled(tmp_path: Path, how: str, workers: int) -> None:
    draw = random.Random(f"{how} {workers}")
    words = (how, workers, json.dumps(SETTINGS[how]))
    with Stage(tmp_path) as stage:
        stage.write(SCRIPT)
        seen: list[dict[str, Any]] = []
        for _ in range(3):
            script = stage.start("script.py", *words, NAME="killed")
            killed_at_any_moment(script, draw, how)
            left = [trial.config for trial in tune.ExperimentAnalysis(stage.results / "killed").trials]
            assert left[: len(seen)] == seen, "what was suggested stays"
            seen = left
        killed = configs(stage.run("script.py", *words, NAME="killed"))
        trials = tune.ExperimentAnalysis(stage.results / "killed").trials
        assert killed[: len(seen)] == seen
        assert [(trial.status, iterations(trial)) for trial in trials] == [("TERMINATED", [1, 2])] * TRIALS
        assert len({config["x"] for config in killed}) == TRIALS
        if workers == 1:  # else results come in another order, and the library learns from it
            assert killed == configs(stage.run("script.py", *words, NAME="whole"))
