"""What plug-ins decide together on a result, who is told of what, and what a rollback tells whom."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tuner.driver.harness import DriverHarness, Proposer, Says, plugin_set
from trainables import wire
from tuner.experiment.reason import Reason, ReasonKind
from tuner.experiment.trial import Trial
from tuner.schedulers import FIFOScheduler
from tuner.schedulers.base import Decision, Exploit, Reallocate, Reasoned
from tuner.stopper import MaximumIterationStopper, Stopper

CONTINUE, SAVE, PAUSE, STOP = Decision.CONTINUE, Decision.SAVE, Decision.PAUSE, Decision.STOP


def a_trial(tmp_path: Path, **stands: Any) -> Trial:
    trial = DriverHarness(tmp_path / "e").turn().trial()
    for name, value in stands.items():
        setattr(trial, name, value)
    return trial


class Stops(Stopper):
    """Ends trials, or everything, from a result on."""

    def __init__(self, *, trial_at: int = 99, all_at: int = 99, said: Any = True) -> None:
        self.trial_at, self.all_at, self.said, self.seen = trial_at, all_at, said, 0

    def __call__(self, trial_id: str, result: dict[str, Any]) -> Any:
        self.seen = max(self.seen, result["training_iteration"])
        return self.said if result["training_iteration"] >= self.trial_at else False

    def stop_all(self) -> bool:
        return self.seen >= self.all_at


REASON = Reason(ReasonKind.WORSE, metric="loss", value=2.0, rank=3, of=3)


@pytest.mark.parametrize(
    ("said", "decided", "kind"),
    [
        (CONTINUE, CONTINUE, None),
        (SAVE, SAVE, ReasonKind.DECIDED),
        (Reasoned(SAVE, Reason(ReasonKind.SAVE)), SAVE, ReasonKind.SAVE),
        (PAUSE, PAUSE, ReasonKind.DECIDED),
        (STOP, STOP, ReasonKind.DECIDED),
        (Reasoned(STOP, REASON), STOP, ReasonKind.WORSE),
        (Exploit("ab_00007", {"x": 1}), Exploit("ab_00007", {"x": 1}), ReasonKind.EXPLOIT),
        (Reallocate({"cpu": 2}), Reallocate({"cpu": 2}), ReasonKind.RESOURCES),
    ],
)
def test_a_schedulers_answer_gets_its_name_and_iteration(
    said: Any, decided: Any, kind: ReasonKind | None, tmp_path: Path
) -> None:
    plugins = plugin_set(scheduler=Says(said))
    verdict, reason = plugins.decide(a_trial(tmp_path), {"training_iteration": 4}, 4, False)
    assert verdict == decided
    assert (None if reason is None else (reason.kind, reason.by, reason.iteration)) == (
        None if kind is None else (kind, "Says", 4)
    )


@pytest.mark.parametrize(
    ("done", "stopper", "reason"),
    [
        (True, None, Reason(ReasonKind.DONE, "train", 2)),
        (False, Stops(trial_at=2), Reason(ReasonKind.CRITERION, "Stops", 2)),
        (False, Stops(trial_at=2, said=Reason(ReasonKind.LIMIT)), Reason(ReasonKind.LIMIT, "Stops", 2)),
        (False, Stops(all_at=2), Reason(ReasonKind.EXPERIMENT, "Stops", 2)),
        (True, Stops(trial_at=2), Reason(ReasonKind.CRITERION, "Stops", 2)),
        (False, Stops(trial_at=2, all_at=2), Reason(ReasonKind.EXPERIMENT, "Stops", 2)),
    ],
)  # fmt: skip
def test_what_ends_a_trial_says_who_it_was_and_the_scheduler_is_not_asked(
    done: bool, stopper: Stops | None, reason: Reason, tmp_path: Path
) -> None:
    says = Says(PAUSE)
    plugins = plugin_set(scheduler=says, stopper=stopper)
    result = {"training_iteration": 2, "done": done}
    assert plugins.decide(a_trial(tmp_path), result, 2, False) == (STOP, reason)
    assert says.said == [PAUSE], "it was not told: it hears of the end"


def test_once_everything_is_stopped_every_trial_ends_at_its_next_result(tmp_path: Path) -> None:
    plugins = plugin_set(stopper=Stops(all_at=5))
    trial = a_trial(tmp_path)
    assert plugins.decide(trial, {"training_iteration": 4}, 4, False) == (CONTINUE, None)
    assert plugins.decide(trial, {"training_iteration": 5}, 5, False)[0] is STOP
    assert plugins.source.stopped
    other = a_trial(tmp_path / "other")
    assert plugins.decide(other, {"training_iteration": 1}, 1, False)[0] is STOP


@pytest.mark.parametrize(("told_then", "decided"), [("continue", CONTINUE), ("pause", PAUSE), ("stop", STOP)])
def test_a_result_that_was_told_before_keeps_the_answer_of_the_journal(
    told_then: str, decided: Decision, tmp_path: Path
) -> None:
    says = Says(STOP if told_then == "continue" else CONTINUE)
    trial = a_trial(tmp_path, told=3, told_then=told_then, told_reason=REASON if decided is not CONTINUE else None)
    plugins = plugin_set(scheduler=says)
    verdict, reason = plugins.decide(trial, {"training_iteration": 3}, 3, True)
    assert (verdict, reason) == (decided, trial.told_reason)
    assert says.said, "who cannot go back is not told twice"
    assert plugins.decide(trial, {"training_iteration": 2}, 2, True)[0] is CONTINUE, "the one before it stood"


class GoesBack(Says):
    """Forgets what is void, and so hears it again."""

    def __init__(self, *said: Any) -> None:
        super().__init__(*said)
        self.back: list[int] = []

    def on_rollback(self, trial: Trial, iteration: int) -> None:
        self.back.append(iteration)


def test_who_can_go_back_is_told_of_a_rollback_and_asked_again(tmp_path: Path) -> None:
    says, searcher = GoesBack(STOP), Proposer()
    plugins = plugin_set(scheduler=says, searcher=searcher, stopper=MaximumIterationStopper(99))
    trial = a_trial(tmp_path, told=3, told_then="continue")
    plugins.on_rollback(trial, 1)
    assert says.back == [1]
    assert plugins.decide(trial, {"training_iteration": 2}, 2, True)[0] is STOP


class Hears(Proposer):
    def __init__(self) -> None:
        super().__init__(2)
        self.heard: list[tuple[Any, ...]] = []

    def on_pause(self, trial_id: str) -> None:
        self.heard.append(("pause", trial_id))

    def on_unpause(self, trial_id: str) -> None:
        self.heard.append(("unpause", trial_id))

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        self.heard.append(("complete", trial_id, result and result["loss"], error))


def test_a_searcher_hears_of_a_pause_its_end_and_the_trials_end(tmp_path: Path) -> None:
    searcher = Hears()
    harness = DriverHarness(tmp_path / "e", plugin_set(searcher=searcher, scheduler=Says(PAUSE))).turn()
    trial, other = harness.state.trials
    harness.report(trial, saves=True, loss=1.0)
    harness.exit(trial)
    assert harness.plugins.paused == set(), "it goes on at once"
    harness.report(trial, loss=0.5)
    harness.exit(trial)
    harness.exit(other, wire.AttemptErrored("ValueError", "no", ""))
    assert searcher.heard == [
        ("pause", "ab_00000"),
        ("unpause", "ab_00000"),
        ("complete", "ab_00000", 0.5, False),
        ("complete", "ab_00001", None, True),
    ]


class HearsAll(Says):
    """A scheduler that writes down what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[tuple[str, Any]] = []

    def on_trial_result(self, trial: Any, result: dict[str, Any]) -> Any:
        self.heard.append(("result", result["training_iteration"]))
        return CONTINUE

    def on_trial_start(self, trial: Any) -> None:
        self.heard.append(("start", trial.trial_id))

    def on_trial_error(self, trial: Any) -> None:
        self.heard.append(("error", trial.trial_id))

    def on_trial_complete(self, trial: Any, result: dict[str, Any]) -> None:
        self.heard.append(("complete", result["loss"]))

    def on_search_end(self) -> None:
        self.heard.append(("search end", None))


