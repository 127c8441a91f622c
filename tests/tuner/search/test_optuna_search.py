"""OptunaSearch: what it proposes, that it learns, and that it comes back as it was."""

from __future__ import annotations

import copy
import logging
import math
import pickle
import subprocess
import sys
from typing import Any

import cloudpickle
import optuna
import pytest

import tuner as tune
from tuner.error import SettingError
from tuner.search import Searcher, as_searcher
from tuner.search.optuna import OptunaSearch
from tuner.search.space import merge_constants

SPACE: dict[str, Any] = {
    "u": tune.uniform(-1, 1),
    "qu": tune.quniform(0, 0.7, 0.1),
    "lu": tune.loguniform(1e-4, 1),
    "qlu": tune.qloguniform(0.1, 10, 0.1),
    "n": tune.randn(3, 2),
    "qn": tune.qrandn(0, 1, 0.25),
    "i": tune.randint(0, 4),
    "qi": tune.qrandint(3, 21, 4),
    "li": tune.lograndint(1, 100),
    "qli": tune.qlograndint(8, 64, 8),
    "c": tune.choice(["a", 1, None]),
    "objects": tune.choice([{"k": 1}, [2, 3], len]),
    "same": tune.choice([1, True, 1.0]),
    "branch": tune.choice([{"kind": "x"}, {"kind": "y", "deep": {"z": tune.uniform(5, 6)}}]),
    "list": [tune.uniform(0, 1), ("fixed", tune.randint(0, 3))],
    "function": tune.sample_from(lambda spec: spec.config.u * 2),
    "constant": 17,
}


def make(space: Any = None, *, samples: int = 40, run_space: Any = None, **kwargs: Any) -> Searcher:
    own = {} if "metric" in kwargs else {"metric": "loss", "mode": "min"}
    searcher = OptunaSearch(space, **{**own, **kwargs})
    return as_searcher(searcher, SPACE if run_space is None else run_space, num_samples=samples, seed=5)


def study_of(searcher: Any) -> optuna.Study:
    study: optuna.Study = searcher._ready()
    return study


def finish(searcher: Searcher, name: str, loss: Any, iteration: int = 1) -> None:
    result = {"training_iteration": iteration, "loss": loss}
    searcher.on_trial_result(name, result)
    searcher.on_trial_complete(name, result)


def drive(searcher: Searcher, count: int, start: int = 0) -> list[dict[str, Any]]:
    configs = []
    for number in range(start, start + count):
        config = searcher.suggest(f"t{number}")
        assert isinstance(config, dict)
        configs.append(config)
        finish(searcher, f"t{number}", abs(config["u"]))
    return configs


def test_every_domain_is_searched_within_its_bounds() -> None:
    seen = set()
    for config in drive(make(), 40):
        for key in ("u", "qu", "lu", "qlu", "n", "qn", "i", "qi", "li", "qli", "c", "objects", "same", "branch"):
            if key not in ("branch", "objects"):
                assert SPACE[key].is_valid(config[key]), (key, config[key])
        assert config["function"] == config["u"] * 2
        assert config["constant"] == 17
        assert config["objects"] in ({"k": 1}, [2, 3], len)
        assert type(config["list"][1]) is tuple and config["list"][1][0] == "fixed"
        assert config["qi"] in (4, 8, 12, 16, 20)
        assert config["qu"] in (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
        branch = config["branch"]
        seen.add(branch["kind"])
        assert branch == {"kind": "x"} or 5 <= branch["deep"]["z"] <= 6
    assert seen == {"x", "y"}


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


# --- results ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "error", "state"),
    [
        ({"loss": 1.0}, False, "COMPLETE"),
        ({"loss": math.inf}, False, "COMPLETE"),
        ({"loss": 1.0}, True, "FAIL"),
        ({"loss": math.nan}, False, "FAIL"),
        (None, True, "FAIL"),
        (None, False, "FAIL"),
        ({"other": 1.0}, False, "FAIL"),
        ({"loss": "text"}, False, "FAIL"),
    ],
)
def test_how_a_trial_ends_in_the_study(result: Any, error: bool, state: str) -> None:
    searcher = make()
    searcher.suggest("t")
    searcher.on_trial_complete("t", result, error)
    assert study_of(searcher).trials[0].state.name == state


def test_a_trial_with_results_on_the_way_and_none_at_the_end_is_pruned() -> None:
    searcher = make()
    searcher.suggest("t")
    searcher.on_trial_result("t", {"training_iteration": 1, "loss": 4.0})
    searcher.on_trial_complete("t", {"training_iteration": 2})
    (trial,) = study_of(searcher).trials
    assert (trial.state.name, trial.value) == ("PRUNED", 4.0)


def test_t03_intermediate_values_are_told_once_per_step() -> None:
    searcher = make()
    searcher.suggest("t")
    for iteration, loss in ((1, 4.0), (2, 3.0), (2, 99.0), (1, 99.0), (3, math.nan), (4, "text"), (5, 1.0)):
        searcher.on_trial_result("t", {"training_iteration": iteration, "loss": loss})
    values = study_of(searcher).trials[0].intermediate_values
    assert {step: value for step, value in values.items() if value == value} == {1: 4.0, 2: 3.0, 5: 1.0}


