"""Orders that change a setting of the run or what a trial gets: their effect, and what of it a resume finds."""

from __future__ import annotations

import json
import math
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tuner.driver.harness import Says, plugin_set
from tests.tuner.driver.steered import Steered
from tuner import sample
from tuner.driver.changed_settings import take_up, value_of
from tuner.driver.endings import HaltCause
from tuner.driver.parts import Timer
from tuner.driver.plugins import PluginSet
from tuner.executors.pool import check_fits
from tuner.experiment import events as ev
from tuner.experiment.state import ExperimentState
from tuner.schedulers import HyperBandScheduler, PopulationBasedTraining, TrialScheduler
from tuner.schedulers.base import Reallocate
from tuner.search import BasicVariantGenerator, ConcurrencyLimiter, Searcher, as_searcher
from tuner.search.search_generator import SearchGenerator
from tuner.spec import Spec
from tuner.stopper import FunctionStopper

SPACE: dict[str, Any] = {"x": sample.uniform(0, 1)}


def searching(
    number: int = 2, space: Any = None, *, searcher: Any = None, scheduler: TrialScheduler | None = None, **more: Any
) -> PluginSet:
    """Plug-ins whose searcher is what a run would have."""
    found = as_searcher(searcher, space or SPACE, num_samples=number, seed=1, trainable_name="train")
    return plugin_set(searcher=found, scheduler=scheduler, num_samples=number, **more)


def steered(root: Path, number: int = 2, *, slots: float = 2, plugins: PluginSet | None = None, **more: Any) -> Steered:
    run = Steered(
        root, plugins or searching(number), slots=slots, class_api=True, num_samples=number, param_space=SPACE, **more
    )
    return run.turn()


def put(run: Steered, name: str, value: Any, **more: Any) -> tuple[str, str]:
    """Give the order; returns what was said."""
    order_id = more.pop("order_id", f"set-order-{len(run.state.orders):04d}")
    run.mailbox.put(order_id, _body(name, value, **more))
    run.look()
    return run.said(order_id)


def _body(name: str, value: Any, **more: Any) -> bytes:
    return json.dumps({"order": "set", "name": name, "value": value, **more}).encode()


def end(run: Steered, index: int) -> None:
    run.report(run.trial(index), loss=1.0)
    run.exit(run.trial(index))


def changes(run: Steered) -> list[tuple[str, Any]]:
    return [(fact.name, fact.value) for fact in run.facts if isinstance(fact, ev.SettingChanged)]


# --- num_samples ------------------------------------------------------------------------------------------------


def test_a_larger_number_goes_on_though_the_search_had_ended(tmp_path: Path) -> None:
    run = steered(tmp_path / "e", 1, slots=1)
    run.loop.admission.fill()
    end(run, 0)
    assert run.state.search_ended == 1 and not run.loop.admission.more_to_come()
    assert put(run, "num_samples", 3) == ("done", "num_samples=3, was 1")
    assert [trial.status for trial in run.state.trials] == ["TERMINATED", "RUNNING"]
    assert run.state.planned(1) == 3 and run.plugins.source.total_samples == 3
    end(run, 1)
    end(run, 2)
    assert len(run.state.trials) == 3 and not run.loop.admission.more_to_come()


def test_a_smaller_number_makes_no_trial_and_ends_none(tmp_path: Path) -> None:
    run = steered(tmp_path / "e", 10, slots=3)
    assert put(run, "num_samples", 1) == ("done", "num_samples=1, was 10; the 3 that are there stay")
    end(run, 0)
    assert len(run.state.trials) == 3 and not run.loop.admission.more_to_come()
    assert [trial.status for trial in run.state.trials[1:]] == ["RUNNING"] * 2
    assert put(run, "num_samples", 4)[0] == "done"
    assert len(run.state.trials) == 4
    assert put(run, "num_samples", -1)[0] == "done" and run.state.planned(10) is None


def test_a_grid_is_run_so_often_and_a_known_value_is_no_change(tmp_path: Path) -> None:
    plugins = searching(1, {"x": {"grid_search": [1, 2, 3]}})
    run = steered(tmp_path / "e", 1, slots=1, plugins=plugins)
    assert put(run, "num_samples", 2) == ("done", "num_samples=2, was 1; 6 trials in all")
    assert put(run, "num_samples", 2) == ("done", "num_samples=2 already")
    assert changes(run) == [("num_samples", 2)] and run.state.planned(3) == 6


