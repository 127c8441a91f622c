"""Ray's older interface: algorithms that make trials, the generator around a searcher, and what is saved of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tuner.error import SettingError
from tuner.experiment import Experiment, Trial
from tuner.search import (
    BasicVariantGenerator,
    ConcurrencyLimiter,
    Repeater,
    SearchAlgorithm,
    Searcher,
    SearchGenerator,
    as_searcher,
)

ROOT = Path(__file__).parents[3]


def report_twice(config: dict[str, Any]) -> None:
    for step in range(2):
        tune.report({"score": config["x"] * step, "eval": {"step": step}})


def run(search_alg: Any, tmp_path: Path, **arguments: Any) -> tune.ExperimentAnalysis:
    given: dict[str, Any] = {"metric": "score", "mode": "max", "executor": "inline", "verbose": 0}
    return tune.run(report_twice, search_alg=search_alg, storage_path=tmp_path, **(given | arguments))


class Given(SearchAlgorithm):
    """Makes trials of a list, under ids of its own."""

    def __init__(self, points: list[int]) -> None:
        self.points, self.told = points, []  # type: ignore[var-annotated]

    def add_configurations(self, experiments: Any) -> None:
        [self.experiment] = experiments

    def next_trial(self) -> Any:
        if not self.points:
            self.set_finished()
            return None
        return Trial(self.experiment.spec["run"], config={"x": self.points.pop(0)}, trial_id=f"mine{len(self.points)}")

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self.told.append((trial_id, result["eval/step"]))

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        self.told.append((trial_id, "complete" if result and not error else "error"))


def test_an_algorithms_own_trials_run_and_it_hears_of_them_under_its_ids(tmp_path: Path) -> None:
    algorithm = Given([3, 4])
    analysis = run(algorithm, tmp_path, num_samples=1)
    assert [trial.config["x"] for trial in analysis.trials] == [3, 4]
    assert algorithm.told == [(name, said) for name in ("mine1", "mine0") for said in (0, 1, "complete")]


def test_what_is_no_trial_is_refused_with_what_is_accepted(tmp_path: Path) -> None:
    class Odd(Given):
        def next_trial(self) -> Any:
            return {"x": 1}

    with pytest.raises(SettingError, match=r"Odd.next_trial\(\) returned .* accepted are Trial\(trainable_name"):
        run(Odd([]), tmp_path)


def test_a_generator_makes_trials_of_what_a_searcher_suggests(tmp_path: Path) -> None:
    searcher = Repeater(ConcurrencyLimiter(BasicVariantGenerator(), 2), repeat=2, set_index=False)
    analysis = run(SearchGenerator(searcher), tmp_path, config={"x": tune.uniform(0, 1), "y": 1}, num_samples=4)
    found = [trial.config["x"] for trial in analysis.trials]
    assert found[0] == found[1] and found[2] == found[3] and found[1] != found[2]
    assert {trial.config["y"] for trial in analysis.trials} == {1}


def test_by_hand_a_generator_and_the_grid_make_their_trials() -> None:
    spec = {"run": "train", "config": {"x": tune.grid_search([1, 2]), "n": {"y": tune.choice([5])}}, "num_samples": 2}
    grid = BasicVariantGenerator()
    assert isinstance(grid, SearchAlgorithm)
    grid.add_configurations(Experiment.from_json("named", spec))
    made = []
    while not grid.is_finished():
        made.append(grid.next_trial())
    assert [trial.config["x"] for trial in made if trial] == [1, 2, 1, 2] and grid.total_samples == 4
    assert made[1] is not None and made[1].evaluated_params == {"x": 2, "n/y": 5}
    assert "x=2" in made[1].experiment_tag and grid.next_trial() is None

    class Nested(Searcher):
        def suggest(self, trial_id: str) -> Any:
            return {"a": {"b": {"d": 4, "e": 5}}} if trial_id else None

    generator = SearchGenerator(Nested())
    generator.add_configurations({"named": {"run": "train"}})
    trial = generator.next_trial()
    assert trial is not None and "e=5" in trial.experiment_tag and generator.is_finished()
    with pytest.raises(SettingError, match="of one experiment, not of 2"):
        generator.add_configurations({"one": {"run": "train"}, "two": {"run": "train"}})


class WithAHandle(Searcher):
    """Holds what cannot be pickled, and saves its content itself."""

    def __init__(self) -> None:
        super().__init__(metric="score", mode="max")
        self.lock, self.asked = threading.Lock(), 0
        self.secret = [threading.Lock()]

    def suggest(self, trial_id: str) -> Any:
        self.asked += 1
        return {"x": self.asked}

    def set_search_properties(self, metric: Any, mode: Any, config: Any) -> bool:  # type: ignore[override]
        return True

    def on_trial_complete(self, trial_id: str, result: Any = None, **_: Any) -> None:
        self.secret.append(threading.Lock())

    def save(self, checkpoint_path: Any) -> None:
        Path(checkpoint_path).write_text(json.dumps(len(self.secret)))

    def restore(self, checkpoint_path: Any) -> None:
        self.secret = [threading.Lock() for _ in range(json.loads(Path(checkpoint_path).read_text()))]


class InADirectory(WithAHandle):
    """The same, into a directory."""

    def save_to_dir(self, checkpoint_dir: Any, session_str: str = "default", **_: Any) -> None:
        self.save(Path(checkpoint_dir) / f"own-{session_str}")

    def restore_from_dir(self, checkpoint_dir: Any) -> None:
        [file] = Path(checkpoint_dir).glob("own-*")
        self.restore(file)


@pytest.mark.parametrize("kind", [WithAHandle, InADirectory])
def test_what_cannot_be_pickled_is_kept_by_a_searchers_own_save(kind: type[WithAHandle]) -> None:
    before = as_searcher(kind(), {}, num_samples=4)
    for trial in ("a", "b"):
        before.suggest(trial)
        before.on_trial_complete(trial, {"score": 1})
    inner = kind()
    after = as_searcher(inner, {}, num_samples=4)
    after.set_state(before.get_state())
    assert (inner.asked, len(inner.secret)) == (2, 3)
    assert after.suggest("c") == {"x": 3}


def test_a_state_in_a_directory_is_found_again(tmp_path: Path) -> None:
    searcher = BasicVariantGenerator(random_state=3)
    searcher.set_search_properties(None, None, {"x": tune.uniform(0, 1)}, num_samples=4)
    assert not searcher.has_checkpoint(str(tmp_path))
    with pytest.raises(SettingError, match="resume it"):
        searcher.restore_from_dir(str(tmp_path))
    first = searcher.suggest("a")
    searcher.save_to_dir(str(tmp_path), session_str="2026")
    assert [file.name for file in tmp_path.iterdir()] == ["basic-variant-state-2026.json"]
    second = searcher.suggest("b")
    again = BasicVariantGenerator(random_state=3)
    again.set_search_properties(None, None, {"x": tune.uniform(0, 1)}, num_samples=4)
    again.restore_from_dir(str(tmp_path))
    assert again.suggest("b") == second != first


KILLED = """
import os, sys, tuner as tune
from tuner.search import SearchGenerator, Searcher
class Counting(Searcher):
    asked, told = 0, 0
    def set_search_properties(self, metric, mode, config): return True
    def suggest(self, trial_id):
        self.asked += 1
        return {"x": self.asked}
    def on_trial_complete(self, trial_id, result=None, error=False): self.told += 1
class Killed(tune.Callback):
    ended = 0
    def on_trial_complete(self, iteration, trials, trial, **info):
        self.ended += 1
        if self.ended == 3 and len(sys.argv) > 2: os.kill(os.getpid(), 9)
def train(config): tune.report({"score": config["x"]})
searcher = Counting(metric="score", mode="max")
analysis = tune.run(train, name="killed", search_alg=SearchGenerator(searcher), num_samples=6, storage_path=sys.argv[1],
                    verbose=0, resume="AUTO", executor="inline", callbacks=[Killed()])
print(sorted(trial.config["x"] for trial in analysis.trials), searcher.asked, searcher.told)
"""


def test_f14_a_generator_is_continued_by_a_resume(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    killed = subprocess.run([*command, "kill"], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    resumed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, env={**os.environ})
    assert resumed.stdout.splitlines()[-1] == "[1, 2, 3, 4, 5, 6] 6 6", resumed.stderr
