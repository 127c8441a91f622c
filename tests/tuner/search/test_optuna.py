"""OptunaSearch: what it proposes, that it learns, and that it comes back as it was."""

from __future__ import annotations

from typing import Any

import cloudpickle
import numpy as np
import optuna
import pytest

import tuner as tune
from tests.tuner.search.optuna_harness import SPACE, by_run, drive, finish, make, study_of
from tuner.error import SettingError
from tuner.search import Searcher, as_searcher
from tuner.search.fitting import nested
from tuner.search.optuna import OptunaSearch
from tuner.search.searcher import contains
from tuner.search.space import merge_constants


def test_it_learns() -> None:
    found = [abs(config["u"]) for config in drive(make(run_space={"u": tune.uniform(-1, 1)}, samples=60), 60)]
    assert sum(found[-20:]) < sum(found[:20]) / 2


def test_min_and_max_are_opposite() -> None:
    def configs(mode: str, sign: float) -> list[Any]:
        searcher = make(metric="loss", mode=mode, run_space={"u": tune.uniform(-1, 1)})
        found = []
        for number in range(25):
            config = searcher.suggest(f"t{number}")
            assert isinstance(config, dict)
            found.append(config["u"])
            finish(searcher, f"t{number}", sign * config["u"])
        return found

    assert configs("min", 1.0) == configs("max", -1.0) != configs("max", 1.0)


@pytest.mark.parametrize("cut", [1, 14, 25])
@pytest.mark.parametrize("by", ["state", "replay"])
def test_a_resumed_search_is_the_uninterrupted_one(cut: int, by: str) -> None:
    points = [{"u": 0.5, "branch": {"kind": "y", "deep": {"z": 5.5}}}, {"n": 3.0, "c": None}]
    expected = drive(make(points_to_evaluate=points), 30)
    first = make(points_to_evaluate=points)
    before = drive(first, cut)
    again = make(points_to_evaluate=points)
    if by == "state":
        again.set_state(cloudpickle.loads(cloudpickle.dumps(first.get_state())))
    else:
        for number, config in enumerate(before):
            assert again.replay_suggest(f"t{number}", merge_constants(SPACE, config))
            finish(again, f"t{number}", abs(config["u"]))
    assert before + drive(again, 30 - cut, start=cut) == expected


def test_a_replay_samples_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    configs = drive(make(), 12)
    again = make()

    def never(*arguments: Any, **named: Any) -> None:
        raise AssertionError("sampled")

    for method in ("sample_relative", "sample_independent"):
        monkeypatch.setattr(optuna.samplers.TPESampler, method, never)
    for number, config in enumerate(configs):
        assert again.replay_suggest(f"t{number}", config)
        finish(again, f"t{number}", 1.0)
    assert len(study_of(again).trials) == 12


def test_a_thousand_replays_are_cheap() -> None:
    space = {"u": tune.uniform(0, 1), "c": tune.choice(["a", "b"])}
    searcher = make(run_space=space, samples=2000)
    for number in range(1000):
        searcher.replay_suggest(f"t{number}", {"u": number / 1000, "c": "a"})
        finish(searcher, f"t{number}", number / 1000)
    config = searcher.suggest("next")
    assert isinstance(config, dict)
    assert len(study_of(searcher).get_trials(deepcopy=False)) == 1001


def test_two_seeds_differ_and_a_given_one_comes_first() -> None:
    space = {"u": tune.uniform(0, 1)}

    def first(run_seed: int, **kwargs: Any) -> Any:
        return as_searcher(OptunaSearch(metric="l", mode="min", **kwargs), space, seed=run_seed).suggest("t")

    assert first(1) != first(2)
    assert first(1, seed=9) == first(2, seed=9)


