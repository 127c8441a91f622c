"""Every sampler of Optuna: what it proposes goes on after a kill as it would have, under each of its features."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import cloudpickle
import optuna
import pytest

import tuner as tune
from tuner.error import SettingError
from tuner.search import Searcher, as_searcher
from tuner.search.domains import Domain
from tuner.search.optuna import OptunaSearch
from tuner.testing import check_searcher

samplers = optuna.samplers
pytestmark = pytest.mark.filterwarnings(
    "ignore::optuna.exceptions.ExperimentalWarning", "ignore:.*constraints_func:FutureWarning"
)

NUMBERS = {"u": tune.uniform(-1, 1), "n": tune.randint(0, 50)}
CHOICES = {"u": tune.choice(list(range(-4, 5))), "n": tune.choice([1, 2])}
SAMPLERS: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "TPESampler": (lambda: samplers.TPESampler(seed=1, n_startup_trials=4), NUMBERS),
    "CmaEsSampler": (lambda: samplers.CmaEsSampler(seed=1, n_startup_trials=4), NUMBERS),
    "GPSampler": (lambda: samplers.GPSampler(seed=1, n_startup_trials=6), NUMBERS),
    "NSGAIISampler": (lambda: samplers.NSGAIISampler(seed=1, population_size=4), NUMBERS),
    "NSGAIIISampler": (lambda: samplers.NSGAIIISampler(seed=1, population_size=4), NUMBERS),
    "QMCSampler": (lambda: samplers.QMCSampler(seed=1, warn_asynchronous_seeding=False), NUMBERS),
    "RandomSampler": (lambda: samplers.RandomSampler(seed=1), NUMBERS),
    "GridSampler": (lambda: samplers.GridSampler({"u": list(range(-4, 5)), "n": [1, 2]}, seed=1), CHOICES),
    "BruteForceSampler": (lambda: samplers.BruteForceSampler(seed=1), CHOICES),
    "PartialFixedSampler": (
        lambda: samplers.PartialFixedSampler({"n": 7}, samplers.TPESampler(seed=1, n_startup_trials=4)),
        NUMBERS,
    ),
}
COUNT, CUT = 11, 7


def make(sampler: Any, space: dict[str, Any], **kwargs: Any) -> Searcher:
    kwargs = {"metric": "loss", "mode": "min", **kwargs}
    return as_searcher(OptunaSearch(sampler=sampler, **kwargs), space, num_samples=COUNT, seed=5)


def end(searcher: Searcher, number: int, u: float) -> None:
    result = {"training_iteration": 1, "loss": (u - 0.25) ** 2, "time": abs(u), "size": 1.0 - u}
    searcher.on_trial_result(f"t{number}", result)
    searcher.on_trial_complete(f"t{number}", result, error=number == 3)


def test_all_of_optunas_samplers_are_here() -> None:
    bases = {samplers.BaseSampler, samplers.BaseGASampler}
    there = {
        name
        for name, found in vars(samplers).items()
        if isinstance(found, type) and issubclass(found, samplers.BaseSampler) and found not in bases
    }
    assert there == set(SAMPLERS)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.torch) if n == "GPSampler" else n for n in SAMPLERS]
)
@pytest.mark.parametrize("by", ["state", "replay"])
@pytest.mark.parametrize("ask_ahead", [False, True])
def test_f51_a_sampler_goes_on_as_if_nothing_had_been(name: str, by: str, ask_ahead: bool) -> None:
    sampler, space = SAMPLERS[name]

    def fresh() -> Searcher:
        return make(sampler(), space, ask_ahead=ask_ahead)

    expected = played(fresh(), range(COUNT))
    first, again = fresh(), fresh()
    before = played(first, range(CUT))
    assert before == expected[:CUT]
    if by == "state":
        again.set_state(cloudpickle.loads(cloudpickle.dumps(first.get_state())))
        after = played(again, range(CUT, COUNT), known=before)
    else:
        after = played(again, range(COUNT), known=before)[CUT:]
    assert before + after == expected


def played(searcher: Searcher, numbers: range, known: list[dict[str, Any]] | None = None) -> list[dict[str, Any]]:
    """The configs of these trials. One ends when the next is created; those that are `known` are replayed."""
    configs = dict(enumerate(known or ()))
    for number in numbers:
        if number in configs:
            assert searcher.replay_suggest(f"t{number}", configs[number]), number
        else:
            suggested = searcher.suggest(f"t{number}")
            assert isinstance(suggested, dict), number
            configs[number] = suggested
            searcher.prepare(f"t{number + 1}")
        if number:
            end(searcher, number - 1, configs[number - 1]["u"])
    return [configs[number] for number in numbers]


@pytest.mark.parametrize("name", ["RandomSampler", "QMCSampler", "GridSampler"])
def test_f51_what_does_not_learn_gives_the_same_configs_whatever_the_number_of_workers(name: str) -> None:
    sampler, space = SAMPLERS[name]

    def configs(workers: int, ask_ahead: bool) -> list[Any]:
        searcher, made, live = make(sampler(), space, ask_ahead=ask_ahead), [], []
        while isinstance(config := searcher.suggest(f"t{len(made)}"), dict):
            made.append(config)
            live.append(len(made) - 1)
            searcher.prepare(f"t{len(made)}")
            if len(live) == workers:
                ended = live.pop(len(made) % len(live))
                end(searcher, ended, made[ended]["u"])
        return made

    assert len(configs(1, False)) == COUNT
    assert configs(1, False) == configs(8, False) == configs(1, True) == configs(8, True)


@pytest.mark.parametrize("name", ["TPESampler", "NSGAIISampler", "NSGAIIISampler", "RandomSampler", "QMCSampler"])
def test_several_objectives_with_every_sampler_that_can(name: str) -> None:
    sampler, space = SAMPLERS[name]
    searcher = make(sampler(), space, metric=["loss", "time"], mode=["min", "max"])
    played(searcher, range(COUNT))
    study = searcher.unwrapped._ready()  # type: ignore[attr-defined]
    assert len(study.best_trials) >= 1 and len(study.trials) == COUNT


def feasible(trial: Any) -> list[float]:
    return [trial.user_attrs["result"]["size"] - 1.0]


@pytest.mark.parametrize("how", ["function of the sampler", "names"])
def test_constraints_are_known_to_the_study(how: str) -> None:
    if how == "names":
        searcher = make(None, NUMBERS, constraints=["size"])
    else:
        searcher = make(samplers.TPESampler(seed=1, n_startup_trials=2, constraints_func=feasible), NUMBERS)
    for number in range(4):
        assert isinstance(searcher.suggest(f"t{number}"), dict)
        result = {"training_iteration": 1, "loss": float(number), "size": 0.0 if how == "names" else 1.0}
        result["size"] += (-1.0, 2.0, 0.0, 1.0)[number]
        searcher.on_trial_complete(f"t{number}", result)
    study = searcher.unwrapped._ready()  # type: ignore[attr-defined]
    assert [list(trial.constraints.values()) for trial in study.trials] == [[-1.0], [2.0], [0.0], [1.0]]
    assert study.best_trial.number == 0


def test_a_trial_without_a_constraints_metric_is_not_feasible() -> None:
    searcher = make(None, NUMBERS, constraints="size")
    for number, result in enumerate(({"loss": 1.0}, {"loss": 5.0, "size": -1.0})):
        searcher.suggest(f"t{number}")
        searcher.on_trial_complete(f"t{number}", {"training_iteration": 1, **result})
    assert searcher.unwrapped._ready().best_trial.number == 1  # type: ignore[attr-defined]


def test_the_conformance_suite_with_constraints_and_ahead() -> None:
    space = {"x": tune.uniform(-1, 1), "kind": tune.choice([{"a": tune.uniform(0, 1)}, {"b": 1}])}
    check_searcher(lambda: OptunaSearch(ask_ahead=True, constraints=["note"]), space)


# --- the user's own database -----------------------------------------------------------------------------------


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path_factory.mktemp('db')}/study.db"
        return
    from tests.servers import postgres

    if postgres.programs() is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory(prefix="pg") as place:
        Path(place).chmod(0o755)
        with postgres.postgres(Path(place) / "data") as url:
            yield url


def close(searcher: Any) -> None:
    """Let go of the database, as the end of the process would."""
    searcher.get_state()  # waits for a suggestion that is computed
    storage = searcher.unwrapped._storage
    if storage is not None:
        storage._backend.engine.dispose()


@pytest.mark.parametrize("ask_ahead", [False, True])
def test_a_study_in_a_database_is_joined_again_after_a_kill(database: str, ask_ahead: bool) -> None:
    def opened() -> Any:
        return make(None, NUMBERS, storage=database, study_name="mine", constraints="size", ask_ahead=ask_ahead)

    first = opened()
    before = played(first, range(5))
    ghost = first.suggest("t5")  # and the driver is killed before it could write this down
    close(first)
    again = opened()
    assert played(again, range(5), known=before) == before
    assert again.suggest("t5") == ghost
    end(again, 5, 0.5)
    close(again)

    study = optuna.load_study(study_name="mine", storage=database)
    assert [trial.user_attrs["trial_id"] for trial in study.trials] == [f"t{n}" for n in range(6)]
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"] * 3 + ["FAIL", "RUNNING", "COMPLETE"]
    assert study.trials[5].params == ghost
    assert study.trials[5].intermediate_values == {1: 0.0625}
    assert study.trials[5].user_attrs["result"]["size"] == 0.5
    study._storage._backend.engine.dispose()


def test_a_sampler_beside_a_database_does_not_draw_the_same_again(tmp_path: Any) -> None:
    def opened() -> Any:
        return make(samplers.RandomSampler(seed=1), NUMBERS, storage=f"sqlite:///{quote(str(tmp_path))}/study.db")

    first = opened()
    before = played(first, range(4))
    close(first)
    again = opened()
    played(again, range(4), known=before)
    after = [again.suggest(f"t{number}") for number in range(4, 7)]
    close(again)
    assert not [config for config in after if config in before]


def test_a_storage_in_memory_is_kept_as_our_own_is() -> None:
    def opened() -> Searcher:
        return make(None, NUMBERS, storage=optuna.storages.InMemoryStorage())

    expected = played(opened(), range(COUNT))
    first, again = opened(), opened()
    before = played(first, range(CUT))
    again.set_state(cloudpickle.loads(cloudpickle.dumps(first.get_state())))
    assert before + played(again, range(CUT, COUNT), known=before) == expected


def test_no_warning_of_optunas_comes_of_the_default_sampler() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        played(make(None, NUMBERS, constraints="size"), range(COUNT))


# --- spaces that a searcher cannot represent ---------------------------------------------------------------------


@dataclass(frozen=True)
class Odd(Domain):
    def at(self, u: float) -> Any:
        return 1 + 2 * int(u * 10)

    def is_valid(self, value: Any) -> bool:
        return bool(value % 2)

    def describe(self) -> str:
        return "odd()"


UNSEARCHABLE: dict[str, tuple[Any, Any, dict[str, Any], str]] = {
    "a domain of ones own": (None, {"m": [{"k": Odd()}]}, {}, r"cannot search 'm/0/k': odd\(\) is"),
    "one in a branch": (None, {"m": tune.choice([1, {"k": Odd()}])}, {}, r"cannot search 'm/1/k': odd\(\) is"),
    "an endless space": (
        lambda: samplers.BruteForceSampler(seed=1),
        {"m": {"x": tune.uniform(0, 1)}},
        {},
        r"BruteForceSampler cannot search 'm/x', uniform\(0.0, 1.0\): .*step must be given",
    ),
    "a grid without the key": (
        lambda: samplers.GridSampler({"y": [1]}),
        {"m": {"x": tune.uniform(0, 1)}},
        {},
        r"GridSampler cannot search 'm/x', uniform\(0.0, 1.0\): .*not found in the given grid",
    ),
    "two objectives": (
        lambda: samplers.CmaEsSampler(seed=1),
        NUMBERS,
        {"metric": ["a", "b"], "mode": ["min", "min"]},
        "CmaEsSampler cannot search here: .*multi-objective",
    ),
}


@pytest.mark.parametrize("case", UNSEARCHABLE)
def test_a_space_that_cannot_be_represented_is_named_with_key_and_domain(case: str) -> None:
    sampler, space, more, message = UNSEARCHABLE[case]
    with pytest.raises(SettingError, match=message):
        make(sampler() if sampler else None, space, **more).suggest("t")


def test_random_search_takes_every_domain() -> None:
    config = as_searcher(None, {"m": [{"k": Odd()}]}, seed=1).suggest("t")
    assert isinstance(config, dict) and config["m"][0]["k"] % 2


QUANTISED = {
    "quniform": (tune.quniform(-0.9, 0.9, 0.3), [-0.9, -0.6, -0.3, 0.0, 0.3, 0.6, 0.9]),
    "qloguniform": (tune.qloguniform(0.1, 0.5, 0.1), [0.1, 0.2, 0.3, 0.4, 0.5]),
    "qrandint": (tune.qrandint(4, 20, 4), [4, 8, 12, 16, 20]),
    "qlograndint": (tune.qlograndint(8, 32, 8), [8, 16, 24, 32]),
}


@pytest.mark.parametrize("name", QUANTISED)
@pytest.mark.parametrize("search_alg", ["random", "optuna's random"])
def test_quantised_values_are_exact_up_to_both_bounds(name: str, search_alg: str) -> None:
    domain, values = QUANTISED[name]
    sampler = samplers.RandomSampler(seed=1)
    searcher: Any = OptunaSearch(metric="a", mode="min", sampler=sampler) if search_alg != "random" else None
    searcher = as_searcher(searcher, {"x": domain}, num_samples=-1, seed=1)
    assert sorted({searcher.suggest(f"t{n}")["x"] for n in range(120)}) == values


@pytest.mark.parametrize("search_alg", ["random", "optuna", "optuna's random"])
def test_branches_and_dependent_functions_under_every_search(search_alg: str) -> None:
    branch = tune.choice(
        [{"kind": "sgd", "momentum": tune.uniform(0.5, 0.9)}, {"kind": "adam", "b": [tune.randint(0, 3)]}]
    )
    space = {
        "twice": tune.sample_from(lambda spec: spec.config.opt.momentum * 2 if spec.config.opt.kind == "sgd" else 0.0),
        "opt": branch,
    }
    kwargs: dict[str, Any] = {"metric": "a", "mode": "min"}
    if search_alg == "optuna's random":
        kwargs["sampler"] = samplers.RandomSampler(seed=1)
    searcher: Any = as_searcher(
        None if search_alg == "random" else OptunaSearch(**kwargs), space, num_samples=-1, seed=1
    )
    seen = [searcher.suggest(f"t{n}") for n in range(30)]
    assert {config["opt"]["kind"] for config in seen} == {"sgd", "adam"}
    for config in seen:
        if config["opt"]["kind"] == "sgd":
            assert set(config["opt"]) == {"kind", "momentum"} and config["twice"] == 2 * config["opt"]["momentum"]
        else:
            assert config["opt"]["b"][0] in (0, 1, 2) and config["twice"] == 0.0
