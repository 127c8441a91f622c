"""FreezeThawScheduler: whom it lets wait, go on and end, in words and in whole simulated runs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tests.tuner.schedulers.calls import CONTINUE, PAUSE, STOP, Told, Worker, count_calls, stops
from tuner.executors import SimulatedExecutor, SimulatedSave
from tuner.schedulers import FreezeThawScheduler

GOAL: dict[str, Any] = {"metric": "acc", "mode": "max"}


def told(names: str, **settings: Any) -> Told:
    return Told(FreezeThawScheduler(**{"max_t": 9, "grace_period": 1, **GOAL, **settings}), names)


def test_nobody_is_compared_before_the_grace_period() -> None:
    told_ = told("ab", grace_period=3)
    assert [told_.say("a", time, 0.1) for time in (1, 2)] == [CONTINUE, CONTINUE]
    assert [told_.say("b", time, 0.9) for time in (1, 2)] == [CONTINUE, CONTINUE]
    assert told_.say("a", 3, 0.1) == CONTINUE  # two begun: one of two goes on, and it is the first
    assert told_.say("b", 3, 0.9) == CONTINUE


def test_of_n_begun_the_best_n_by_the_depth_go_on_and_the_others_wait() -> None:
    told_ = told("abcd")
    assert told_.say("a", 1, 0.4) == PAUSE  # one begun: half of it is nobody
    assert [told_.say(name, 1, score) for name, score in (("b", 0.3), ("c", 0.9), ("d", 0.1))] == [
        PAUSE,
        CONTINUE,
        PAUSE,
    ]
    assert told_.choose("abd") == "a"  # four begun: c and a
    told_.do("on_trial_start", "a")
    assert told_.choose("bd") is None
    assert told_.choose("bd") is None  # asking changes nothing


def test_who_has_come_deepest_goes_on_first_and_a_new_one_begins_when_nobody_may() -> None:
    told_ = told("abc")
    told_.say("a", 1, 0.5), told_.say("b", 1, 0.6), told_.say("c", 1, 0.7)
    told_.do("on_trial_start", "b"), told_.say("b", 2, 0.65)
    told_.add("defgh")
    for name in "defgh":
        told_.say(name, 1, 0.1)
    assert told_.choose("abc") == "b"
    told_.do("on_trial_start", "b")
    assert told_.choose("ac") == "c"
    told_.do("on_trial_start", "c")
    assert told_.choose("a") == "a"


def test_who_cannot_reach_the_best_has_ended_whether_it_runs_or_waits() -> None:
    told_ = told("abc", grace_period=3)
    for time, score in ((1, 0.1), (2, 0.2), (3, 0.5)):
        told_.say("a", time, score)
    told_.say("b", 1, 0.2), told_.say("b", 2, 0.2)
    assert told_.say("b", 3, 0.2) == PAUSE  # it is not compared with the best so early
    assert told_.say("a", 4, 0.5) == PAUSE
    for time in (1, 2, 3):
        told_.say("c", time, 0.3)
    told_.do("on_trial_start", "c")
    assert told_.say("c", 4, 0.3) == STOP  # it has gained nothing since its half
    gaining = told("ab", grace_period=1)
    gaining.say("a", 1, 0.6), gaining.say("b", 1, 0.1), gaining.say("b", 2, 0.2)
    assert gaining.say("b", 3, 0.3) != STOP  # 0.3 + 0.2 * log2(9 / 3) = 0.62


def test_more_than_max_paused_do_not_wait_and_what_is_let_go_is_stopped() -> None:
    told_ = told("abcde", max_paused=2)
    told_.say("a", 1, 0.9)
    told_.do("on_trial_start", "a"), told_.say("a", 2, 0.9)
    assert told_.say("b", 1, 0.3) == PAUSE
    assert told_.say("c", 1, 0.2) == STOP  # it would have to wait longest
    assert told_.orders == []
    assert told_.say("d", 1, 0.5) == CONTINUE  # four begun: two of them go on
    assert told_.say("e", 1, 0.4) == PAUSE
    assert told_.orders == stops("b")


def test_nan_waits_last_and_ends_like_one_that_cannot_reach_the_best() -> None:
    told_ = told("ab", grace_period=1)
    told_.say("a", 1, 0.5)
    assert told_.say("b", 1, math.nan) == PAUSE
    told_.do("on_trial_start", "b")
    told_.say("b", 2, math.nan)
    assert told_.say("b", 3, math.nan) == STOP


def test_what_is_no_number_decides_nothing_and_max_t_ends_a_trial() -> None:
    told_ = told("a")
    assert told_.say("a", 1, "good") == CONTINUE
    assert told_.say("a", 9, 0.1) == STOP


def test_when_no_new_trial_comes_the_best_goes_to_the_end_and_the_others_end() -> None:
    told_ = told("ab")
    told_.say("a", 1, 0.5), told_.say("b", 1, 0.4)
    told_.do("on_search_end")
    assert told_.choose("ab") == "a"
    told_.do("on_trial_start", "a")
    assert [told_.say("a", time, 0.5) for time in range(2, 9)] == [CONTINUE] * 7
    assert told_.say("a", 9, 0.5) == STOP
    assert told_.do("on_idle") == stops("b")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_t": 0}, "max_t=0"),
        ({"max_paused": 0}, "max_paused=0"),
        ({"grace_period": 0.5}, "grace_period=0.5"),
        ({"max_pause": 3}, "did you mean 'max_paused'"),
    ],
)
def test_settings_out_of_their_range_are_refused_by_name(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FreezeThawScheduler(**settings)


def test_the_state_is_all_that_later_decisions_depend_on() -> None:
    def tell(told_: Told, times: range) -> list[Any]:
        return [told_.say(name, time, 0.1 * ord(name) + 0.01 * time) for time in times for name in "abcd"]

    first = told("abcd", grace_period=2)
    tell(first, range(1, 3))
    second = told("")
    second.trials = first.trials
    second.scheduler.set_state(first.scheduler.get_state())
    assert tell(second, range(3, 6)) == tell(first, range(3, 6))
    assert second.scheduler.debug_string() == first.scheduler.debug_string()


def run(path: Path, *, trials: int, slots: int = 3, max_paused: int = 100, **settings: Any) -> Any:
    """Curves that come to their height like 1 - 1 / epoch."""

    def model(config: dict[str, Any]) -> list[tuple[float, dict[str, float]]]:
        return [(1.0, {"acc": config["height"] * (1 - 0.7 / epoch)}) for epoch in range(1, 28)]

    executor = SimulatedExecutor(model, save=lambda config: SimulatedSave(1, 0.01, 0.01), slots=slots)
    scheduler = FreezeThawScheduler(max_t=27, max_paused=max_paused)
    analysis = tune.run(
        lambda config: None, name="e", config={"height": tune.uniform(0, 1)}, num_samples=trials, scheduler=scheduler,
        seed=4, storage_path=str(path), verbose=0, executor=executor, **{**GOAL, **settings},
    )  # fmt: skip
    return analysis.trials, executor.clock.monotonic()


def test_the_best_of_sixty_is_trained_to_the_end_with_a_quarter_of_the_epochs(tmp_path: Path) -> None:
    trials, _ = run(tmp_path, trials=60, max_paused=5)
    assert {trial.status for trial in trials} == {"TERMINATED"}
    best = max(trials, key=lambda trial: trial.config["height"])
    assert best.iteration == 27
    assert sum(trial.iteration for trial in trials) < 60 * 27 / 4
    assert sum(trial.attempt - 1 for trial in trials) > 5  # they paused


def test_a_run_that_is_cut_into_pieces_decides_as_one_that_is_not(tmp_path: Path) -> None:
    """What is in flight at the cut is saved early, and nothing else differs: one at a time the order is the same."""
    whole, _ = run(tmp_path / "whole", trials=25, slots=1)
    for piece in range(5):
        cut, _ = run(tmp_path / "cut", trials=25, slots=1, resume=piece > 0, time_budget_s=17.5 if piece < 4 else None)
    assert {trial.status for trial in cut} == {"TERMINATED"}
    assert [(each.config, each.iteration) for each in cut] == [(each.config, each.iteration) for each in whole]


def test_a_result_costs_no_more_after_many_trials() -> None:
    def calls(results: int) -> int:
        worker = Worker(FreezeThawScheduler(max_t=9, max_paused=20, **GOAL), trials=10_000)
        worker.work(results)
        return count_calls(lambda: worker.work(100))

    assert calls(2000) < 1.5 * calls(300)
