"""A search that begins with what earlier experiments found."""

from __future__ import annotations

import logging
import shutil
from typing import Any

import pytest

import tuner as tune
from tuner.error import SettingError
from tuner.search import BasicVariantGenerator, ConcurrencyLimiter, Searcher
from tuner.search.optuna import OptunaSearch

SPACE = {"x": tune.uniform(-1, 1), "branch": tune.choice([{"kind": "a", "y": tune.uniform(0, 1)}, {"kind": "b"}])}


def train(config: dict[str, Any]) -> None:
    tune.report({"loss": config["x"] ** 2, "other": 1.0})


def run(path: Any, name: str, search_alg: Any, **settings: Any) -> Any:
    return tune.run(
        train,
        name=name,
        storage_path=path,
        search_alg=search_alg,
        executor="inline",
        verbose=0,
        **{"config": SPACE, "metric": "loss", "mode": "min", "num_samples": 5, "seed": 4, **settings},
    )


def learned(searcher: OptunaSearch) -> list[tuple[Any, Any]]:
    study: Any = searcher._ready()
    return [(trial.params["x"], trial.value) for trial in study.trials]


@pytest.mark.parametrize("source", ["path", "uri", "analysis", "grid", "list"])
def test_the_searcher_knows_the_trials_of_an_earlier_experiment(tmp_path: Any, source: str) -> None:
    earlier = run(tmp_path, "earlier", None, num_samples=12)
    path = tmp_path / "earlier"
    given: Any = {
        "path": path,
        "uri": path.as_uri(),
        "analysis": earlier,
        "grid": tune.ResultGrid(earlier),
        "list": [str(path)],
    }[source]
    searcher = OptunaSearch(warm_start=given)
    analysis = run(tmp_path, "later", ConcurrencyLimiter(searcher, 2))
    assert learned(searcher)[:12] == [(trial.config["x"], trial.last_result["loss"]) for trial in earlier.trials]
    cold = run(tmp_path, "cold", OptunaSearch())
    assert [trial.config for trial in cold.trials] != [trial.config for trial in analysis.trials]
    assert len(analysis.trials) == 5


class Ends(tune.Callback):
    def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        raise InterruptedError


def test_what_was_learned_stays_with_the_experiment(tmp_path: Any) -> None:
    earlier = run(tmp_path, "earlier", None, num_samples=12)
    expected = run(tmp_path, "whole", OptunaSearch(warm_start=tmp_path / "earlier"))
    with pytest.raises(InterruptedError):
        run(tmp_path, "ended", OptunaSearch(warm_start=tmp_path / "earlier"), callbacks=[Ends()])
    shutil.rmtree(tmp_path / "earlier")  # the experiment that goes on does not need it any more
    searcher = OptunaSearch(warm_start=tmp_path / "earlier")
    continued = run(tmp_path, "ended", searcher, resume=True)
    assert [trial.config for trial in continued.trials] == [trial.config for trial in expected.trials]
    assert [value for _, value in learned(searcher)[:12]] == [trial.last_result["loss"] for trial in earlier.trials]


def test_a_storage_of_the_users_gets_each_earlier_trial_once(tmp_path: Any) -> None:
    import optuna

    run(tmp_path, "earlier", None, num_samples=3)
    for name in ("one", "two"):
        backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / "study.log"))
        searcher = OptunaSearch(warm_start=tmp_path / "earlier", storage=optuna.storages.JournalStorage(backend))
        run(tmp_path, name, searcher, num_samples=2)
    assert len(learned(searcher)) == 3 + 2 + 2


