"""Random numbers: what a seed fixes, what no trial shares, what a kill does not change (F51, T16; design.md: seed)."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from lifecycle_scripts import Stage, rows

import tuner as tune
from trainables.runtime.seeding import trial_seed


def draws(config):
    """Draws of all three kinds, whatever is loaded; two results, a checkpoint with the first."""
    import numpy

    checkpoint = tune.get_checkpoint()
    start = checkpoint.to_dict()["n"] if checkpoint else 0
    for n in range(start + 1, 3):
        result = {
            "python": random.random(),
            "numpy": float(numpy.random.random()),
            "own": float(numpy.random.default_rng(tune.get_context().get_seed()).random()),
            "seed": tune.get_context().get_seed(),
        }
        tune.report(result, checkpoint=tune.Checkpoint.from_dict({"n": n}) if n == 1 else None)


def facts(analysis):
    """What must be equal: configs and every draw."""
    drawn = [[(row["python"], row["numpy"], row["own"]) for row in rows(trial)] for trial in analysis.trials]
    return [trial.config for trial in analysis.trials], drawn


def run(path, name, **settings):
    given = {"storage_path": path, "name": name, "verbose": 0, "resources_per_trial": {"cpu": 0.25}, **settings}
    return tune.run(draws, **given)


SPACES = {
    "grid": {"config": {"g": tune.grid_search([1, 2, 3, 4]), "x": tune.uniform(0, 1)}, "num_samples": 2},
    "random": {"config": {"x": tune.uniform(0, 1), "z": tune.choice(["a", "b", "c"])}, "num_samples": 8},
}


@pytest.mark.parametrize("kind", SPACES)
def test_f51_one_seed_gives_the_same_configs_and_draws_with_1_and_8_workers(tmp_path, kind):
    settings = SPACES[kind]
    one = run(tmp_path, "one", seed=11, max_concurrent_trials=1, **settings)
    eight = run(tmp_path, "eight", seed=11, max_concurrent_trials=8, **settings)
    assert facts(one) == facts(eight) and len(one.trials) == 8
    other = run(tmp_path, "other", seed=12, **settings)
    assert not {trial.config["x"] for trial in one.trials} & {trial.config["x"] for trial in other.trials}
    assert not set(map(str, facts(one)[1])) & set(map(str, facts(other)[1]))


def test_t16_no_two_trials_of_a_run_draw_the_same(tmp_path):
    """They are forked from one process; none shares its generators' state with another, or with the driver."""
    analysis = run(tmp_path, "e", num_samples=4)
    for kind in ("python", "numpy", "own"):
        numbers = [row[kind] for trial in analysis.trials for row in rows(trial)[:1]]
        assert len(set(numbers)) == 4
    first = rows(analysis.trials[0])[0]
    assert len({first["python"], first["numpy"], first["own"]}) == 3
    again = run(tmp_path, "again", num_samples=4)  # no seed was given: another one is drawn
    assert not {row["python"] for trial in again.trials for row in rows(trial)} & {
        row["python"] for trial in analysis.trials for row in rows(trial)
    }


def torch_draws(config):
    import torch

    generator = torch.Generator().manual_seed(tune.get_context().get_seed() % 2**63)
    return {"torch": float(torch.rand(1)), "own": float(torch.rand(1, generator=generator))}


@pytest.mark.torch
def test_t16_torch_too_and_the_same_trial_of_two_runs_with_one_seed_draws_the_same(tmp_path):
    pytest.importorskip("torch")
    drawn = []
    for name in ("one", "two"):
        analysis = tune.run(torch_draws, name=name, num_samples=3, seed=5, storage_path=tmp_path, verbose=0)
        drawn.append([trial.last_result["torch"] for trial in analysis.trials])
    assert drawn[0] == drawn[1] and len(set(drawn[0])) == 3


