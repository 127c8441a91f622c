"""The loop as a whole, on the simulated executor: it turns until nothing is left, or something halts it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tuner.driver.harness import DriverHarness, Proposer, plugin_set
from tuner.callback import Callback
from tuner.driver.endings import HaltCause
from tuner.error import SettingError
from tuner.executors import SimulatedExecutor
from tuner.executors.base import Exited
from tuner.experiment import events as ev
from tuner.experiment.lock import claim
from tuner.experiment.paths import ExperimentPaths
from tuner.schedulers import FIFOScheduler
from tuner.schedulers.base import Decision, Directive


def three(config: dict[str, Any]) -> Iterator[tuple[float, dict[str, Any]]]:
    for step in range(3):
        yield 60.0, {"loss": config["x"] / (step + 1)}


def simulated(tmp_path: Path, *callbacks: Callback, model: Any = three, slots: int = 2, **more: Any) -> DriverHarness:
    settings = {key: more.pop(key) for key in ("max_failures", "time_budget_s") if key in more}
    executor = SimulatedExecutor(model, slots=slots, directories=False)
    return DriverHarness(tmp_path / "e", plugin_set(*callbacks, **more), executor=executor, **settings)


def test_it_runs_until_all_trials_have_ended(tmp_path: Path) -> None:
    harness = simulated(tmp_path, num_samples=5)
    harness.loop.run()
    harness.loop.finish("finished")
    assert [(trial.status, trial.iteration) for trial in harness.state.trials] == [("TERMINATED", 3)] * 5
    assert harness.kinds().count("result") == 15 and harness.kinds()[-1] == "run_ended"
    assert harness.clock.monotonic() == 3 * 180.0  # two at a time


def test_callbacks_are_told_in_order_and_of_the_turn(tmp_path: Path) -> None:
    class Notes(Callback):
        def __init__(self) -> None:
            self.seen: list[str] = []
            self.turns: list[int] = []

        def on_step_begin(self, iteration: int, **info: Any) -> None:
            self.turns.append(iteration)

        def on_trial_start(self, trial: Any, **info: Any) -> None:
            self.seen.append(f"start {trial.status}")

        def on_trial_result(self, trial: Any, result: Any, **info: Any) -> None:
            self.seen.append(f"result {trial.iteration} {result['training_iteration']}")

        def on_trial_complete(self, trial: Any, **info: Any) -> None:
            self.seen.append(f"complete {trial.status}")

    notes = Notes()
    simulated(tmp_path, notes).loop.run()
    assert notes.seen == ["start RUNNING", "result 0 1", "result 1 2", "result 2 3", "complete TERMINATED"]
    assert sorted(set(notes.turns)) == list(range(len(set(notes.turns))))


def test_a_time_budget_ends_it_on_the_virtual_clock(tmp_path: Path) -> None:
    harness = simulated(tmp_path, num_samples=5, time_budget_s=100.0)
    harness.loop.run()
    assert harness.loop.endings.halted is HaltCause.BUDGET and harness.clock.monotonic() <= 130.0
    harness.loop.finish("budget")
    assert {trial.status for trial in harness.state.trials} <= {"PENDING", "PAUSED"}


def test_a_callback_that_sees_a_preemption_ends_it(tmp_path: Path) -> None:
    class Sees(Callback):
        def is_preempted(self) -> bool:
            return True

    harness = simulated(tmp_path, Sees(), num_samples=3)
    harness.loop.run()
    assert harness.loop.endings.halted is HaltCause.PREEMPTED


def test_a_signal_is_done_at_the_next_turn(tmp_path: Path) -> None:
    class Asks(Callback):
        def on_trial_result(self, **info: Any) -> None:
            harness.loop.endings.ask(HaltCause.INTERRUPTED)
            assert harness.loop.endings.halting and harness.loop.endings.halted is None

    harness = simulated(tmp_path, Asks(), num_samples=3, slots=1)
    harness.loop.run()
    assert harness.kinds().count("result") == 1
    ended = [fact for fact in harness.facts if isinstance(fact, ev.AttemptEnded)]
    assert [fact.why for fact in ended] == ["halted"]


class Holds(FIFOScheduler):
    """Chooses nobody but new trials, and lets those that wait go when nothing else happens."""

    def __init__(self) -> None:
        super().__init__()
        self.idle = 0
        self.open = False
        self.ordered: list[Directive] = []

    def on_idle(self) -> None:
        self.idle += 1
        self.ordered = [Directive("ab_00000", Decision.STOP)]

    def orders(self) -> list[Directive]:
        ordered, self.ordered = self.ordered, []
        return ordered

    def choose_trial_to_run(self, pending: Any) -> Any:
        return None


def test_a_scheduler_is_asked_when_nothing_runs_and_somebody_waits(tmp_path: Path) -> None:
    scheduler = Holds()
    harness = simulated(tmp_path, scheduler=scheduler)
    harness.loop.run()
    assert scheduler.idle == 1 and harness.kinds()[:3] == ["created", "idle", "ended"]
    assert harness.trial().end_reason is not None


def test_a_run_that_ends_although_there_is_more_to_do_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Never(Holds):
        def on_idle(self) -> None:
            pass

    simulated(tmp_path / "waiting", scheduler=Never()).loop.run()
    assert "the run ends with 1 trials that wait" in caplog.text

    class Silent(Proposer):
        def suggest(self, trial_id: str) -> Any:
            return None if self.made >= self.count else super().suggest(trial_id)

    simulated(tmp_path / "silent", searcher=Silent(1)).loop.run()
    assert "the searcher has neither a config nor said that there are no more" in caplog.text
    with pytest.raises(SettingError, match="Silent has made no trial: Silent.suggest returned None"):
        simulated(tmp_path / "nothing", searcher=Silent(0)).loop.run()


def test_an_exit_of_another_attempt_is_not_this_ones(tmp_path: Path) -> None:
    harness = DriverHarness(tmp_path / "e").turn()
    harness.loop.dispatch([Exited("ab_00000", 7, -9, "lost"), Exited("nobody", 1, 0)])
    assert "attempt_ended" not in harness.kinds() and "ended" not in harness.kinds()


def test_the_heartbeat_is_given_every_ten_seconds(tmp_path: Path) -> None:
    harness = DriverHarness(tmp_path / "e").turn()
    beats: list[float] = []
    harness.loop._parts.copies.heartbeat = lambda: beats.append(harness.clock.monotonic())  # type: ignore[method-assign]
    for _ in range(50):
        harness.clock.advance(1.0)
        harness.turn()
    assert beats == [10.0, 20.0, 30.0, 40.0, 50.0]


def test_a_journal_that_is_ripe_is_folded_and_a_later_life_goes_on_from_it(tmp_path: Path) -> None:
    harness = simulated(tmp_path, num_samples=2)
    harness.loop.run()
    harness.loop.compact()
    harness.journal.close()
    paths = ExperimentPaths(tmp_path / "e")
    assert list(paths.journal.glob("snapshot-*"))
    claim(paths, clock=harness.clock).release()