@pytest.mark.parametrize("scheduler", ["pbt", "hyperband"])
def test_schedulers_that_compare_all_trials_get_those_that_came_later(tmp_path: Path, scheduler: str) -> None:
    made: TrialScheduler = (
        PopulationBasedTraining(
            "training_iteration", "loss", "min", 2, hyperparam_mutations={"x": [1.0, 2.0]}, synch=True
        )
        if scheduler == "pbt"
        else HyperBandScheduler("training_iteration", "loss", "min", max_t=4, reduction_factor=2)
    )
    run = steered(tmp_path / "e", 2, slots=6, plugins=searching(2, scheduler=made))
    run.report(run.trial(0), loss=1.0)
    assert put(run, "num_samples", 5)[0] == "done"
    assert [trial.status for trial in run.state.trials] == ["RUNNING"] * 5
    for trial in list(run.state.trials):
        for _ in range(12):
            if trial.status != "RUNNING":
                break
            answer = run.report(trial, loss=float(trial.index), saves=True)
            if answer is not None and answer.then != "continue":
                run.exit(trial)
    assert all(trial.iteration >= 1 for trial in run.state.trials)


def test_a_searcher_that_counts_by_itself_says_so(tmp_path: Path) -> None:
    class Counts(Searcher):
        counts_samples = True

        def set_search_properties(self, *properties: Any, **spec: Any) -> bool:
            return True

        def suggest(self, trial_id: str) -> Any:
            return {"x": 1}

    run = steered(tmp_path / "e", plugins=searching(searcher=Counts()))
    state, why = put(run, "num_samples", 5)
    assert state == "refused" and "Counts counts its trials by itself" in why and not changes(run)
    generator = SearchGenerator(ConcurrencyLimiter(BasicVariantGenerator(), 9))
    other = steered(tmp_path / "f", 1, plugins=searching(1, searcher=generator))
    assert put(other, "num_samples", 2)[0] == "done" and len(other.state.trials) == 2


def test_what_was_stopped_altogether_makes_no_more_trials(tmp_path: Path) -> None:
    stopper = FunctionStopper(lambda trial_id, result: False)
    run = steered(tmp_path / "e", plugins=searching(stopper=stopper))
    run.order("stop", "all")
    state, why = put(run, "num_samples", 5)
    assert state == "refused" and "no trial is created any more" in why


# --- max_concurrent ---------------------------------------------------------------------------------------------


def test_more_at_once_start_at_once_and_fewer_end_nobody(tmp_path: Path) -> None:
    run = steered(tmp_path / "e", 9, slots=4, max_concurrent_trials=1)
    assert len(run.loop.attempts.running) == 1
    assert put(run, "max_concurrent", 3) == ("done", "max_concurrent=3, was 1")
    assert len(run.loop.attempts.running) == 3
    assert put(run, "max_concurrent_trials", 1) == (
        "done",
        "max_concurrent=1, was 3; 3 run: no other begins before there are fewer",
    )
    for index in range(3):
        end(run, index)
        assert len(run.loop.attempts.running) == max(2 - index, 1)
    assert (
        put(run, "max_concurrent", None) == ("done", "max_concurrent=none, was 1")
        and len(run.loop.attempts.running) == 4
    )


def test_a_value_that_can_have_no_effect_is_told(tmp_path: Path) -> None:
    limited = ConcurrencyLimiter(as_searcher(None, SPACE, num_samples=5, seed=1), 2)
    run = steered(tmp_path / "e", plugins=searching(5, searcher=limited))
    assert (
        put(run, "max_concurrent", 4)[1]
        == "max_concurrent=4, was none; but the searcher has no more than 2 unfinished trials at a time"
    )
    run.executor.max_concurrent = 1
    assert put(run, "max_concurrent", 2) == ("refused", "this executor runs 1 at a time, whatever max_concurrent is")


# --- time -------------------------------------------------------------------------------------------------------


