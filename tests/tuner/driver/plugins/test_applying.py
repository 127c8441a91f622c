"""One way to apply a fact: a replay of the journal tells plug-ins what the run told them, and they decide the same."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.tuner.driver.harness import DriverHarness, Proposer, plugin_set
from trainables import wire
from tuner.callback import Callback
from tuner.driver.plugins import PluginSet
from tuner.experiment import events as ev
from tuner.schedulers import TrialScheduler
from tuner.schedulers.base import Decision, Directive, Exploit, Reallocate


class Calls(list[tuple[Any, ...]]):
    """What was called, with whom, in which state."""

    def note(self, who: str, what: str, trial: Any, *more: Any) -> None:
        name = trial if isinstance(trial, str) else trial.trial_id
        self.append((who, what, name, getattr(trial, "status", None), getattr(trial, "iteration", None), *more))


class Erratic(TrialScheduler):
    """Decides by dice whatever a scheduler may."""

    def __init__(self, seed: int, calls: Calls, *, goes_back: bool) -> None:
        super().__init__()
        self.dice, self.calls = random.Random(seed), calls
        self.ids: list[str] = []
        self.ordered: list[Directive] = []
        if goes_back:
            self.on_rollback = lambda trial, iteration: calls.note("scheduler", "rollback", trial, iteration)

    def on_trial_add(self, trial: Any) -> None:
        self.ids.append(trial.trial_id)
        self.calls.note("scheduler", "add", trial)

    def on_trial_start(self, trial: Any) -> None:
        self.calls.note("scheduler", "start", trial)

    def on_trial_result(self, trial: Any, result: dict[str, Any]) -> Any:
        self.calls.note("scheduler", "result", trial, result["training_iteration"], result["done"])
        other, chance = self.dice.choice(self.ids), self.dice.random()
        if chance < 0.1:
            self.ordered.append(Directive(other, Decision.STOP))
        elif chance < 0.2:
            self.ordered.append(Directive(other, Exploit(trial.trial_id, {"x": chance})))
        elif chance < 0.3:
            return Exploit(other, {"x": chance})
        elif chance < 0.4:
            return Reallocate({"cpu": self.dice.choice([0.5, 1.0])})
        elif chance < 0.5:
            return Decision.PAUSE
        return Decision.STOP if chance > 0.97 else Decision.CONTINUE

    def on_checkpoint(self, trial: Any, iteration: int) -> None:
        self.calls.note("scheduler", "checkpoint", trial, iteration)

    def on_trial_complete(self, trial: Any, result: dict[str, Any]) -> None:
        self.calls.note("scheduler", "complete", trial, result.get("training_iteration"))

    def on_trial_error(self, trial: Any) -> None:
        self.calls.note("scheduler", "error", trial)

    def on_search_end(self) -> None:
        self.calls.note("scheduler", "search end", "")

    def orders(self) -> list[Directive]:
        ordered, self.ordered = self.ordered, []
        return ordered


class Told(Proposer):
    def __init__(self, count: int, calls: Calls) -> None:
        super().__init__(count)
        self.calls = calls

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self.calls.note("searcher", "result", trial_id, result["training_iteration"], result["done"])

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        self.calls.note("searcher", "complete", trial_id, error)

    def on_pause(self, trial_id: str) -> None:
        self.calls.note("searcher", "pause", trial_id)

    def on_unpause(self, trial_id: str) -> None:
        self.calls.note("searcher", "unpause", trial_id)


class Stateful(Callback):
    """Keeps a state, so that a replay tells it too."""

    def __init__(self) -> None:
        self.calls: dict[str, Calls] = {}

    def get_state(self) -> dict[str, Any]:
        return {}

    def _note(self, what: str, trial: Any, *more: Any) -> None:
        self.calls.setdefault(trial.trial_id, Calls()).note("callback", what, trial, *more)

    def on_trial_start(self, trial: Any, **info: Any) -> None:
        self._note("start", trial)

    def on_trial_clone(self, trial: Any, **info: Any) -> None:
        self._note("clone", trial, trial.clones[-1].donor)

    def on_trial_save(self, trial: Any, **info: Any) -> None:
        self._note("save", trial)

    def on_trial_result(self, trial: Any, result: dict[str, Any], **info: Any) -> None:
        self._note("result", trial, result["training_iteration"])
        if result["training_iteration"] == 7:
            result["done"] = True

    def on_trial_complete(self, trial: Any, **info: Any) -> None:
        self._note("complete", trial)

    def on_trial_error(self, trial: Any, **info: Any) -> None:
        self._note("error", trial)

    def on_rollback(self, trial: Any, iteration: int) -> None:
        self._note("rollback", trial, iteration)


def erratic(seed: int) -> tuple[PluginSet, Calls, Stateful]:
    calls, callback = Calls(), Stateful()
    scheduler = Erratic(seed, calls, goes_back=seed % 2 == 0)
    return plugin_set(callback, searcher=Told(5, calls), scheduler=scheduler, num_samples=5), calls, callback


def live_through(harness: DriverHarness, dice: random.Random) -> None:
    """Trials report, save, fail, end and are lost, in whatever order."""
    for _ in range(80):
        harness.turn()
        running = list(harness.loop.attempts.running.values())
        if not running:
            break
        trial, chance = dice.choice(running).trial, dice.random()
        answer = None
        if chance < 0.75:
            answer = harness.report(trial, saves=dice.random() < 0.5, loss=chance)
        if answer is not None and answer.then != "continue":
            harness.exit(trial)
        elif chance > 0.95:
            harness.exit(trial, status=-9, reason="lost")
        elif chance > 0.85:
            harness.exit(trial, wire.AttemptErrored("ValueError", "no", "Traceback"))


@pytest.mark.parametrize("seed", range(12))
def test_a_replay_of_every_prefix_makes_the_calls_that_the_run_made(seed: int, tmp_path: Path) -> None:
    plugins, calls, callback = erratic(seed)
    harness = DriverHarness(tmp_path / "run", plugins, max_failures=2)
    live_through(harness, random.Random(seed))
    facts = harness.facts
    assert len(facts) > 20
    for count in (*range(0, len(facts), len(facts) // 4), len(facts)):
        again, replayed, watching = erratic(seed)
        DriverHarness(tmp_path / f"replayed{count}", again, facts=facts[:count])
        assert replayed == calls[: len(replayed)], f"after {count} facts"
        for trial_id, told in watching.calls.items():
            assert told == callback.calls[trial_id][: len(told)], f"after {count} facts"
    assert replayed == calls and watching.calls == callback.calls
    held = {name: each.what for name, each in again.directives.noted.items()}
    assert held == {name: each.what for name, each in plugins.directives.noted.items()}


def test_the_calls_of_the_dice_are_of_every_kind(tmp_path: Path) -> None:
    seen = set()
    for seed in range(12):
        plugins, calls, callback = erratic(seed)
        harness = DriverHarness(tmp_path / str(seed), plugins, max_failures=2)
        live_through(harness, random.Random(seed))
        seen |= {call[:2] for told in (calls, *callback.calls.values()) for call in told}
        seen |= {("fact", kind) for kind in harness.kinds()}
    assert {("callback", "clone"), ("callback", "rollback"), ("scheduler", "rollback"), ("searcher", "unpause")} <= seen
    assert {("scheduler", "error"), ("scheduler", "complete"), ("scheduler", "search end")} <= seen
    assert {("fact", kind) for kind in ("reallocated", "exploited", "rolled_back", "attempt_ended", "ended")} <= seen


def test_one_reallocation_is_one_fact(tmp_path: Path) -> None:
    class Grows(TrialScheduler):
        def on_trial_result(self, trial: Any, result: dict[str, Any]) -> Any:
            return Reallocate({"cpu": 2.0}) if result["training_iteration"] == 1 else Decision.CONTINUE

    harness = DriverHarness(tmp_path / "e", plugin_set(scheduler=Grows())).turn()
    answer = harness.report(harness.trial(), saves=True)
    assert answer is not None and answer.then == "pause"
    harness.exit(harness.trial())
    assert harness.kinds().count("reallocated") == 1
    assert harness.executor.launched[-1].resources == {"cpu": 2.0}
    assert harness.plugins.directives.noted == {}


def test_another_suggestion_yields_to_the_journal_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    harness = DriverHarness(tmp_path / "e", plugin_set(num_samples=3)).turn()
    harness.exit(harness.trial())
    searcher = Proposer(9)
    searcher.made = 5  # its first would be {"x": 6}
    again = DriverHarness(tmp_path / "again", plugin_set(searcher=searcher), facts=harness.facts)
    assert [trial.config for trial in again.state.trials] == [{"x": 1}, {"x": 2}, {"x": 3}]
    assert [record.message for record in caplog.records if "another config" in record.message] == [
        "the searcher would now suggest another config for train_ab_00000; the journal's stands"
    ]


def test_what_a_callback_changes_at_a_replay_does_not_change_the_state(tmp_path: Path) -> None:
    class Renames(Callback):
        says = "first"

        def get_state(self) -> dict[str, Any]:
            return {}

        def on_trial_result(self, result: dict[str, Any], **info: Any) -> None:
            result["who"] = self.says

    harness = DriverHarness(tmp_path / "e", plugin_set(Renames())).turn()
    harness.report(harness.trial(), loss=1.0)
    changed = Renames()
    changed.says = "second"
    again = DriverHarness(tmp_path / "again", plugin_set(changed), facts=harness.facts)
    assert again.trial().last_result["who"] == harness.trial().last_result["who"] == "first"


def test_a_callback_is_told_of_the_contents_of_a_checkpoint_by_the_run_only(tmp_path: Path) -> None:
    class Opens(Callback):
        def __init__(self) -> None:
            self.opened: list[str] = []

        def get_state(self) -> dict[str, Any]:
            return {}

        def on_checkpoint(self, checkpoint: Any, **info: Any) -> None:
            self.opened.append(Path(checkpoint.path).name)

    callback = Opens()
    harness = DriverHarness(tmp_path / "e", plugin_set(callback)).turn()
    harness.report(harness.trial(), saves=True)
    assert callback.opened == ["checkpoint_000001"]
    later = Opens()
    DriverHarness(tmp_path / "again", plugin_set(later), facts=harness.facts)
    assert later.opened == []
    assert any(isinstance(fact, ev.CheckpointPublished) for fact in harness.facts)