SAMPLERS: dict[str, Any] = {
    "random": lambda: optuna.samplers.RandomSampler(seed=1),
    "tpe": lambda: optuna.samplers.TPESampler(seed=1, n_startup_trials=4),
    "cmaes": lambda: optuna.samplers.CmaEsSampler(seed=1, n_startup_trials=4),
    "qmc": lambda: optuna.samplers.QMCSampler(seed=1, warn_asynchronous_seeding=False),
    "nsga": lambda: optuna.samplers.NSGAIISampler(seed=1, population_size=4),
}


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)
@pytest.mark.parametrize("by", ["state", "replay"])
def test_a_sampler_of_the_users_keeps_its_random_state(sampler: Any, by: str) -> None:
    space = {"u": tune.uniform(-1, 1), "v": tune.uniform(0, 1)}
    expected = drive(make(sampler=sampler(), run_space=space), 16)
    first = make(sampler=sampler(), run_space=space)
    before = drive(first, 9)
    again = make(sampler=sampler(), run_space=space)
    if by == "state":
        again.set_state(cloudpickle.loads(cloudpickle.dumps(first.get_state())))
    else:
        for number, config in enumerate(before):
            assert again.replay_suggest(f"t{number}", config)
            finish(again, f"t{number}", abs(config["u"]))
    assert before + drive(again, 7, start=9) == expected


def test_a_replay_that_would_differ_yields_to_the_journal() -> None:
    space = {"u": tune.uniform(-1, 1)}
    searcher = make(sampler=optuna.samplers.RandomSampler(seed=1), run_space=space)
    assert searcher.replay_suggest("t0", {"u": 0.125}) is False
    finish(searcher, "t0", 1.0)
    completed = [trial for trial in study_of(searcher).trials if trial.state.name == "COMPLETE"]
    assert [trial.params for trial in completed] == [{"u": 0.125}]


def test_points_come_first_and_may_name_a_part() -> None:
    searcher = make(points_to_evaluate=[{"u": 0.5, "list": [0.25]}, {"branch": {"kind": "x"}, "objects": [2, 3]}])
    first, second = drive(searcher, 2)
    assert (first["u"], first["list"][0]) == (0.5, 0.25)
    assert (second["branch"], second["objects"]) == ({"kind": "x"}, [2, 3])


@pytest.mark.parametrize(
    ("make_it", "message"),
    [
        (lambda: make(run_space={"x": tune.grid_search([1])}), "cannot search the grid_search at 'x'"),
        (lambda: make({"x": tune.uniform(0, 1)}, run_space={"y": tune.uniform(0, 1)}), "both|one of the two places"),
        (
            lambda: OptunaSearch({"x": tune.uniform(0, 1)}, points_to_evaluate=[{"z": 1}]),
            "'z' is not in",
        ),
        (lambda: OptunaSearch(metric="a", mode="down"), "mode='down'"),
        (lambda: OptunaSearch(metric=["a", "b"], mode="min"), "one mode each"),
        (lambda: OptunaSearch(metric="a", mode=["min"]), "one metric"),
        (lambda: OptunaSearch(sampler=3), "sampler=3"),  # type: ignore[arg-type]
        (lambda: OptunaSearch(sampler=optuna.samplers.RandomSampler(), seed=3), "no effect on a given sampler"),
        (lambda: OptunaSearch(seed="x"), "seed='x'"),  # type: ignore[arg-type]
        (lambda: OptunaSearch([("x", 1)]), "space="),  # type: ignore[arg-type]
        (lambda: OptunaSearch(points_to_evaluate=[{}], evaluated_rewards=[1, 2]), "2 values for 1"),
        (lambda: OptunaSearch(by_run, points_to_evaluate=[{}], evaluated_rewards=[1]), "need a dict"),
        (lambda: as_searcher(OptunaSearch(), {"x": tune.uniform(0, 1)}), "OptunaSearch needs a mode|needs a metric"),
        (lambda: OptunaSearch(metric="a", mode="min").suggest("t"), "no search space"),
        (lambda: make(lambda trial: 3, run_space={}).suggest("t"), "returned 3"),
    ],
)
def test_what_is_refused(make_it: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        make_it()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"samplers": None}, "did you mean 'sampler'"),
        ({"study_name": 3}, "study_name=3 is not accepted"),
        ({"constraints": 3}, "constraints=3 is not accepted"),
        ({"constraints": ["a", 1]}, "constraints=.'a', 1. is not accepted"),
        ({"points_to_evaluate": 3}, "points_to_evaluate=3 is not accepted"),
        ({"points_to_evaluate": {"x": 1}}, "points_to_evaluate=.* is not accepted"),
        ({"points_to_evaluate": [3]}, "points_to_evaluate=.* is not accepted"),
        ({"points_to_evaluate": [{"x": 1}], "evaluated_rewards": 3}, "evaluated_rewards=3 is not accepted"),
        ({"seed": "a"}, "seed='a' is not accepted"),
        ({"sampler": 3}, "sampler=3 is not accepted"),
    ],
    ids=str,
)
def test_an_argument_that_is_not_accepted_is_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OptunaSearch(**arguments)


