"""Grid and random search: exact counts, Ray's order, and configs that are a pure function of (seed, index)."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import tuner as tune
from tuner.error import SettingError
from tuner.search import BasicVariantGenerator, Searcher
from tuner.search.optuna import OptunaSearch
from tuner.search.variants import format_tag

RANDOM: dict[str, Any] = {
    "lr": tune.loguniform(1e-4, 1e-1),
    "layers": tune.randint(1, 9),
    "drawn": tune.sample_from(lambda spec: spec.config.lr * random.random() * np.random.rand()),
    "optimizer": tune.choice([{"kind": "adam"}, {"kind": "sgd", "momentum": tune.uniform(0.5, 1)}]),
}
GRID: dict[str, Any] = {"a": tune.grid_search([1, 2, 3]), "b": tune.grid_search(["x", "y"]), "r": tune.uniform(0, 1)}


def make(space: dict[str, Any], num_samples: int = 1, seed: int = 11, **kwargs: Any) -> BasicVariantGenerator:
    searcher = BasicVariantGenerator(**kwargs)
    assert searcher.set_search_properties(None, None, space, num_samples=num_samples, seed=seed)
    return searcher


def all_of(searcher: Searcher, limit: int = 1000) -> list[dict[str, Any]]:
    configs = []
    for number in range(limit):
        suggestion = searcher.suggest(f"t{number}")
        if suggestion == Searcher.FINISHED:
            return configs
        assert isinstance(suggestion, dict)
        configs.append(suggestion)
    raise AssertionError(f"still not finished after {limit}")


def run_with(searcher: Searcher, workers: int, order: int) -> list[dict[str, Any]]:
    """As many trials at a time as there are workers, ending in some random order."""
    draw, live, configs, number = random.Random(order), [], [], 0
    while True:
        while len(live) < workers:
            suggestion = searcher.suggest(f"t{number}")
            if suggestion is None:
                break
            if suggestion == Searcher.FINISHED:
                return configs
            assert isinstance(suggestion, dict)
            configs.append(suggestion)
            live.append(f"t{number}")
            number += 1
        ended = live.pop(draw.randrange(len(live)))
        searcher.on_trial_result(ended, {"training_iteration": 1})
        searcher.on_trial_complete(ended, {"training_iteration": 1})


@pytest.mark.parametrize("space", [RANDOM, GRID], ids=["random", "grid"])
@pytest.mark.parametrize("kwargs", [{}, {"max_concurrent": 3}, {"constant_grid_search": True}], ids=str)
def test_f51_one_and_eight_workers_get_the_same_configs(space: dict[str, Any], kwargs: dict[str, Any]) -> None:
    expected = run_with(make(space, 10, **kwargs), 1, 0)
    assert len(expected) == 10 * (6 if space is GRID else 1)
    for workers, order in ((2, 1), (8, 2), (8, 3)):
        assert run_with(make(space, 10, **kwargs), workers, order) == expected


@pytest.mark.parametrize("cut", [0, 1, 7, 29])
@pytest.mark.parametrize("by", ["state", "replay", "count"])
def test_f51_a_resumed_sequence_is_the_uninterrupted_one(cut: int, by: str) -> None:
    expected = all_of(make(RANDOM, 30))
    assert len({str(config) for config in expected}) == 30
    first = make(RANDOM, 30)
    before = [first.suggest(f"t{number}") for number in range(cut)]
    again = make(RANDOM, 30)
    if by == "state":
        again.set_state(first.get_state())
    else:
        for number in range(cut):
            given = expected[number] if by == "replay" else {"what": "an older version proposed"}
            assert again.replay_suggest(f"t{number}", given)
    assert before + all_of(again) == expected


@pytest.mark.parametrize(
    ("space", "num_samples", "total"), [(GRID, 2, 12), (RANDOM, 30, 30), ({}, 3, 3), ({"a": 1}, 1, 1)]
)
def test_f14_exactly_as_many_trials_as_were_asked_for_through_five_kills(
    space: dict[str, Any], num_samples: int, total: int
) -> None:
    searcher, configs, done = make(space, num_samples), [], False
    for life in range(6):
        for _ in range(total // 6 + 1 if life < 5 else total + 1):
            suggestion = searcher.suggest(f"t{len(configs)}")
            if suggestion == Searcher.FINISHED:
                done = True
                break
            assert isinstance(suggestion, dict)
            configs.append(suggestion)
        state, searcher = searcher.get_state(), make(space, num_samples)
        searcher.set_state(state)
    assert done and len(configs) == total == make(space, num_samples).total
    assert configs == all_of(make(space, num_samples))
    if space is GRID:
        assert sorted((c["a"], c["b"]) for c in configs) == sorted([(a, b) for a in (1, 2, 3) for b in "xy"] * 2)


def test_f25_a_larger_number_of_samples_goes_on_where_it_ended() -> None:
    first = make(GRID, 2)
    configs = all_of(first)
    grown = make(GRID, 5)
    grown.set_state(first.get_state())
    configs += all_of(grown)
    assert configs == all_of(make(GRID, 5))
    first.set_search_properties(None, None, GRID, num_samples=3, seed=11)
    assert len(all_of(first)) == 6


def test_the_grid_runs_inside_the_samples_as_in_ray() -> None:
    configs = all_of(make(GRID, 2))
    assert [(c["a"], c["b"]) for c in configs] == [(a, b) for _ in range(2) for b in "xy" for a in (1, 2, 3)]
    assert len({c["r"] for c in configs}) == 12


def test_constant_grid_search_draws_once_per_sample() -> None:
    configs = all_of(make(GRID, 3, constant_grid_search=True))
    values = [c["r"] for c in configs]
    assert [len(set(values[start : start + 6])) for start in (0, 6, 12)] == [1, 1, 1]
    assert len(set(values)) == 3


def test_without_end() -> None:
    searcher = make(RANDOM, -1)
    assert searcher.total is None
    assert len({str(searcher.suggest(str(number))) for number in range(500)}) == 500


def test_rays_own_example_of_points_to_evaluate() -> None:
    searcher = make(
        {"a": tune.grid_search([1, 2]), "b": tune.randint(0, 3)},
        num_samples=4,
        points_to_evaluate=[{"a": 2, "b": 2}, {"a": 1}, {"b": 2}],
    )
    configs = all_of(searcher)
    assert [c["a"] for c in configs] == [2, 1, 1, 2, 1, 2]
    assert [configs[index]["b"] for index in (0, 2, 3)] == [2, 2, 2]
    assert searcher.total == 6


def test_points_reach_into_nested_spaces_and_all_of_them_run() -> None:
    space = {"m": {"x": tune.uniform(0, 1), "y": tune.uniform(0, 1)}}
    configs = all_of(make(space, 1, points_to_evaluate=[{"m": {"x": 0.25}}, {"m": {"x": 0.5}}]))
    assert [c["m"]["x"] for c in configs] == [0.25, 0.5]
    assert all(0 <= c["m"]["y"] < 1 for c in configs)


@pytest.mark.parametrize(
    ("point", "problem"),
    [
        ({"m": {"z": 1}}, "'m/z' is not in the search space, which has: y"),
        ({"x": 7}, r"x=7 is not a value of uniform\(0.0, 1.0\)"),
        ({"m": {"y": "7"}}, "m/y='7' is not a value of uniform"),
        ({"m": 7}, "m=7 is not accepted: it is a dict in the search space, with y"),
        ({"k": 5}, "k=5 is not accepted: it is 4 in the search space, and not searched"),
        ({"g": 3}, r"g=3 is not a value of choice\(\[1, 2\]\)"),
        ({"l": [3, 1]}, "l/0=3 is not a value of uniform"),
    ],
)
def test_a_point_that_does_not_fit_is_refused_by_key_and_value(point: dict[str, Any], problem: str) -> None:
    domain = tune.uniform(0, 1)
    space = {"x": domain, "m": {"y": domain}, "k": 4, "g": tune.grid_search([1, 2]), "l": [domain, 1]}
    for searcher in (BasicVariantGenerator(points_to_evaluate=[{"x": 0.5}, point]), without_grid(point)):
        own = space if isinstance(searcher, BasicVariantGenerator) else {**space, "g": tune.choice([1, 2])}
        with pytest.raises(SettingError, match=f"^points_to_evaluate: {problem}"):
            searcher.set_search_properties("loss", "min", own, num_samples=1, seed=1)


def without_grid(point: dict[str, Any]) -> Searcher:
    return OptunaSearch(points_to_evaluate=[{"x": 0.5}, point])


def test_a_point_may_repeat_constants_and_give_what_a_function_would() -> None:
    space = {"x": tune.uniform(0, 1), "k": {"a": 4, "b": 5}, "f": tune.sample_from(lambda: 1)}
    (config,) = all_of(make(space, 1, points_to_evaluate=[{"x": 0.5, "k": {"a": 4}, "f": 2}]))
    assert config == {"x": 0.5, "k": {"a": 4, "b": 5}, "f": 2}
    with pytest.raises(SettingError, match="f=2 is not accepted: it is computed by a sample_from"):
        without_grid({"f": 2}).set_search_properties("loss", "min", space)


def test_no_more_than_max_concurrent_are_unfinished() -> None:
    searcher = make(RANDOM, 10, max_concurrent=2)
    assert isinstance(searcher.suggest("a"), dict) and isinstance(searcher.suggest("b"), dict)
    assert searcher.suggest("c") is None
    searcher.on_trial_complete("a", error=True)
    assert isinstance(searcher.suggest("c"), dict)


@pytest.mark.parametrize(
    "state", [5, np.int64(5), np.random.default_rng(5), np.random.RandomState(5), random.Random(5)]
)
def test_a_random_state_comes_before_the_experiments_seed(state: Any) -> None:
    import copy

    one, two = (make(RANDOM, 3, seed=seed, random_state=copy.deepcopy(state)) for seed in (1, 2))
    assert all_of(one) == all_of(two)
    assert all_of(make(RANDOM, 3, seed=1)) != all_of(make(RANDOM, 3, seed=2))


def test_without_any_seed_one_is_drawn_and_kept_in_the_state() -> None:
    first, second = BasicVariantGenerator(), BasicVariantGenerator()
    for searcher in (first, second):
        searcher.set_search_properties(None, None, RANDOM, num_samples=4)
    first.suggest("t0")
    second.set_state(first.get_state())
    assert all_of(first) == all_of(second)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"max_concurrent": -1}, "max_concurrent=-1"),
        ({"max_concurrent": True}, "max_concurrent=True"),
        ({"points_to_evaluate": [3]}, "list of dicts"),
        ({"random_state": object()}, "random_state=.* is not accepted"),
    ],
)
def test_what_is_refused(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        BasicVariantGenerator(**kwargs)
    with pytest.raises(SettingError, match="need a dict"):
        BasicVariantGenerator().set_search_properties(None, None, len)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("params", "tag"),
    [
        ({"lr": 0.1, "layers": 2}, "3_layers=2,lr=0.1000"),
        ({"model/lr": 0.00001}, "3_lr=1e-05"),
        ({}, "3"),
        ({"act": "re lu/é", "flag": True, "none": None}, "3_act=re_lu,flag=True,none=None"),
        ({"sizes": [1, 2]}, "3_sizes=1_2"),
        ({"layers/0": 5}, "3_layers_0=5"),
        ({"text": "x" * 500}, f"3_text={'x' * 24}"),
    ],
)
def test_tags(params: dict[str, Any], tag: str) -> None:
    assert format_tag(3, params) == tag


def test_a_tag_is_never_long() -> None:
    assert len(format_tag(123456, {f"parameter{number}": 0.5 for number in range(40)})) <= 100


@pytest.mark.parametrize(
    ("values", "samples", "said"),
    [
        (100, 1, None),
        (101, 1, "10,201 combinations and num_samples=1, 10,201 trials"),
        (10, 101, "100 combinations and num_samples=101, 10,100 trials"),
        (1000, -1, "1,000,000 combinations and num_samples=-1, without end"),
    ],
)
def test_a_large_grid_is_spoken_of_once_and_not_again_at_a_resume(
    values: int, samples: int, said: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    def made() -> BasicVariantGenerator:
        searcher = BasicVariantGenerator(random_state=1)
        space = {name: tune.grid_search(list(range(values))) for name in ("a", "b")}
        assert searcher.set_search_properties(None, None, space, num_samples=samples)
        return searcher

    first, resumed = made(), made()
    for trial in ("0", "1"):
        first.suggest(trial)
    resumed.set_state(first.get_state())
    resumed.suggest("2")
    assert [record.getMessage().partition(";")[0] for record in caplog.records] == (
        [f"the grid is large: {said}"] if said else []
    )


def test_many_random_samples_are_no_large_grid(caplog: pytest.LogCaptureFixture) -> None:
    searcher = BasicVariantGenerator(random_state=1)
    searcher.set_search_properties(None, None, {"a": tune.uniform(0, 1)}, num_samples=10**6)
    searcher.suggest("0")
    assert not caplog.records
