"""A policy file replayed: Ray's, and what our PBT tells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import tuner as tune
from trainables import tagged
from tuner.error import SettingError
from tuner.schedulers import Decision, PopulationBasedTrainingReplay
from tuner.schedulers.base import Directive, Exploit
from tuner.testing import TrialStub

CONTINUE, PAUSE = Decision.CONTINUE, Decision.PAUSE

RAYS = [
    ["1_lr=0.9", "0_lr=0.1", 3, 3, {"lr": 0.1}, {"lr": 0.5}],  # replaced by the weights of the next line
    ["2_lr=0.2", "3_lr=0.3", 4, 5, {"lr": 0.3}, {"lr": 0.36}],
    ["1_lr=0.9", "2_lr=0.2", 9, 8, {"lr": 0.36}, {"lr": 0.288}],
]


def written(path: Path, lines: list[Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_schedule_is_played(tmp_path: Path) -> None:
    replay = PopulationBasedTrainingReplay(written(tmp_path / "pbt_policy_1.txt", RAYS))
    trial = TrialStub("a", replay.first_config({"lr": 7.0}))
    assert trial.config == {"lr": 0.3}
    replay.on_trial_add(trial)
    log: list[Any] = []
    for iteration in range(1, 10):
        log.append(replay.on_trial_result(trial, {"training_iteration": iteration}))
        replay.on_checkpoint(trial, iteration)
        log += replay.orders()
    changed = [PAUSE, Directive("a", Exploit("a", {"lr": 0.36})), CONTINUE, CONTINUE]
    assert log == [CONTINUE] * 4 + changed + [PAUSE, Directive("a", Exploit("a", {"lr": 0.288})), CONTINUE]
    assert replay.debug_string() == "PopulationBasedTraining replay: Step 9, perturb 2"


def test_it_waits_for_the_checkpoint_of_the_change(tmp_path: Path) -> None:
    """A function that saves every third time: what it reports meanwhile is still of the old config."""
    replay = PopulationBasedTrainingReplay(written(tmp_path / "p.txt", RAYS[1:2]))
    trial = TrialStub("a")
    replay.on_trial_add(trial)
    assert replay.on_trial_result(trial, {"training_iteration": 5}) == PAUSE
    replay.on_checkpoint(trial, 3)  # published late
    assert list(replay.orders()) == []
    assert replay.on_trial_result(trial, {"training_iteration": 6}) == PAUSE
    state = cloudpickle.loads(cloudpickle.dumps(replay.get_state()))
    again = PopulationBasedTrainingReplay(tmp_path / "p.txt")
    again.set_state(state)
    again.on_checkpoint(trial, 6)
    assert list(again.orders()) == [Directive("a", Exploit("a", {"lr": 0.36}))]
    assert again.on_trial_result(trial, {"training_iteration": 7}) == CONTINUE


def test_what_our_own_population_tells_can_be_replayed(tmp_path: Path) -> None:
    from tests.tuner.schedulers.test_pbt import HISTORY, Population, pbt

    population = Population(pbt())
    for name, iteration, value, _ in HISTORY:
        population.publish(name, iteration) if value == "published" else population.report(name, iteration, value)
    lines = [tagged.dumps(list(step)) for step in population.scheduler.policy("c")]
    (tmp_path / "pbt_policy_c.txt").write_bytes(b"\n".join(lines) + b"\n")

    replay = PopulationBasedTrainingReplay(str(tmp_path / "pbt_policy_c.txt"))
    assert replay.config == {"lr": 10.0}
    trial = TrialStub("x")
    replay.on_trial_add(trial)
    configs = []
    for iteration in range(1, 7):
        replay.on_trial_result(trial, {"training_iteration": iteration})
        replay.on_checkpoint(trial, iteration)
        configs += [
            (iteration, order.what.config["lr"]) for order in replay.orders() if isinstance(order.what, Exploit)
        ]
    assert configs == [(2, 20.0), (4, 40.0)]


def test_values_that_json_has_not(tmp_path: Path) -> None:
    line = ["a", "b", 1, 1, {"shape": (1, 2)}, {"shape": (3, 4)}]
    (tmp_path / "p.txt").write_bytes(tagged.dumps(line))
    assert PopulationBasedTrainingReplay(tmp_path / "p.txt").config == {"shape": (1, 2)}


def climbs(config: dict[str, Any]) -> None:
    found = tune.get_checkpoint()
    done = found.to_dict()["n"] if found is not None else 0
    for n in range(done + 1, 7):
        tune.report({"score": config["lr"] * n}, checkpoint=tune.Checkpoint.from_dict({"n": n}))


def test_a_large_value_stands_in_a_policy_by_its_name_and_is_replayed(tmp_path: Path) -> None:
    scheduler = tune.schedulers.PopulationBasedTraining(
        "training_iteration", metric="score", mode="max", perturbation_interval=2, hyperparam_mutations={"lr": [1, 2]}
    )
    large = "x" * 300_000
    tune.run(
        climbs,
        config={"lr": tune.grid_search([1, 2, 3]), "d": large},
        scheduler=scheduler,
        storage_path=tmp_path,
        name="p",
        executor="inline",
        verbose=0,
        seed=1,
    )
    policy = min((tmp_path / "p").glob("pbt_policy_*.txt"))
    assert policy.stat().st_size < 10_000
    assert PopulationBasedTrainingReplay(policy).config["d"] == large


def test_a_second_trial_is_an_error(tmp_path: Path) -> None:
    replay = PopulationBasedTrainingReplay(written(tmp_path / "p.txt", RAYS))
    replay.on_trial_add(TrialStub("a", replay.first_config({})))
    with pytest.raises(SettingError, match="one trial, and there is a already; use num_samples=1"):
        replay.first_config({})


def test_any_metric_will_do(tmp_path: Path) -> None:
    replay = PopulationBasedTrainingReplay(written(tmp_path / "p.txt", RAYS))
    assert replay.set_search_properties(["a", "b"], ["min", "max"])
    assert replay.metric is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read: No such file"),
        ("", "is empty: that trial never went on as a clone"),
        ("{}\n", "line 1: .* is not accepted; accepted is a JSON list"),
        ("not json\n", "line 1"),
        ('["a", "b", 1, 1, {}]\n', "line 1"),
        ('["a", "b", 1, 1, {}, {}]\n["a", "b", 1, "x", {}, {}]\n', "line 2"),
        ('["a", "b", 1, 1, [], {}]\n', "line 1"),
    ],
)
def test_a_file_that_is_none_is_said_at_once(tmp_path: Path, text: str | None, message: str) -> None:
    file = tmp_path / "policy.txt"
    if text is not None:
        file.write_text(text)
    with pytest.raises(SettingError, match=rf"policy\.txt.*{message}"):
        PopulationBasedTrainingReplay(str(file))