@pytest.mark.parametrize("by", ["state", "replay"])
def test_a_choice_of_arrays_is_searched_and_comes_back(by: str) -> None:
    """Arrays compare element by element, and Optuna's categories can hold none."""
    space = {"u": tune.choice([np.array([1, 2]), np.array([1, 3]), np.array([1, 2, 3])])}

    def suggested(searcher: Searcher, numbers: range) -> list[list[int]]:
        found = []
        for number in numbers:
            config = searcher.suggest(f"t{number}")
            assert isinstance(config, dict)
            found.append(config["u"].tolist())
            finish(searcher, f"t{number}", float(sum(found[-1])))
        return found

    expected = suggested(make(run_space=space), range(14))
    first, again = make(run_space=space), make(run_space=space)
    assert suggested(first, range(8)) == expected[:8]
    if by == "state":
        again.set_state(cloudpickle.loads(cloudpickle.dumps(first.get_state())))
    else:
        for number, given in enumerate(expected[:8]):
            assert again.replay_suggest(f"t{number}", {"u": np.array(given)})
            finish(again, f"t{number}", float(sum(given)))
    assert suggested(again, range(8, 14)) == expected[8:]
    assert sorted(map(len, expected))[-1] == 3


def suggests(trial: optuna.Trial) -> dict[str, Any]:
    kind = trial.suggest_categorical("kind", ["sgd", "adam"])
    if kind == "sgd":
        trial.suggest_float("m/momentum", 0, 1)
    return {"constant": 4}


@pytest.mark.parametrize(
    "point",
    [{"kind": "sgd", "m": {"momentum": 0.5}}, {"kind": "sgd", "m/momentum": 1}, {"kind": "adam"}, {"constant": 4}, {}],
)
def test_a_point_that_a_define_by_run_function_takes(point: dict[str, Any]) -> None:
    config = make(suggests, points_to_evaluate=[point], run_space={}).suggest("t0")
    assert contains(config, nested(point))


@pytest.mark.parametrize(
    ("point", "problem"),
    [
        ({"constant": 5}, "constant=5 is not taken by .*, whose config is: kind=.*constant=4"),
        ({"kindd": "sgd"}, "kindd='sgd' is not taken by .*, whose config is: kind="),
        ({"kind": "adam", "m": {"momentum": 0.5}}, "m/momentum=0.5 is not taken by .* kind='adam', constant=4"),
        ({"kind": "sgd", "m": {"momentum": 500}}, "m/momentum=500 is not a value of FloatDistribution.*high=1.0"),
        ({"kind": "adams"}, "kind='adams' is not accepted: .*'adams' not in"),
    ],
)
def test_a_point_that_a_define_by_run_function_does_not_take_is_refused(point: dict[str, Any], problem: str) -> None:
    searcher = make(suggests, points_to_evaluate=[{"kind": "sgd"}, point], run_space={})
    first = searcher.suggest("t0")
    assert isinstance(first, dict) and first["kind"] == "sgd"
    with pytest.raises(SettingError, match=f"^points_to_evaluate: {problem}"):
        searcher.suggest("t1")