def test_f51_the_seed_of_a_run_and_of_each_trial_are_in_their_files(tmp_path):
    for name, seed in (("given", 21), ("drawn", None)):
        analysis = run(tmp_path, name, num_samples=2, seed=seed)
        stored = json.loads(Path(analysis.experiment_path, "experiment.json").read_text())["seed"]
        assert seed is None or stored == seed
        for trial in analysis.trials:
            recorded = json.loads(Path(trial.path, "trial.json").read_text())
            assert (recorded["trial_id"], recorded["index"]) == (trial.trial_id, trial.index)
            assert recorded["seed"] == trial_seed(stored, trial.index) == rows(trial)[0]["seed"]


KILLED = """
import json, os, random
from pathlib import Path

class Saves(tune.Callback):
    def on_checkpoint(self, iteration, trials, trial, checkpoint, **info):
        tell("saved", trial.index)

def train(config):
    checkpoint = tune.get_checkpoint()
    start = checkpoint.to_dict()["n"] if checkpoint else 0
    for n in range(start + 1, 4):
        # trial 0 saves after its first step, trial 1 never: one will go on, the other begin anew
        saves = trial_index() == 0 and n == 1
        tune.report(
            {"draw": random.random(), "seed": tune.get_context().get_seed()},
            checkpoint=tune.Checkpoint.from_dict({"n": n}) if saves else None,
        )
        tell("reported", trial_index(), n)
        if n == 2:
            gate()

def trial_index():
    return int(tune.get_trial_id().rsplit("_", 1)[1])

analysis = tune.run(
    train, name=os.environ["NAME"], config={"x": tune.uniform(0, 1)}, num_samples=4, seed=9, resume="AUTO",
    storage_path=os.environ["RESULTS"], max_concurrent_trials=2, resources_per_trial={"cpu": 0.5}, callbacks=[Saves()],
)
"""


def test_f51_after_a_kill_configs_are_the_same_and_no_trial_draws_again_what_it_drew(tmp_path):
    with Stage(tmp_path) as stage:
        stage.gate()
        stage.write(KILLED)
        stage.let(4)
        stage.run(NAME="whole")
        stage.unread()
        script = stage.start(NAME="killed")
        wanted = {"saved 0", "reported 0 2", "reported 1 2"}
        while wanted:
            wanted -= set(script.hear(""))
        script.kill()
        again = stage.start(NAME="killed")
        again.hear("reported")
        stage.let(4)
        again.ends_well()
        whole, killed = (tune.ExperimentAnalysis(stage.results / name).trials for name in ("whole", "killed"))
        assert [trial.config for trial in whole] == [trial.config for trial in killed]
        assert [trial.attempt for trial in killed] == [2, 2, 1, 1]
        before, after = ([[row["draw"] for row in rows(trial)] for trial in trials] for trials in (whole, killed))
        assert after[1:] == before[1:]  # what began anew, or later, began alike
        assert after[0][0] == before[0][0]  # before its checkpoint nothing changed
        assert not set(after[0][1:]) & set(before[0])  # and after it no draw is repeated
        seeds = [row["seed"] for row in rows(killed[0])]
        assert seeds == [trial_seed(9, 0), trial_seed(9, 0, 1), trial_seed(9, 0, 1)]


def test_f51_a_resume_goes_on_with_the_first_seed_and_says_so_when_another_is_given(tmp_path, capsys):
    settings = {"config": {"x": tune.uniform(0, 1)}, "storage_path": tmp_path, "executor": "inline", "name": "e"}
    whole = tune.run(draws, **{**settings, "name": "whole"}, num_samples=4, seed=3, verbose=0)
    tune.run(draws, **settings, num_samples=2, seed=3, verbose=0)
    capsys.readouterr()
    more = tune.run(draws, **settings, num_samples=4, seed=4, resume=True, verbose=1)
    assert facts(more) == facts(whole)
    assert "seed=4 has no effect" in capsys.readouterr().out


def test_the_drivers_own_random_state_is_left_alone(tmp_path):
    random.seed(1)
    expected = [random.random() for _ in range(3)]
    random.seed(1)
    for executor in ("inline", "local"):
        got = random.random()
        tune.run(draws, name=executor, storage_path=tmp_path, executor=executor, verbose=0, num_samples=2)
        assert got == expected.pop(0)
    assert random.random() == expected.pop(0)
