"""PB2: what it learns from and what it proposes."""

from __future__ import annotations

import importlib.util
import random
from typing import Any

import pytest

from trainables.errors import MissingExtraError
from tuner.schedulers import PB2, Decision, PopulationBasedTraining
from tuner.schedulers import pb2 as pb2_module
from tuner.schedulers.base import Exploit
from tuner.testing import TrialStub, check_scheduler


def pb2(**kwargs: Any) -> PB2:
    given: dict[str, Any] = {
        "time_attr": "training_iteration",
        "metric": "acc",
        "mode": "max",
        "perturbation_interval": 1,
        "hyperparam_bounds": {"lr": [0.0, 1.0]},
    }
    return PB2(**given | kwargs)


@pytest.mark.parametrize("synch", [False, True])
def test_it_meets_its_obligations(synch: bool) -> None:
    bounds = {"lr": [0.0, 2.0], "layers": [1, 4]}
    check_scheduler(lambda: PB2("training_iteration", None, None, 4, hyperparam_bounds=bounds, synch=synch))


def test_the_first_values_lie_within_the_bounds() -> None:
    scheduler = pb2(hyperparam_bounds={"lr": [0.1, 0.2], "opt": {"momentum": (0.5, 0.9)}})
    made = scheduler.first_config({"opt": {"name": "sgd"}, "z": 1})
    assert 0.1 <= made["lr"] <= 0.2
    assert 0.5 <= made["opt"]["momentum"] <= 0.9
    assert (made["opt"]["name"], made["z"]) == ("sgd", 1)
    assert scheduler.changed_params == ("lr", "opt/momentum")
    assert scheduler.first_config({"lr": 5.0, "opt": {"momentum": 0.7}}) == {"lr": 5.0, "opt": {"momentum": 0.7}}


def learned(scheduler: PB2, *, rounds: int = 12, size: int = 6) -> list[Exploit]:
    """A population whose score rises by 1 - (lr - 0.3)^2 per iteration."""
    trials = [TrialStub(f"t{n}", {"lr": n / (size - 1), "layers": 3, "name": "x"}) for n in range(size)]
    scores = dict.fromkeys((trial.trial_id for trial in trials), 0.0)
    for trial in trials:
        scheduler.on_trial_add(trial)
        scheduler.on_trial_start(trial)
    found = []
    for iteration in range(1, rounds + 1):
        for trial in trials:
            scores[trial.trial_id] += 1 - (trial.config["lr"] - 0.3) ** 2
            result = {"training_iteration": iteration, "acc": scores[trial.trial_id]}
            verdict = scheduler.on_trial_result(trial, result)
            scheduler.on_checkpoint(trial, iteration)
            if isinstance(verdict, Exploit):
                trial.config, scores[trial.trial_id] = verdict.config, scores[verdict.donor]
                found.append(verdict)
    return found


@pytest.mark.parametrize("seed", [0, 1])
def test_it_finds_what_raises_the_score_most(seed: int) -> None:
    found = [exploit.config["lr"] for exploit in learned(pb2(seed=seed, quantile_fraction=0.5), rounds=25)]
    assert all(0.0 <= lr <= 1.0 for lr in found)
    assert found[-1] == pytest.approx(0.3, abs=0.05)
    assert min(abs(lr - 0.3) for lr in found[:3]) > 0.05  # it did not know before


def test_the_same_seed_proposes_the_same() -> None:
    assert learned(pb2(seed=3), rounds=6) == learned(pb2(seed=3), rounds=6)
    assert learned(pb2(seed=3), rounds=6) != learned(pb2(seed=4), rounds=6)


def test_all_else_of_the_donors_config_stays_and_an_int_stays_one() -> None:
    found = learned(pb2(hyperparam_bounds={"lr": [0.0, 1.0], "layers": [1, 9]}), rounds=5)
    assert {exploit.config["name"] for exploit in found} == {"x"}
    assert all(type(exploit.config["layers"]) is int for exploit in found)
    assert len({exploit.config["layers"] for exploit in found}) > 1


def test_a_rounded_int_stays_within_the_bounds() -> None:
    found = learned(pb2(hyperparam_bounds={"lr": [0.0, 1.0], "layers": [0.6, 2.9]}), rounds=8)
    assert {exploit.config["layers"] for exploit in found} <= {1, 2}


def test_a_custom_explore_fn_has_the_last_word() -> None:
    found = learned(pb2(custom_explore_fn=lambda config: {**config, "lr": min(config["lr"], 0.5)}), rounds=6)
    assert found
    assert all(exploit.config["lr"] <= 0.5 for exploit in found)


def test_a_nan_teaches_nothing() -> None:
    scheduler = pb2()
    draw = random.Random(0)
    trials = [TrialStub(f"t{n}", {"lr": n / 4}) for n in range(4)]
    for trial in trials:
        scheduler.on_trial_add(trial)
        scheduler.on_trial_start(trial)
    exploits = 0
    for iteration in range(1, 10):
        for trial in trials:
            value = draw.choice([float("nan"), float("inf"), draw.random()])
            verdict = scheduler.on_trial_result(trial, {"training_iteration": iteration, "acc": value})
            scheduler.on_checkpoint(trial, iteration)
            if isinstance(verdict, Exploit):
                exploits += 1
                trial.config = verdict.config
                assert 0.0 <= trial.config["lr"] <= 1.0
    assert exploits > 0


def test_it_is_a_population_based_training() -> None:
    scheduler = pb2()
    assert isinstance(scheduler, PopulationBasedTraining)
    assert scheduler.debug_string() == "PB2: 0 checkpoints, 0 perturbs"
    assert scheduler.on_trial_result(TrialStub("a", {"lr": 1.0}), {"training_iteration": 1}) == Decision.CONTINUE


def test_without_scikit_learn_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(name: str) -> Any:
        return None if name == "sklearn" else importlib.util.find_spec(name)

    monkeypatch.setattr(pb2_module, "find_spec", find)
    with pytest.raises(MissingExtraError, match=r'pip install .*\[sklearn\]"'):
        pb2()


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        (None, "hyperparam_bounds=None"),
        ({}, r"hyperparam_bounds=\{\}"),
        ({"lr": [1, 0]}, r"hyperparam_bounds\['lr'\]=\[1, 0\]"),
        ({"lr": [1]}, r"\['lr'\]=\[1\]"),
        ({"lr": [0, float("inf")]}, r"\['lr'\]=\[0, inf\]"),
        ({"a": {"b": "x"}}, r"hyperparam_bounds\['a'\]\['b'\]='x'"),
        ({"a": {}}, r"hyperparam_bounds\['a'\]=\{\}"),
    ],
)
def test_bounds_that_are_none_are_said_at_once(bounds: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pb2(hyperparam_bounds=bounds)