def test_the_time_of_a_run_ends_later_never_or_now(tmp_path: Path) -> None:
    run = steered(tmp_path / "e", time_budget_s=100)
    run.clock.advance(50)
    assert put(run, "time_budget_s", 500) == ("done", "time_budget_s=500, was 100")
    run.clock.advance(200)
    run.turn()
    assert run.loop.endings.halted is None
    assert put(run, "time_budget_s", None)[0] == "done" and Timer.BUDGET not in run.loop._timers
    assert put(run, "time_budget_s", 20) == ("done", "time_budget_s=20, was none; 250 s have passed: the run ends now")
    run.turn()
    assert run.loop.endings.halted is HaltCause.BUDGET
    assert (
        put(run, "max_concurrent", 9)[1]
        == "max_concurrent=9, was none; the run is ending: it holds from its next start on"
    )


# --- a trial ----------------------------------------------------------------------------------------------------


def get(run: Steered, order_id: str = "some-order", index: int = 0, **amounts: float) -> tuple[str, str]:
    return put(run, "resources", amounts, trial=str(index), order_id=order_id)


def test_a_trial_that_runs_is_saved_and_goes_on_with_what_it_gets(tmp_path: Path) -> None:
    run = steered(tmp_path / "e", 1, slots=4, plugins=searching(1, fits=partial(check_fits, total={"cpu": 4})))
    trial = run.trial()
    assert get(run, cpu=3) == ("taken", "it goes on with them after its next step")
    answer = run.report(trial, loss=1.0)
    assert answer is not None and (answer.then, answer.save) == ("pause", True)
    run.say(trial, run.publish(trial, 1))
    run.exit(trial)
    assert run.said("some-order") == ("done", "it gets cpu=3")
    assert (trial.status, trial.attempt, run.executor.launched[-1].resources) == ("RUNNING", 2, {"cpu": 3.0})
    answer = run.report(trial, loss=1.0)
    assert answer is not None and answer.then == "continue"
    assert run.plugins.paused == set(), "no scheduler and no searcher hears of it"
    state, why = get(run, "large-order", cpu=5)
    assert state == "refused" and "a trial asks for 5 cpu, available are 4" in why
    assert get(run, "tpu-order", tpu=1)[0] == "refused"


def test_a_trial_that_waits_gets_it_at_once_and_may_find_room_then(tmp_path: Path) -> None:
    run = steered(tmp_path / "e", 2, slots=3, resources_per_trial={"cpu": 2})
    run.loop.admission._create()
    assert get(run, index=1, cpu=1) == ("done", "it gets cpu=1")
    assert run.trial(1).status == "RUNNING" and run.executor.launched[-1].resources == {"cpu": 1.0}
    end(run, 1)
    assert get(run, "later-order", index=1, cpu=2)[1] == "train_ab_00001 has ended: returned"


def test_a_held_trial_gets_it_too_and_the_last_order_counts(tmp_path: Path) -> None:
    run = steered(tmp_path / "e", 1, slots=4)
    trial = run.trial()
    run.order("pause")
    assert get(run, "first-order", cpu=3)[0] == "taken"
    assert get(run, "second-order", cpu=2)[0] == "taken"
    run.report(trial, loss=1.0)
    run.say(trial, run.publish(trial, 1))
    run.exit(trial)
    assert trial.held and trial.resources == {"cpu": 2.0}
    assert run.said("first-order") == run.said("second-order") == ("done", "it gets cpu=2")
    assert sum(isinstance(fact, ev.Reallocated) for fact in run.facts) == 1
    run.order("go")
    assert run.executor.launched[-1].resources == {"cpu": 2.0}
    get(run, "third-order", cpu=4)
    assert get(run, "fourth-order", cpu=2)[0] == "done", "it has that, and stays as it is"
    assert run.said("third-order") == ("done", "it gets cpu=2")


def test_a_trial_that_ends_first_gets_nothing(tmp_path: Path) -> None:
    run = steered(tmp_path / "e", 1, slots=4)
    get(run, cpu=3)
    run.exit(run.trial())
    assert run.said("some-order")[0] == "refused" and run.trial().resources is None


def test_what_a_scheduler_gives_comes_after_what_a_user_gives(tmp_path: Path) -> None:
    run = steered(tmp_path / "e", 1, slots=4, plugins=searching(1, scheduler=Says(Reallocate({"cpu": 4.0}))))
    trial = run.trial()
    get(run, cpu=3)
    run.report(trial, loss=1.0)
    run.say(trial, run.publish(trial, 1))
    run.exit(trial)
    assert trial.resources == {"cpu": 3.0} and run.executor.launched[-1].resources == {"cpu": 3.0}


