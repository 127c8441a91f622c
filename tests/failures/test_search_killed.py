"""Every kind of search, killed five times at any point: what it proposes and what is done with it stays the same."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from lifecycle_scripts import Stage, iterations

import tuner as tune
from tests.failures.checkpoint_faults import killed_at_fact
from tuner.experiment import journal_writer
from tuner.search import AutoSearch, BasicVariantGenerator, ConcurrencyLimiter, Repeater, Searcher
from tuner.search.bayesopt import BayesOptSearch
from tuner.search.hyperopt import HyperOptSearch
from tuner.search.optuna import OptunaSearch

SEARCH = """
import json, os, sys
import optuna
from tuner.search.optuna import OptunaSearch

def train(config):
    for n in (1, 2):
        tell("result")
        tune.report({"loss": (config["x"] - 2.5) ** 2 + 1 / n})

SAMPLERS = {
    "qmc": lambda: {"sampler": optuna.samplers.QMCSampler(seed=1, warn_asynchronous_seeding=False)},
    "tpe": lambda: {},
    "tpe ahead": lambda: {"ask_ahead": True},
    "cmaes ahead": lambda: {"sampler": optuna.samplers.CmaEsSampler(seed=1, n_startup_trials=3), "ask_ahead": True},
    "nsga": lambda: {"sampler": optuna.samplers.NSGAIISampler(seed=1, population_size=4)},
    "sqlite": lambda: {"storage": "sqlite:///" + os.environ["RESULTS"] + ".db", "study_name": os.environ["NAME"]},
}

if __name__ == "__main__":
    how, samples, workers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    space = {"x": tune.grid_search([0, 1, 2, 3]) if how == "grid" else tune.uniform(0, 5)}
    if how in SAMPLERS:
        space["n"] = tune.randint(0, 9)
    analysis = tune.run(
        train, config=space, name=os.environ["NAME"], storage_path=os.environ["RESULTS"], num_samples=samples, seed=7,
        search_alg=OptunaSearch(**SAMPLERS[how]()) if how in SAMPLERS else None, metric="loss", mode="min",
        resources_per_trial={"cpu": 0.2}, max_concurrent_trials=workers, resume="AUTO", verbose=0,
    )
    print("configs", json.dumps([trial.config for trial in analysis.trials]))