@pytest.mark.parametrize("result", [{"eval": {"loss": 2.0}}, {"eval/loss": 2.0}, {"eval.loss": 2.0}])
def test_f12_a_nested_metric_is_found_however_it_is_spelled(result: dict[str, Any]) -> None:
    searcher = make(metric="eval/loss", mode="min")
    searcher.suggest("t")
    searcher.on_trial_result("t", {"training_iteration": 1, **result})
    searcher.on_trial_complete("t", {"training_iteration": 1, **result})
    (trial,) = study_of(searcher).trials
    assert (trial.value, trial.intermediate_values) == (2.0, {1: 2.0})


def test_a_failed_trial_that_is_continued_counts_in_the_end() -> None:
    searcher = make(run_space={"u": tune.uniform(0, 1)})
    config = searcher.suggest("t")
    searcher.on_trial_result("t", {"training_iteration": 1, "loss": 9.0})
    searcher.on_trial_complete("t", {"training_iteration": 1, "loss": 9.0}, error=True)
    finish(searcher, "t", 2.0, iteration=3)
    best = study_of(searcher).best_trial
    assert (best.value, best.params) == (2.0, config)


def test_what_it_was_never_asked_about_is_passed_over() -> None:
    searcher = make()
    finish(searcher, "stranger", 1.0)
    assert study_of(searcher).trials == []


def test_several_objectives() -> None:
    searcher = make(metric=["loss", "time"], mode=["min", "max"], run_space={"u": tune.uniform(0, 1)})
    assert list(searcher.metric or ()) == ["loss", "time"]
    for number, last in enumerate(
        [{"loss": 1.0, "time": 5.0}, {"loss": 2.0, "time": 9.0}, {"loss": 1.0}, {"loss": math.nan, "time": 1}]
    ):
        searcher.suggest(f"t{number}")
        searcher.on_trial_result(f"t{number}", {"training_iteration": 1, **last})
        searcher.on_trial_complete(f"t{number}", {"training_iteration": 1, **last})
    study = study_of(searcher)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "COMPLETE", "FAIL", "FAIL"]
    assert [direction.name for direction in study.directions] == ["MINIMIZE", "MAXIMIZE"]
    assert sorted(tuple(trial.values) for trial in study.best_trials) == [(1.0, 5.0), (2.0, 9.0)]


# --- other spaces ------------------------------------------------------------------------------------------------


def test_optunas_own_distributions() -> None:
    space = {
        "a": optuna.distributions.FloatDistribution(0, 1, step=0.25),
        "b/c": optuna.distributions.IntDistribution(1, 8, log=True),
        "d": {"e": optuna.distributions.CategoricalDistribution(["x", "y"]), "fixed": 3},
    }
    searcher = make(space, run_space={"constant": 1})
    config = searcher.suggest("t")
    assert isinstance(config, dict)
    assert config["a"] in (0.0, 0.25, 0.5, 0.75, 1.0)
    assert 1 <= config["b"]["c"] <= 8
    assert config["d"]["e"] in ("x", "y") and config["d"]["fixed"] == 3


def by_run(trial: Any) -> dict[str, Any]:
    kind = trial.suggest_categorical("kind", ["linear", "deep"])
    if kind == "deep":
        trial.suggest_int("model/depth", 1, 5)
    trial.suggest_float("u", -1, 1)
    return {"constant": 3}


@pytest.mark.parametrize("where", ["searcher", "run", "run without a searcher"])
def test_define_by_run(where: str) -> None:
    if where == "searcher":
        searcher = make(by_run, run_space={"more": 1})
    elif where == "run":
        searcher = make(run_space=by_run)
    else:
        searcher = as_searcher(None, by_run, num_samples=40, metric="loss", mode="min", seed=5)
    configs = drive(searcher, 20)
    assert {config["kind"] for config in configs} == {"linear", "deep"}
    for config in configs:
        assert config["constant"] == 3
        assert ("model" in config) is (config["kind"] == "deep")


def test_points_come_first_and_may_name_a_part() -> None:
    searcher = make(points_to_evaluate=[{"u": 0.5, "list": [0.25]}, {"branch": {"kind": "x"}, "objects": [2, 3]}])
    first, second = drive(searcher, 2)
    assert (first["u"], first["list"][0]) == (0.5, 0.25)
    assert (second["branch"], second["objects"]) == ({"kind": "x"}, [2, 3])


def test_evaluated_points_are_learned_from_and_not_run() -> None:
    space = {"u": tune.uniform(-1, 1), "n": tune.randn()}
    searcher = make(
        points_to_evaluate=[{"u": 0.5, "n": 0.0}, {"u": 0.25, "n": 1.0}], evaluated_rewards=[0.1, 0.2], run_space=space
    )
    config = searcher.suggest("t")
    assert isinstance(config, dict) and config["u"] not in (0.5, 0.25)
    assert [trial.value for trial in study_of(searcher).trials] == [0.1, 0.2, None]
    study_of(searcher)
    inner: Any = searcher
    inner.add_evaluated_point({"u": 0.0, "n": 0.0}, 7.0, intermediate_values=[9.0, 8.0])
    assert study_of(searcher).trials[-1].intermediate_values == {0: 9.0, 1: 8.0}