# --- over resumes -----------------------------------------------------------------------------------------------


def test_it_holds_over_resumes_until_the_script_says_something_else(tmp_path: Path) -> None:
    run = steered(tmp_path / "a", 2)
    put(run, "num_samples", 5)
    put(run, "max_concurrent", 1)
    put(run, "num_samples", 7)
    snapshot = ExperimentState.from_snapshot(tmp_path / "a", run.state.snapshot({}))
    assert snapshot.changed == run.state.changed and snapshot.planned(2) == 7

    def resumed(number: int, **more: Any) -> tuple[PluginSet, list[ev.SettingChanged], list[str]]:
        plugins = searching(number)
        spec = Spec(lambda config: None, num_samples=number, param_space=SPACE, **more)
        return plugins, *take_up(spec, snapshot, plugins, 1e9)

    plugins, facts, lines = resumed(2)
    assert plugins.source.num_samples == plugins.source.total_samples == 7 and not facts
    assert lines == [
        "max_concurrent=1 holds, as `tuner set` said; the script says none, as then",
        "num_samples=7 holds, as `tuner set` said; the script says 2, as then",
    ]
    plugins, facts, lines = resumed(3, max_concurrent_trials=8)
    assert plugins.source.total_samples == 3 and [(fact.name, fact.value) for fact in facts] == [
        ("max_concurrent", 8),
        ("num_samples", 3),
    ]
    assert lines[1].startswith("num_samples=3 holds, which the script says now: that is newer than 7")
    for fact in facts:
        snapshot.apply(fact)
    assert not snapshot.changed
    plugins, facts, lines = resumed(2)  # what was taken back stays so
    assert plugins.source.total_samples == 2 and not facts and not lines


_set = st.one_of(
    st.tuples(st.just("num_samples"), st.sampled_from([-1, 1, 2, 3, 9])),
    st.tuples(st.just("max_concurrent"), st.sampled_from([None, 1, 2, 3])),
    st.tuples(st.just("time_budget_s"), st.sampled_from([None, 1e5, 2e5])),
)


@given(
    orders=st.lists(st.tuples(_set, st.integers(0, 2), st.booleans()), max_size=6),
)
@settings(max_examples=20, deadline=None)
def test_whatever_is_set_and_killed_the_last_order_holds(
    orders: list[tuple[tuple[str, Any], int, bool]],
) -> None:
    """A kill after each order leaves 0 to 2 of its facts; the file too, unless its answer is among them."""
    with tempfile.TemporaryDirectory() as place:
        facts: list[ev.AnyFact] = []
        left: tuple[str, bytes] | None = None
        expected: dict[str, Any] = {"num_samples": 2, "max_concurrent": None, "time_budget_s": None}
        for number in range(len(orders) + 1):
            plugins = searching(2)
            run = Steered(Path(place, str(number)), plugins, facts=facts, class_api=True, num_samples=2)
            if left is not None:
                run.mailbox.put(*left)
            assert take_up(run.loop._parts.plan.spec, run.state, plugins, 1e9)[0] == []
            run.turn()
            run.look()
            for name, value in expected.items():
                assert value_of(name, run.loop._parts.plan.spec, run.state) == value
            assert plugins.source.num_samples == expected["num_samples"]
            assert run.loop._parts.limits.at_once == (expected["max_concurrent"] or math.inf)
            facts = [*facts, *run.facts]
            if number < len(orders):
                (name, value), kept, is_there = orders[number]
                before, left = len(run.facts), (f"order-{number:05d}", _body(name, value))
                run.mailbox.put(*left)
                run.loop.steering.look()
                run.loop._settle()
                facts = [*facts, *run.facts[before : before + kept]]
                left = left if kept < 2 or is_there else None
                expected[name] = value
        answers = [fact.order for fact in facts if isinstance(fact, ev.SettingChanged)]
        answers += [fact.id for fact in facts if isinstance(fact, ev.OrderAnswered)]
        assert sorted(answers) == [f"order-{number:05d}" for number in range(len(orders))]