class Learns(Proposer):
    """A searcher that writes down what it is told."""

    def __init__(self) -> None:
        super().__init__(2)
        self.heard: list[Any] = []

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self.heard.append((trial_id, result["loss"]))

    def on_search_end(self) -> None:
        self.heard.append("search end")


def test_who_hears_what_of_a_life(tmp_path: Path) -> None:
    scheduler, searcher = HearsAll(), Learns()
    plugins = plugin_set(scheduler=scheduler, searcher=searcher, num_samples=3)
    harness = DriverHarness(tmp_path / "e", plugins, slots=3).turn()
    first, second = harness.state.trials
    harness.report(first, loss=0.5)
    harness.exit(first)
    harness.exit(second, wire.AttemptErrored("ValueError", "no", ""))
    assert sorted(scheduler.heard[:3], key=str) == [
        ("search end", None), ("start", "ab_00000"), ("start", "ab_00001"),
    ]  # fmt: skip
    assert scheduler.heard[3:] == [("result", 1), ("complete", 0.5), ("error", "ab_00001")]
    assert searcher.heard == ["search end", ("ab_00000", 0.5)]


class Clones(FIFOScheduler):
    def on_trial_result(self, trial: Any, result: dict[str, Any]) -> Any:
        return Exploit("ab_00009", {}) if result["training_iteration"] < 3 else CONTINUE


@pytest.mark.parametrize(
    ("saves", "failed", "results", "warned"),
    [
        (False, False, 3, True),
        (True, False, 3, False),
        (False, True, 3, False),
        (False, False, 1, False),  # it ended at the very result at which it was asked
    ],
)
def test_a_trial_that_never_saves_under_a_scheduler_that_needs_it_is_warned_of_once(
    saves: bool, failed: bool, results: int, warned: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    harness = DriverHarness(tmp_path / "e", plugin_set(scheduler=Clones(), num_samples=2)).turn()
    for trial in harness.state.trials:
        for number in range(results):
            harness.report(trial, saves=saves and number == 0)
    for trial in list(harness.state.trials):
        harness.exit(trial, wire.AttemptErrored("ValueError", "no", "") if failed else None, next_turn=False)
    said = [text for text in caplog.messages if "pauses and clones trials by their checkpoints" in text]
    assert len(said) == warned
    assert not said or said[0].startswith("Clones pauses and clones trials by their checkpoints, and train_ab_00000")


def test_the_choice_is_the_schedulers_and_its_orders_are_taken_along(tmp_path: Path) -> None:
    class Last(Says):
        def choose_trial_to_run(self, pending: Any) -> Any:
            return pending[-1] if pending else None

    trials = [a_trial(tmp_path / str(number)) for number in range(3)]
    plugins = plugin_set(scheduler=Last())
    assert plugins.choose(trials) is trials[-1] and plugins.choose([]) is None
    assert not plugins.directives.news
