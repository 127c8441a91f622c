"""HyperOpt under our adapter: what it proposes, what it is told, and how it goes on."""

from __future__ import annotations

from statistics import median
from typing import Any

import pytest
from hypothesis import given, settings

import tuner as tune
from tests.tuner.search.library_harness import BRANCHED, check_config, check_prefixes, learned, loss_of, opened, spaces
from tuner.error import SettingError
from tuner.search import BasicVariantGenerator
from tuner.search.hyperopt import HyperOptSearch
from tuner.testing import check_searcher

hyperopt = pytest.importorskip("hyperopt", reason="hyperopt is not installed: pip install hyperopt")
hp = hyperopt.hp

OWN = {
    "lr": hp.loguniform("lr", -9, 0),
    "kind": hp.choice("kind", ["a", "b"]),
    "opt": hp.choice("opt", [{"name": "adam"}, {"name": "sgd", "momentum": hp.uniform("momentum", 0.5, 0.9)}]),
}


def make(space: Any = None, **kwargs: Any) -> HyperOptSearch:
    return HyperOptSearch(space, **{"n_initial_points": 4, "metric": "loss", "mode": "min", **kwargs})


@settings(max_examples=25, deadline=None)
@given(spaces(branches=True))
def test_every_suggestion_is_valid(space: dict[str, Any]) -> None:
    searcher = opened(make(n_initial_points=2), space)
    for number in range(4):
        config = searcher.suggest(f"t{number}")
        check_config(space, config)
        searcher.on_trial_complete(f"t{number}", {"loss": loss_of(config), "training_iteration": 1})


def test_it_meets_the_obligations_of_a_searcher() -> None:
    check_searcher(lambda: HyperOptSearch(n_initial_points=10))


@pytest.mark.parametrize("space", [BRANCHED, OWN], ids=["ours", "its own"])
def test_cut_anywhere_it_goes_on_with_the_same_suggestion(space: Any) -> None:
    if space is OWN:
        check_prefixes(lambda: make(OWN, points_to_evaluate=[{"lr": 0.1, "kind": "b", "opt": {"name": "adam"}}]))
    else:
        check_prefixes(make, space)


def test_a_journal_with_another_config_has_its_way() -> None:
    searcher = opened(make(OWN))
    assert not searcher.replay_suggest("t0", {"lr": 3.0})
    assert isinstance(searcher.suggest("t1"), dict)


def test_points_come_first_whole_or_in_part_nested_or_flat() -> None:
    whole = {"x": 0.25, "m": {"lr": 0.01, "opt": {"kind": "sgd", "mu": 0.5}}, "k": 3}
    space = {
        "x": tune.uniform(0, 1),
        "m": {"lr": tune.loguniform(1e-4, 1), "opt": tune.choice(["adam", {"kind": "sgd", "mu": tune.uniform(0, 1)}])},
        "k": 3,
    }
    searcher = opened(make(points_to_evaluate=[whole, {"x": 0.5}, {"m/lr": 0.1}]), space)
    first, second, third = (searcher.suggest(f"t{number}") for number in range(3))
    assert (first, second["x"], third["m"]["lr"]) == (whole, 0.5, 0.1)  # type: ignore[index]
    check_config(space, second)


def test_points_that_were_evaluated_are_learned_from_and_not_run() -> None:
    points = [{"x": 0.1}, {"x": 0.9}]
    searcher = opened(make(points_to_evaluate=points, evaluated_rewards=[1.0, 2.0]), {"x": tune.uniform(0, 1)})
    assert searcher.suggest("a")["x"] not in (0.1, 0.9)  # type: ignore[index]
    trials = searcher.unwrapped._live()._trials  # type: ignore[attr-defined]
    assert trials.losses() == [1.0, 2.0, None]


@pytest.mark.parametrize(("mode", "told"), [("min", [0.5, None, None, 7.0]), ("max", [-0.5, None, None, -7.0])])
def test_results_and_failures_are_told(mode: str, told: list[float | None]) -> None:
    searcher = opened(make(mode=mode), {"x": tune.uniform(0, 1)})
    for name in "abcd":
        searcher.suggest(name)
    searcher.on_trial_complete("a", {"loss": 0.5})
    searcher.on_trial_complete("b", {"loss": 0.5}, error=True)
    searcher.on_trial_complete("c", {"loss": float("nan")})
    searcher.on_trial_complete("d", error=True)
    searcher.on_trial_complete("d", {"loss": 7.0})  # it was continued
    trials = searcher.unwrapped._live()._trials  # type: ignore[attr-defined]
    assert trials.losses() == told
    assert trials.statuses() == ["ok", "fail", "fail", "ok"]


@pytest.mark.parametrize(
    ("make_it", "message"),
    [
        (lambda: make({"g": tune.grid_search([1, 2])}), "grid_search at 'g'; make it a choice"),
        (lambda: make({"a": 3}), "nothing to search: .* accepted are uniform"),
        (lambda: make({"a": hp.uniform("a", 0, 1), "b": tune.uniform(0, 1)}), "use one of the two"),
        (lambda: make(OWN, points_to_evaluate=[{"lrr": 1}]), "'lrr' is no label of the space, which has: kind, lr"),
        (
            lambda: make(OWN, points_to_evaluate=[{"lr": 1, "kind": "c"}]),
            "kind='c' is not accepted; accepted are: 'a', 'b'",
        ),
        (lambda: make(OWN, points_to_evaluate=[{"lr": 1}]), "a value for each label that has an effect"),
        (lambda: make({"x": tune.uniform(0, 1)}, points_to_evaluate=[{"x": 2}]), r"x=2 is not a value of uniform\(0"),
        (lambda: make({"x": tune.uniform(0, 1)}, points_to_evaluate=[{"y": 2}]), "'y' is not in the search space"),
        (lambda: make(points_to_evaluate=[{"x": 2}], evaluated_rewards=[]), r"evaluated_rewards=\[\] is not accepted"),
        (lambda: make(gamma=0), "gamma=0"),
        (lambda: make(random_state_seed="x"), "seed='x'"),
        (lambda: make(metric=["a", "b"], mode=["min", "min"]), "optimises one metric"),
    ],
)
def test_what_does_not_fit_is_said_when_the_searcher_is_made(make_it: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        make_it()


def test_it_learns() -> None:
    found = median(learned(HyperOptSearch(random_state_seed=seed), 60) for seed in range(5))
    assert found < median(learned(BasicVariantGenerator(random_state=seed), 60) for seed in range(15))