"""
TOTAL = {"grid": 2}
TRIALS = 8


def configs(output: str) -> list[dict]:
    (line,) = [line for line in output.splitlines() if line.startswith("configs ")]
    found: list[dict] = json.loads(line.removeprefix("configs "))
    return found


@pytest.mark.timeout(240)
@pytest.mark.parametrize("how", ["grid", "random", "qmc", "tpe", "tpe ahead", "cmaes ahead", "nsga", "sqlite"])
def test_f14_f51_killed_five_times_it_ends_as_if_it_had_not_been(tmp_path: Path, how: str) -> None:
    samples = TOTAL.get(how, TRIALS)
    learns = how not in ("grid", "random", "qmc")
    draw = random.Random(how)
    with Stage(tmp_path) as stage:
        stage.write(SEARCH)
        # What learns is fed the same history only where results come in one order.
        workers = 1 if learns else 3
        for _ in range(5):
            script = stage.start("script.py", how, samples, workers, NAME="killed")
            script.hear("result", draw.randint(1, 3 if learns else 6))
            script.kill()
            stage.unread()
        killed = configs(stage.run("script.py", how, samples, workers, NAME="killed"))
        trials = tune.ExperimentAnalysis(stage.results / "killed").trials
        assert [(trial.status, iterations(trial)) for trial in trials] == [("TERMINATED", [1, 2])] * TRIALS
        assert killed == configs(stage.run("script.py", how, samples, 1 if learns else 8, NAME="whole"))
        if how == "grid":
            assert [config["x"] for config in killed] == [0, 1, 2, 3] * 2


@pytest.mark.timeout(120)
@pytest.mark.parametrize("how", ["grid", "tpe ahead"])
def test_f25_a_larger_num_samples_after_kills_runs_what_is_missing(tmp_path: Path, how: str) -> None:
    fewer, more = (1, 2) if how == "grid" else (4, 8)
    with Stage(tmp_path) as stage:
        stage.write(SEARCH)
        script = stage.start("script.py", how, fewer, 2, NAME="e")
        script.hear("result", 3)
        script.kill()
        first = configs(stage.run("script.py", how, fewer, 2, NAME="e"))
        script = stage.start("script.py", how, more, 2, NAME="e")
        script.hear("result", 3)
        script.kill()
        made = configs(stage.run("script.py", how, more, 2, NAME="e"))
        assert made[:4] == first and len(made) == 8
        trials = tune.ExperimentAnalysis(stage.results / "e").trials
        assert [(trial.status, iterations(trial)) for trial in trials] == [("TERMINATED", [1, 2])] * 8
        if how != "grid":
            assert len({config["x"] for config in made}) == 8


def learning(space: Any = None, **settings: Any) -> Any:
    """A searcher whose proposals depend on the results from the fourth trial on."""
    return OptunaSearch(space, sampler=optuna.samplers.TPESampler(seed=1, n_startup_trials=3), **settings)


def by_run(trial: Any) -> dict[str, Any]:
    kind = trial.suggest_categorical("kind", ["near", "far"])
    trial.suggest_float("x", 0, 3 if kind == "near" else 30)
    return {"n": 3}


def labelled() -> dict[str, Any]:
    hp = pytest.importorskip("hyperopt", reason="hyperopt is not installed: pip install hyperopt").hp
    return {"x": hp.uniform("how far", 0, 5), "n": hp.choice("n", [0, 3])}


def numbered(cls: type[Searcher]) -> Any:
    """A user's subclass: what it suggests depends on an attribute of its own."""

    class Numbered(cls):  # type: ignore[misc, valid-type]
        def __init__(self, *arguments: Any, **settings: Any) -> None:
            super().__init__(*arguments, **settings)
            self.given: list[str] = []

        def suggest(self, trial_id: str) -> Any:
            config = super().suggest(trial_id)
            if isinstance(config, dict):
                self.given.append(trial_id)
                config["nth"] = len(self.given)
            return config

    return Numbered


UNIFORM = {"x": tune.uniform(0, 5), "n": tune.randint(0, 9)}
SEARCHED: dict[str, tuple[int, Any, Callable[[], Searcher]]] = {
    "tpe": (9, UNIFORM, learning),
    "tpe, points first": (9, UNIFORM, lambda: learning(points_to_evaluate=[{"x": 1.0, "n": 2}, {"x": 4.0}])),
    "define by run": (9, {}, lambda: learning(by_run)),
    "limiter": (9, UNIFORM, lambda: ConcurrencyLimiter(learning(), 2)),
    "limiter, in batches": (9, UNIFORM, lambda: ConcurrencyLimiter(learning(), 3, batch=True)),
    "repeater": (15, UNIFORM, lambda: Repeater(learning(), repeat=3)),
    "repeater in a limiter": (15, UNIFORM, lambda: ConcurrencyLimiter(Repeater(learning(), repeat=3), 2)),
    "auto that weighs costs": (20, UNIFORM, lambda: AutoSearch(cost_attr="loss")),
    "hyperopt": (9, UNIFORM, lambda: HyperOptSearch(n_initial_points=3)),
    "hyperopt's own space": (9, {}, lambda: HyperOptSearch(labelled(), n_initial_points=3)),
    "bayesopt": (6, UNIFORM, lambda: BayesOptSearch(random_search_steps=4)),
    "subclass of tpe": (9, UNIFORM, lambda: numbered(OptunaSearch)()),
    "subclass of random": (6, UNIFORM, lambda: numbered(BasicVariantGenerator)()),
    "subclass of a limiter": (6, UNIFORM, lambda: numbered(ConcurrencyLimiter)(BasicVariantGenerator(), 2)),
    "subclass of hyperopt": (6, UNIFORM, lambda: numbered(HyperOptSearch)(n_initial_points=3)),
    "grid and random": (
        3,
        {
            "x": tune.grid_search([1, 2, 3]),
            "n": tune.randint(0, 1000),
            "twice": tune.sample_from(lambda s: s.config.n * 2),
        },
        lambda: BasicVariantGenerator(max_concurrent=2, points_to_evaluate=[{"x": 2, "n": 7}]),
    ),
}