def test_a_storage_of_the_users_is_joined_again(tmp_path: Any) -> None:
    def opened() -> Searcher:
        backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / "study.log"))
        storage = optuna.storages.JournalStorage(backend)
        return make(storage=storage, study_name="mine", run_space={"u": tune.uniform(-1, 1)})

    first = opened()
    configs = drive(first, 3)
    again = opened()
    for number, config in enumerate(configs):
        assert again.replay_suggest(f"t{number}", config)
        finish(again, f"t{number}", abs(config["u"]))
    drive(again, 1, start=3)
    assert [trial.state.name for trial in study_of(again).trials] == ["COMPLETE"] * 4


def test_optunas_logging_stays_as_the_user_set_it() -> None:
    handlers = list(logging.getLogger().handlers)
    before = optuna.logging.get_verbosity()
    drive(make(), 2)
    assert optuna.logging.get_verbosity() == before
    assert logging.getLogger().handlers == handlers


def test_f52_nothing_is_printed() -> None:
    script = (
        "import tuner as tune\n"
        "from tuner.search import as_searcher\n"
        "from tuner.search.optuna import OptunaSearch\n"
        "searcher = as_searcher(OptunaSearch(), {'x': tune.uniform(0, 1)}, metric='a', mode='min', num_samples=3)\n"
        "searcher.suggest('t')\n"
        "searcher.on_trial_complete('t', {'a': 1.0, 'training_iteration': 1})\n"
        "searcher.set_state(searcher.get_state())\n"
        "searcher.suggest('u')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize(
    ("make_it", "message"),
    [
        (lambda: make(run_space={"x": tune.grid_search([1])}), "cannot search the grid_search at 'x'"),
        (lambda: make({"x": tune.uniform(0, 1)}, run_space={"y": tune.uniform(0, 1)}), "both|one of the two places"),
        (
            lambda: make({"x": tune.uniform(0, 1)}, points_to_evaluate=[{"z": 1}], run_space={}).suggest("t"),
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


# --- samplers that come to an end --------------------------------------------------------------------------------

GRID_SPACE = {"x": tune.choice([1, 2, 3]), "y": tune.choice([0.5, 0.7])}


def play_out(searcher: Searcher, at_once: int, limit: int = 30) -> list[dict[str, Any]]:
    """The configs of a searcher until it is finished, with so many trials unfinished at a time."""
    configs: list[dict[str, Any]] = []
    live: list[str] = []
    while len(configs) < limit:
        suggestion = searcher.suggest(f"t{len(configs)}")
        if suggestion == Searcher.FINISHED:
            return configs
        assert isinstance(suggestion, dict)
        configs.append(suggestion)
        live.append(f"t{len(configs) - 1}")
        if len(live) == at_once:
            name = live.pop(0)
            searcher.on_trial_complete(name, {"loss": 1.0, "training_iteration": 1}, error=name == "t1")
    return configs


@pytest.mark.parametrize("at_once", [1, 4, 100])
def test_a_grid_sampler_that_has_been_everywhere_is_finished(at_once: int) -> None:
    sampler = optuna.samplers.GridSampler({"x": [1, 2, 3], "y": [0.5, 0.7]}, seed=3)
    searcher = as_searcher(OptunaSearch(sampler=sampler), GRID_SPACE, num_samples=-1, metric="loss", mode="min")
    configs = play_out(searcher, at_once)
    assert sorted((config["x"], config["y"]) for config in configs) == [(x, y) for x in (1, 2, 3) for y in (0.5, 0.7)]


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_a_brute_force_sampler_that_has_been_everywhere_is_finished() -> None:
    sampler = optuna.samplers.BruteForceSampler(seed=3)
    searcher = as_searcher(OptunaSearch(sampler=sampler), GRID_SPACE, num_samples=-1, metric="loss", mode="min")
    assert len(play_out(searcher, 1)) == 6
    again = as_searcher(
        OptunaSearch(sampler=optuna.samplers.BruteForceSampler(seed=3)),
        GRID_SPACE,
        num_samples=-1,
        metric="loss",
        mode="min",
    )
    again.set_state(cloudpickle.loads(cloudpickle.dumps(searcher.get_state())))
    assert again.suggest("later") == Searcher.FINISHED


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


def test_the_password_of_a_database_is_not_pickled_and_asked_for_again() -> None:
    search = OptunaSearch({"x": tune.uniform(0, 1)}, metric="loss", mode="min", storage="postgresql://me:hunter2@db/x")
    stored = cloudpickle.dumps(search)
    assert b"hunter2" not in stored
    with pytest.raises(SettingError, match=r"me:\*\*\*@db.*give the search_alg again.*PGPASSWORD"):
        cloudpickle.loads(stored).suggest("a")
    assert b"hunter2" in pickle.dumps(copy.deepcopy(search).__dict__["_given_storage"])
