"""A searcher hears of trials that a scheduler pauses and lets go on, once each, also after a kill."""

from __future__ import annotations

from typing import Any

import pytest

import tuner as tune
from tuner.driver.fact_log import FactLog
from tuner.schedulers import HyperBandForBOHB
from tuner.search import Searcher
from tuner.search.optuna import OptunaSearch


class Noting(Searcher):
    def __init__(self) -> None:
        super().__init__(metric="loss", mode="min")
        self.heard: list[tuple[str, int]] = []
        self.asked: dict[str, int] = {}

    def suggest(self, trial_id: str) -> dict[str, Any]:
        self.asked[trial_id] = len(self.asked)
        return {"x": float(self.asked[trial_id])}

    def on_pause(self, trial_id: str) -> None:
        self.heard.append(("pause", self.asked[trial_id]))

    def on_unpause(self, trial_id: str) -> None:
        self.heard.append(("unpause", self.asked[trial_id]))

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        self.heard.append(("complete", self.asked[trial_id]))


class Steps(tune.Trainable):
    def setup(self, config: dict[str, Any]) -> None:
        self.n = 0

    def step(self) -> dict[str, Any]:
        self.n += 1
        return {"loss": self.config["x"] + 1 / self.n}

    def save_checkpoint(self, directory: str) -> dict[str, Any]:
        return {"n": self.n}

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.n = checkpoint["n"]


class Ends(tune.Callback):
    """Ends the run with an error at its `after`-th result."""

    def __init__(self, after: int) -> None:
        self.left = after

    def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: Any, **info: Any) -> None:
        self.left -= 1
        if not self.left:
            raise InterruptedError


def run(path: Any, searcher: Any, **settings: Any) -> Any:
    return tune.run(
        Steps,
        name="e",
        storage_path=path,
        executor="inline",
        verbose=0,
        search_alg=searcher,
        scheduler=HyperBandForBOHB(max_t=9, metric="loss", mode="min"),
        num_samples=9,
        stop={"training_iteration": 9},
        **{"max_concurrent_trials": 2, "seed": 1, **settings},
    )


def test_each_pause_and_each_end_of_one_is_heard(tmp_path: Any) -> None:
    searcher = Noting()
    analysis = run(tmp_path, searcher)
    assert all(trial.is_finished() for trial in analysis.trials)
    for number in range(9):
        words = [word for word, whose in searcher.heard if whose == number]
        assert words[-1] == "complete"
        pauses = words[:-1]  # one that is paused and cut ends without going on
        assert pauses[::2] == ["pause"] * len(pauses[::2]) and pauses[1::2] == ["unpause"] * len(pauses[1::2])
    assert ("unpause", 0) in searcher.heard


@pytest.mark.parametrize("after", [4, 11, 20])
@pytest.mark.parametrize("snapshot", [False, True])
def test_a_run_that_was_ended_hears_the_same(
    tmp_path: Any, after: int, snapshot: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Noting()
    run(tmp_path / "whole", whole, max_concurrent_trials=1)
    if snapshot:
        monkeypatch.setattr(FactLog, "should_compact", lambda self: True)
    with pytest.raises(InterruptedError):
        run(tmp_path, Noting(), callbacks=[Ends(after)], max_concurrent_trials=1)
    again = Noting()
    run(tmp_path, again, resume=True, max_concurrent_trials=1)
    assert again.heard == whole.heard


def test_optunas_tpe_is_the_model_of_bohb(tmp_path: Any) -> None:
    searcher = OptunaSearch({"x": tune.uniform(0, 1)}, metric="loss", mode="min", ask_ahead=True)
    analysis = run(tmp_path, searcher)
    assert len(analysis.trials) == 9 and all(trial.is_finished() for trial in analysis.trials)
    study: Any = searcher._ready()
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"] * 9
    assert all(trial.intermediate_values for trial in study.trials)
