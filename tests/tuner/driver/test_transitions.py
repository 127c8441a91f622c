"""What becomes of attempts and trials when they end, wait, back off, or are ordered to go on otherwise."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tests.tuner.driver.harness import DriverHarness, Says, plugin_set
from trainables import wire
from tuner.driver.attempts import Phase
from tuner.driver.transitions import why_ended
from tuner.error import ResourceError
from tuner.executors import SimulatedExecutor
from tuner.experiment import events as ev
from tuner.experiment.reason import Reason, ReasonKind
from tuner.schedulers.base import Decision, Directive, Exploit, Reallocate
from tuner.syncer.sink import ReplicaSink

ERRED = wire.AttemptErrored("ValueError", "no", "")
PAUSE, STOP = Decision.PAUSE, Decision.STOP


def ordering(tmp_path: Path, *said: Any, num_samples: int = 2, **settings: Any) -> tuple[DriverHarness, Says]:
    says = Says(*said)
    plugins = plugin_set(scheduler=says, num_samples=num_samples)
    return DriverHarness(tmp_path / "e", plugins, **settings).turn(), says


def facts_of(harness: DriverHarness, kind: Any) -> list[Any]:
    return [fact for fact in harness.facts if isinstance(fact, kind)]


# --- ends ----------------------------------------------------------------------------------------------------


def test_an_attempt_that_ends_lets_its_trial_wait_and_leaves_no_attempt(tmp_path: Path) -> None:
    harness = DriverHarness(tmp_path / "e").turn()
    (run,) = harness.loop.attempts.running.values()
    harness.clock.advance(7.0)
    harness.loop.endings.transitions.end_attempt(run, "preempted", ev.ErrorInfo("SystemExit", "gone"))
    assert run.phase is Phase.ENDED and harness.loop.attempts.running == {}
    assert harness.facts[-1] == ev.AttemptEnded(
        "ab_00000", 1, "preempted", ev.ErrorInfo("SystemExit", "gone"), harness.clock.time()
    )
    assert list(harness.loop._parts.waiting.view) == [harness.trial()]


@pytest.mark.parametrize("runs", [True, False])
def test_a_trial_that_ends_takes_its_attempt_along(runs: bool, tmp_path: Path) -> None:
    harness = DriverHarness(tmp_path / "e").turn()
    trial, transitions = harness.trial(), harness.loop.endings.transitions
    if not runs:
        transitions.end_attempt(harness.loop.attempts.running[trial.trial_id], "paused")
        harness.loop._parts.waiting.remove(trial)
    transitions.end_trial(trial, None)
    assert harness.loop.attempts.running == {} and trial.status == "TERMINATED"
    assert trial.end_reason == Reason(ReasonKind.DONE, "train", 0)


def test_files_of_a_trial_that_ends_are_made_durable_before_the_journal_forgets_it(tmp_path: Path) -> None:
    class Notes(ReplicaSink):
        def touched(self, trials: Any) -> None:
            self.trials = {trial.trial_id for trial in trials}

    harness, notes = DriverHarness(tmp_path / "e", plugin_set(num_samples=2), directories=True).turn(), Notes()
    facts = harness.loop._parts.facts
    facts.compact(notes)
    harness.loop.endings.transitions.end_trial(harness.trial(1), None)
    facts.compact(notes)
    assert notes.trials == {"ab_00001"}


STOPPED = Reason(ReasonKind.WORSE, "Says", 1)


@pytest.mark.parametrize(
    ("told", "error", "kind", "by"),
    [
        ("continue", None, ReasonKind.DONE, "train"),
        ("pause", None, ReasonKind.DONE, "train"),
        ("stop", None, ReasonKind.WORSE, "Says"),
        ("stop", ev.ErrorInfo("ValueError", "no"), ReasonKind.ERROR, "ValueError"),
        ("continue", ev.ErrorInfo("ValueError", "no"), ReasonKind.ERROR, "ValueError"),
        # What a trial raises under that name is its own error: a spent time has another cause.
        ("continue", ev.ErrorInfo("TrialTimeoutError", "late"), ReasonKind.ERROR, "TrialTimeoutError"),
    ],
)
def test_why_a_trial_has_ended_of_which_nothing_else_is_said(
    told: str, error: ev.ErrorInfo | None, kind: ReasonKind, by: str, tmp_path: Path
) -> None:
    trial = DriverHarness(tmp_path / "e").turn().trial()
    trial.told_then, trial.told_reason, trial.iteration = told, STOPPED, 1
    assert why_ended(trial, error) == Reason(kind, by, 1)


# --- orders for trials that wait -------------------------------------------------------------------------------


def paused(harness: DriverHarness, index: int = 0) -> Any:
    """A trial that has paused at its first checkpoint, with nobody starting it again."""
    trial = harness.trial(index)
    harness.report(trial, saves=True)
    harness.exit(trial, next_turn=False)
    assert trial.status == "PAUSED"
    return trial


def test_an_order_to_stop_ends_a_trial_that_waits_and_says_who_gave_it(tmp_path: Path) -> None:
    harness, says = ordering(tmp_path, PAUSE)
    trial = paused(harness)
    says.ordered.append(Directive(trial.trial_id, STOP, Reason(ReasonKind.LIMIT, cut=3.0)))
    harness.report(harness.trial(1))
    assert trial.status == "TERMINATED"
    assert trial.end_reason == Reason(ReasonKind.LIMIT, "Says", 1, cut=3.0)
    assert trial not in harness.loop._parts.waiting and harness.plugins.directives.noted == {}


def test_an_order_to_clone_makes_the_trial_go_on_from_the_donors_checkpoint(tmp_path: Path) -> None:
    harness, says = ordering(tmp_path, PAUSE)
    clone, donor = paused(harness), harness.trial(1)
    harness.report(donor, saves=True)
    harness.report(donor, saves=True)
    says.ordered.append(Directive(clone.trial_id, Exploit(donor.trial_id, {"x": 9})))
    harness.report(donor)
    (exploited,) = facts_of(harness, ev.Exploited)
    assert (exploited.checkpoint.trial_id, exploited.checkpoint.iteration) == (donor.trial_id, 2)
    assert bytes(exploited.config) == b'{"x":9}' and exploited.reason.kind is ReasonKind.EXPLOIT
    harness.turn()
    launch = harness.executor.launched[-1]
    assert launch.job.trial_id == clone.trial_id and launch.job.config == {"x": 9}
    assert launch.job.checkpoint == exploited.checkpoint
    assert launch.job.checkpoint_path == donor.directory / exploited.checkpoint.name
    assert launch.job.start_iteration == 1, "its own count goes on"


@pytest.mark.parametrize("donor", ["ab_00001", "nobody"])
def test_an_order_to_clone_what_has_no_checkpoint_changes_nothing(donor: str, tmp_path: Path) -> None:
    harness, says = ordering(tmp_path, PAUSE)
    clone = paused(harness)
    says.ordered.append(Directive(clone.trial_id, Exploit(donor, {"x": 9})))
    harness.report(harness.trial(1))
    harness.turn()
    assert facts_of(harness, ev.Exploited) == []
    launch = harness.executor.launched[-1]
    assert (launch.job.trial_id, launch.job.config, launch.job.start_iteration) == (clone.trial_id, {"x": 1}, 1)


def test_other_resources_come_with_the_next_attempt(tmp_path: Path) -> None:
    harness, says = ordering(tmp_path, PAUSE, slots=3)
    trial = paused(harness)
    says.ordered.append(Directive(trial.trial_id, Reallocate({"cpu": 2})))
    harness.report(harness.trial(1))
    assert facts_of(harness, ev.Reallocated) == [ev.Reallocated(trial.trial_id, {"cpu": 2.0})]
    harness.turn()
    assert harness.executor.launched[-1].resources == {"cpu": 2.0}


def test_resources_that_no_host_has_are_the_schedulers_error_and_forgotten(tmp_path: Path) -> None:
    says = Says(PAUSE)

    def fits(resources: Any) -> None:
        if resources["cpu"] > 2:
            raise ResourceError("there are 2 cpus")

    harness = DriverHarness(tmp_path / "e", plugin_set(scheduler=says, num_samples=2, fits=fits)).turn()
    trial = paused(harness)
    says.ordered.append(Directive(trial.trial_id, Reallocate({"cpu": 99})))
    with pytest.raises(ResourceError, match=r"Says gives train_ab_00000 \{'cpu': 99\}: there are 2 cpus"):
        harness.report(harness.trial(1))
    assert harness.plugins.directives.noted == {}


def test_an_order_for_a_trial_that_has_ended_is_dropped(tmp_path: Path) -> None:
    harness, says = ordering(tmp_path)
    ended, other = harness.state.trials
    harness.exit(ended)
    says.ordered.append(Directive(ended.trial_id, Exploit(other.trial_id, {"x": 9})))
    harness.report(other, saves=True)
    harness.loop.endings.transitions.carry_out_noted()
    assert harness.plugins.directives.noted == {} and facts_of(harness, ev.Exploited) == []


def test_who_is_behind_what_it_was_told_is_not_stopped_before_it_is_there_again(tmp_path: Path) -> None:
    harness, says = ordering(tmp_path, max_failures=3)
    trial, other = harness.state.trials
    harness.report(trial, saves=True)
    says.said = [PAUSE]
    harness.report(trial, saving=harness.publish(trial, 2), told=False)
    shutil.rmtree(trial.directory / "checkpoint_000002")
    assert trial.told_then == "pause"
    harness.exit(trial, ERRED, next_turn=False)  # before the save is on the disk
    assert trial.is_behind and trial in harness.loop._parts.waiting
    says.ordered.append(Directive(trial.trial_id, STOP))
    harness.report(other)
    assert not trial.is_finished() and trial.trial_id in harness.plugins.directives.noted
    harness.turn()
    harness.report(trial, saves=True)
    harness.exit(trial)
    assert trial.status == "TERMINATED" and trial.end_reason is not None
    assert (trial.end_reason.kind, trial.iteration) == (ReasonKind.DECIDED, 2)


# --- trials that wait for space ----------------------------------------------------------------------------------


def test_who_starves_does_not_wait_for_room_until_it_is_fed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    harness = DriverHarness(tmp_path / "e", max_failures=3).turn()
    trial, transitions, parts = harness.trial(), harness.loop.endings.transitions, harness.loop._parts
    harness.exit(trial, wire.AttemptErrored("OSError", "no space", "", disk=True))
    assert trial not in parts.waiting and list(parts.attempts.starved) == [trial.trial_id]
    assert "train_ab_00000 waits until something is deleted: no space" in caplog.text
    transitions.feed()
    assert trial in parts.waiting and not parts.attempts.starved
    transitions.feed()  # nobody is left
    assert list(parts.waiting.view) == [trial]


# --- attempts that fail again and again ----------------------------------------------------------------------------


class Fails:
    """A model whose trials fail after so many results of each attempt, and the virtual times at which they began."""

    def __init__(self, results: Sequence[int]) -> None:
        self.executor = SimulatedExecutor(self, slots=1)
        self._results, self.begun = list(results), list[float]()

    def __call__(self, config: dict[str, Any]) -> Any:
        self.begun.append(self.executor.clock.monotonic())
        for _ in range(self._results[len(self.begun) - 1]):
            yield 0.0, {"loss": 1.0}
        if len(self.begun) < len(self._results):
            raise RuntimeError("again")


@pytest.mark.parametrize(
    ("results", "waits"),
    [
        pytest.param([0] * 10 + [1], [0, 1, 2, 4, 8, 16, 32, 60, 60, 60], id="longer and longer, at most a minute"),
        pytest.param([0, 0, 0, 1, 0, 0, 0], [0, 1, 2, 0, 1, 2], id="a result resets the wait"),
        pytest.param([2, 2, 2, 2, 3, 2, 2, 0], [0, 1, 2, 4, 0, 1, 2], id="one that it had before does not"),
    ],
)
def test_attempts_that_fail_wait(results: Sequence[int], waits: list[float], tmp_path: Path) -> None:
    model = Fails(results)
    tune.run(
        lambda config: None, executor=model.executor, storage_path=str(tmp_path), name="e", max_failures=-1, verbose=0
    )
    assert [round(later - before, 6) for before, later in itertools.pairwise(model.begun)] == waits


def test_meanwhile_the_slot_is_free(tmp_path: Path) -> None:
    begun: list[int] = []

    def always(config: dict[str, Any]) -> Any:
        begun.append(config["number"])
        if config["number"] == 0 and begun.count(0) < 4:
            raise RuntimeError("again")
        yield 0.4, {"loss": 1.0}

    tune.run(
        lambda config: None, executor=SimulatedExecutor(always, slots=1), storage_path=str(tmp_path), name="e",
        config={"number": tune.grid_search([0, 1, 2, 3, 4, 5])}, max_failures=-1, verbose=0,
    )  # fmt: skip
    assert begun == [0, 0, 1, 2, 3, 0, 4, 5, 0]


def test_an_order_reaches_a_trial_when_its_wait_is_over(tmp_path: Path) -> None:
    harness, says = ordering(tmp_path, max_failures=-1)
    failing, other = harness.state.trials
    harness.exit(failing, ERRED)
    harness.exit(failing, ERRED)
    assert list(harness.loop.attempts.backing_off) == [failing.trial_id]
    says.ordered.append(Directive(failing.trial_id, STOP))
    harness.report(other)
    assert not failing.is_finished()
    harness.clock.advance(1.0)
    harness.turn()
    assert failing.status == "TERMINATED" and not harness.loop.attempts.backing_off