def test_trials_that_do_not_fit_are_left_out_and_one_line_says_so(
    tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    run(tmp_path, "earlier", None, config={**SPACE, "x": tune.grid_search([-3.0, 0.5])}, num_samples=1)
    searcher = OptunaSearch(warm_start=tmp_path / "earlier")
    with caplog.at_level(logging.WARNING, "tuner.driver.warm_start"):
        run(tmp_path, "later", searcher, num_samples=1)
    (said,) = caplog.messages
    assert "1 of its 2 finished trials do not fit" in said and "x=-3.0 is not a value of uniform(-1.0, 1.0)" in said
    assert learned(searcher)[0] == (0.5, 0.25)


@pytest.mark.parametrize(
    ("search_alg", "problem"),
    [
        (lambda path: OptunaSearch(warm_start=3), "warm_start=3 is not accepted"),
        (lambda path: OptunaSearch({"z": tune.uniform(0, 1)}, warm_start=path), "nothing can be .* it has no z"),
        (lambda path: OptunaSearch(metric="no", mode="min", warm_start=path), "nothing can be learned .* has no no"),
    ],
)
def test_a_warm_start_from_which_nothing_can_be_learned_is_an_error(
    tmp_path: Any, search_alg: Any, problem: str
) -> None:
    run(tmp_path, "earlier", None, num_samples=2)
    chosen = search_alg(tmp_path / "earlier")
    settings = {"config": {}} if chosen._own_space else {}
    if chosen.metric:
        settings |= {"metric": None, "mode": None}
    with pytest.raises(SettingError, match=problem):
        run(tmp_path, "later", chosen, **settings)


class Listing(Searcher):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(metric="loss", mode="min", **kwargs)
        self.points: list[tuple[float, float]] = []

    def suggest(self, trial_id: str) -> dict[str, Any]:
        return {"x": len(self.points) / 100}

    def set_search_properties(self, metric: Any, mode: Any, config: Any, **spec: Any) -> bool:
        return True

    def add_evaluated_point(self, parameters: Any, value: Any, *more: Any, **named: Any) -> None:
        self.points.append((parameters["x"], value))


def test_others_searchers_learn_from_trials_as_rays_do(tmp_path: Any) -> None:
    earlier = run(tmp_path, "earlier", None, num_samples=3)
    searcher = Listing()
    searcher.add_evaluated_trials(earlier, "loss")
    searcher.add_evaluated_trials(earlier.trials[0], "loss")
    assert [x for x, _ in searcher.points] == [*(trial.config["x"] for trial in earlier.trials), searcher.points[0][0]]
    with pytest.raises(SettingError, match="no finished trial has the metric 'los'"):
        searcher.add_evaluated_trials(earlier, "los")
    with pytest.raises(SettingError, match="BasicVariantGenerator does not define add_evaluated_point"):
        BasicVariantGenerator().add_evaluated_trials(earlier, "loss")


def test_others_searchers_may_name_earlier_experiments_too(tmp_path: Any) -> None:
    run(tmp_path, "earlier", None, num_samples=3)
    searcher = Listing()
    searcher.warm_start = tmp_path / "earlier"
    analysis = run(tmp_path, "later", searcher, num_samples=1)
    assert len(searcher.points) == 3 and analysis.trials[0].config["x"] == 0.03


def test_several_objectives_are_learned_too(tmp_path: Any) -> None:
    earlier = run(tmp_path, "earlier", None, num_samples=3)
    searcher = OptunaSearch(metric=["loss", "other"], mode=["min", "max"], warm_start=earlier)
    run(tmp_path, "later", searcher, num_samples=1, metric=None, mode=None)
    study: Any = searcher._ready()
    assert [trial.values for trial in study.trials[:3]] == [
        [trial.last_result["loss"], 1.0] for trial in earlier.trials
    ]


def test_a_define_by_run_function_learns_from_configs_it_would_have_asked_for(tmp_path: Any) -> None:
    def space(trial: Any) -> None:
        trial.suggest_float("x", -1, 1)
        if trial.suggest_categorical("branch/kind", ["a", "b"]) == "a":
            trial.suggest_float("branch/y", 0, 1)

    earlier = run(tmp_path, "earlier", None, num_samples=6)
    searcher = OptunaSearch(space, warm_start=earlier)
    run(tmp_path, "later", searcher, num_samples=1, config={})
    assert learned(searcher)[:6] == [(trial.config["x"], trial.last_result["loss"]) for trial in earlier.trials]