def told(config: dict[str, Any]) -> None:
    for n in (1, 2):
        tune.report({"loss": (config["x"] - 2.5) ** 2 + config["n"] / n})


LIMITED = {"limiter": 2, "limiter, in batches": 3, "repeater in a limiter": 2}
"""So many at a time. What is known when one is proposed depends on which ones those are, and a kill changes that."""


class Limit(tune.Callback):
    """Looks that there are no more trials at a time."""

    changes_results = False

    def __init__(self, most: int) -> None:
        self.most = most

    def on_trial_start(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        assert sum(not each.is_finished() for each in trials) <= self.most


def searched(path: Path, how: str) -> Any:
    if how in ("hyperopt", "bayesopt"):
        pytest.importorskip({"bayesopt": "bayes_opt"}.get(how, how), reason=f"{how} is not installed: make test-peers")
    samples, space, make = SEARCHED[how]
    return tune.run(
        told, config=space, storage_path=path, name="e", num_samples=samples, search_alg=make(), metric="loss",
        mode="min", seed=7, resume="AUTO", executor="inline", resources_per_trial={"cpu": 0.25}, verbose=0,
        max_concurrent_trials=None if how in LIMITED or how == "grid and random" else 1,
        callbacks=[Limit(LIMITED.get(how, 9))],
    ).trials  # fmt: skip


def killed_and_whole(path: Path, patch: pytest.MonkeyPatch, how: str, seed: object) -> None:
    whole = searched(path / "whole", how)
    patch.setattr(journal_writer, "COMPACT_BYTES", 4000)  # what is gone on from is a snapshot and what came after it
    draw = random.Random(f"{how} {seed}")
    for _ in range(5):
        killed_at_fact(draw.randint(2, 16), lambda: searched(path / "cut", how))
    cut = searched(path / "cut", how)
    assert [(trial.status, iterations(trial)) for trial in cut] == [("TERMINATED", [1, 2])] * len(whole)
    if how in LIMITED:
        different = {(trial.config["x"], trial.config["n"]) for trial in cut}
        assert len(different) == len({(trial.config["x"], trial.config["n"]) for trial in whole})
    else:
        assert [trial.config for trial in cut] == [trial.config for trial in whole]


@pytest.mark.parametrize("how", SEARCHED)
def test_f14_f51_killed_between_any_two_facts_a_searcher_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    killed_and_whole(tmp_path, monkeypatch, how, "")


@pytest.mark.soak
@pytest.mark.parametrize("how", SEARCHED)
@pytest.mark.parametrize("seed", range(40))
def test_f14_f51_killed_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, seed: int) -> None:
    killed_and_whole(tmp_path, monkeypatch, how, seed)


DIES = """
import os, signal
from pathlib import Path

def train(config):
    mark = Path(os.environ["RESULTS"] + f"-{config['x']}")
    if config["x"] in (1, 4, 6) and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    tune.report({"loss": config["x"]})

if __name__ == "__main__":
    analysis = tune.run(
        train, config={"x": tune.grid_search(list(range(8)))}, name="e", storage_path=os.environ["RESULTS"],
        max_failures=int(os.environ["RETRIES"]), resume=os.environ["RESUME"], raise_on_failed_trial=False, verbose=0,
    )
"""


@pytest.mark.parametrize("how", ["retried", "resumed"])
def test_f14_each_grid_point_ends_with_one_finished_result_also_when_three_were_killed(
    tmp_path: Path, how: str
) -> None:
    with Stage(tmp_path) as stage:
        stage.write(DIES)
        stage.run(RETRIES="1" if how == "retried" else "0", RESUME="AUTO")
        if how == "resumed":
            errors = [trial.status for trial in tune.ExperimentAnalysis(stage.results / "e").trials].count("ERROR")
            assert errors == 3
            stage.run(RETRIES="0", RESUME="AUTO+RESTART_ERRORED")
        trials = tune.ExperimentAnalysis(stage.results / "e").trials
    assert [trial.config["x"] for trial in trials] == list(range(8))
    assert [(trial.status, trial.last_result["loss"], iterations(trial)) for trial in trials] == [
        ("TERMINATED", x, [1]) for x in range(8)
    ]
