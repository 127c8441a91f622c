"""How an attempt ends, against what its trial was told last: what comes of it, now and after a resume."""

from __future__ import annotations

import itertools
import logging
import os
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from trainables.wire import AttemptErrored, Finished, Preempted, SaveFailed, SavePublished
from tuner.error import OwnedElsewhereError
from tuner.executors import InlineExecutor
from tuner.executors.base import Dispatch, Event, Exited, Message
from tuner.experiment import events as ev
from tuner.experiment.journal import read_journal
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.reason import Reason, ReasonKind
from tuner.schedulers.base import Decision, Reasoned

LAST = 3
"""The iteration at which the trial is told what the row says."""
EXITS = {
    "finished": (0, None),
    "errored": (0, None),
    "preempted": (0, None),
    "died": (-9, None),
    "lost": (-9, "lost"),
    "timeout": (-9, "timeout"),
}
SAVES = ("none", "durable", "failed", "lost")
TOLD = ("continue", "stop", "pause")


class Ends(InlineExecutor):
    """Lets the first attempt end as it is told, with its last save durable, failed, or never heard of again."""

    def __init__(self, how: str, save: str, *, halt: bool = False) -> None:
        super().__init__()
        self._how, self._save, self._halt = how, save, halt

    def run_once(self, dispatch: Dispatch, timeout: float | None) -> None:
        super().run_once(lambda events: self._pass_on(events, dispatch), timeout)

    def _pass_on(self, events: Sequence[Event], dispatch: Dispatch) -> None:
        changed = [self._changed(event) if event.attempt == 1 else event for event in events]
        dispatch([event for event in changed if event is not None])

    def _changed(self, event: Event) -> Event | None:
        if isinstance(event, Exited):
            status, reason = EXITS[self._how]
            return Exited(event.trial_id, event.attempt, status, reason)
        if not isinstance(event, Message):
            return event
        body = event.body
        if isinstance(body, SavePublished) and body.ref.iteration == LAST and self._save in ("failed", "lost"):
            shutil.rmtree(next(Path(os.environ["PLACE"]).glob(f"*/*/{body.ref.name}")))
            if self._save == "lost":
                return None
            return Message(event.trial_id, event.attempt, SaveFailed(body.ref, "no space left"))
        if isinstance(body, (Finished, Preempted)):
            if self._halt:
                os.kill(os.getpid(), signal.SIGINT)
            last = {"finished": Finished(), "preempted": Preempted(), "errored": AttemptErrored("ValueError", "no", "")}
            return Message(event.trial_id, event.attempt, last[self._how]) if self._how in last else None
        return event


class Pauses(tune.schedulers.TrialScheduler):
    """Pauses the trial at its third result, once."""

    def on_trial_result(self, trial: Any, result: dict[str, Any]) -> Reasoned | Decision:
        if result["training_iteration"] != LAST:
            return Decision.CONTINUE
        return Reasoned(Decision.PAUSE, Reason(ReasonKind.WAITS, cut=7.0))


def train(config: dict[str, Any]) -> None:
    checkpoint = tune.get_checkpoint()
    start = checkpoint.to_dict()["count"] if checkpoint else 0
    for count in range(start + 1, config["n"] + 1):
        with open(config["log"], "a") as log:
            log.write(f"{count} ")
        saved = tune.Checkpoint.from_dict({"count": count}) if count in config["saves"] else None
        tune.report({"count": count}, checkpoint=saved)


def run(place: Path, told: str, save: str, executor: Any = "inline", **more: Any) -> Any:
    config = {
        "n": LAST if told == "continue" else LAST + 2,
        "saves": {"none": [1]}.get(save, [1, LAST]),
        "log": str(place / "log"),
    }
    if told == "stop":
        more["stop"] = {"training_iteration": LAST}
    if told == "pause":
        more["scheduler"] = Pauses()
    return tune.run(
        train, config=config, name="e", storage_path=str(place), executor=executor, verbose=0,
        raise_on_failed_trial=False, resume="AUTO", **more,
    )  # fmt: skip


def facts(place: Path) -> list[Any]:
    contents = read_journal(ExperimentPaths(place / "e"))
    assert contents is not None
    return [ev.decode(body) for _, body in contents.bodies]


def expected(told: str, how: str, save: str) -> tuple[str, bool, int]:
    """(status, whether a plain resume takes it up, attempts)."""
    missing = save in ("failed", "lost")
    again = how in ("lost", "preempted")
    if told == "stop":
        if not missing:
            return "TERMINATED", False, 1
        return ("TERMINATED", False, 2) if again else ("ERROR", True, 1)
    if again:
        # A pause at a save that is missing is made again before the trial goes on.
        return "TERMINATED", False, 3 if told == "pause" and missing else 2
    if how in ("errored", "died", "timeout"):
        return "ERROR", False, 1
    if told == "continue":
        return ("ERROR", True, 1) if missing else ("TERMINATED", False, 1)
    if save == "none":  # nobody pauses without a checkpoint
        return "TERMINATED", False, 1
    return "TERMINATED", False, 3 if missing else 2


ROWS = [row for row in itertools.product(TOLD, EXITS, SAVES) if row[0] != "pause" or row[2] != "none"]


@pytest.mark.parametrize(("told", "how", "save"), ROWS)
def test_what_comes_of_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, told: str, how: str, save: str
) -> None:
    monkeypatch.setenv("PLACE", str(tmp_path))
    with caplog.at_level(logging.WARNING):
        trial = run(tmp_path, told, save, Ends(how, save)).trials[0]
    status, disk, attempts = expected(told, how, save)
    assert (trial.status, bool(trial.error and trial.error.disk), trial.attempt) == (status, disk, attempts)
    reached = [int(word) for word in (tmp_path / "log").read_text().split()]
    if told == "stop":
        assert max(reached) == LAST, "who was told to stop never trains past that"
    if status == "TERMINATED":
        assert trial.iteration == (LAST if told != "pause" else LAST + 2)
        assert trial.end_reason.kind is (ReasonKind.CRITERION if told == "stop" else ReasonKind.DONE)
    if told == "stop" and status == "TERMINATED" and how in ("errored", "died", "timeout"):
        assert "had been told to stop and has ended" in caplog.text
    if status == "ERROR":
        kind = ReasonKind.TIMEOUT if how == "timeout" and not disk else ReasonKind.ERROR
        assert trial.end_reason.kind is kind

    after = run(tmp_path, told, save).trials[0]
    if not disk:
        assert (after.status, after.attempt) == (status, attempts)
        return
    assert after.status == "TERMINATED" and after.iteration == LAST
    assert max(int(word) for word in (tmp_path / "log").read_text().split()) == LAST
    assert after.checkpoint.to_dict()["count"] == LAST, "what was lost is there"


@pytest.mark.parametrize("save", ["none", "durable", "failed"])
@pytest.mark.parametrize("how", ["finished", "errored", "died", "lost"])
def test_who_was_told_to_stop_has_ended_also_when_the_run_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, save: str
) -> None:
    monkeypatch.setenv("PLACE", str(tmp_path))
    monkeypatch.setenv("TUNE_ON_INTERRUPT", "return")
    trial = run(tmp_path, "stop", save, Ends(how, save, halt=True)).trials[0]
    assert trial.status == ("PAUSED" if save == "failed" else "TERMINATED")
    after = run(tmp_path, "stop", save).trials[0]
    assert (after.status, after.iteration) == ("TERMINATED", LAST)
    if save == "failed":
        assert after.checkpoint.to_dict()["count"] == LAST


def test_a_crash_on_the_way_out_starts_nothing_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACE", str(tmp_path))
    trial = run(tmp_path, "stop", "durable", Ends("errored", "durable"), max_failures=-1).trials[0]
    assert (trial.status, trial.attempt, trial.num_failures) == ("TERMINATED", 1, 0)


def test_a_last_save_that_fails_is_tried_again_within_max_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLACE", str(tmp_path))
    trial = run(tmp_path, "stop", "lost", Ends("errored", "lost"), max_failures=1).trials[0]
    assert (trial.status, trial.attempt, trial.checkpoint.to_dict()) == ("TERMINATED", 2, {"count": LAST})


class CannotSave(tune.Trainable):
    """Its save at the end raises, as long as a file says so."""

    def step(self) -> dict[str, Any]:
        with open(self.config["log"], "a") as log:
            log.write(f"{self.iteration + 1} ")
        return {"count": self.iteration}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        if Path(self.config["broken"]).exists():
            raise RuntimeError("the model cannot be written")
        Path(checkpoint_dir, "model").write_text(str(self.iteration))

    def load_checkpoint(self, checkpoint: Any) -> None:
        """There is nothing to load."""


@pytest.mark.parametrize("executor", ["inline", "local"])
def test_a_save_at_the_end_that_raises_is_taken_up_by_a_plain_resume(tmp_path: Path, executor: str) -> None:
    (tmp_path / "broken").touch()

    def once() -> Any:
        return tune.run(
            CannotSave, config={"log": str(tmp_path / "log"), "broken": str(tmp_path / "broken")},
            name="e", storage_path=str(tmp_path), executor=executor, verbose=0, resume="AUTO",
            stop={"training_iteration": 2}, checkpoint_at_end=True, raise_on_failed_trial=False,
        ).trials[0]  # fmt: skip

    trial = once()
    assert (trial.status, trial.error.type, trial.error.disk) == ("ERROR", "RuntimeError", True)
    (tmp_path / "broken").unlink()
    trial = once()
    assert (trial.status, trial.iteration) == ("TERMINATED", 2)
    with trial.checkpoint.as_directory() as directory:
        assert Path(directory, "model").read_text() == "2"
    assert (tmp_path / "log").read_text() == "1 2 1 2 "


class Large(CannotSave):
    def save_checkpoint(self, checkpoint_dir: str) -> None:
        Path(checkpoint_dir, "model").write_bytes(os.urandom(20_000))


def test_a_save_at_the_end_that_is_over_the_budget_is_taken_up_under_a_larger_one(tmp_path: Path) -> None:
    def once(budget: str, resume: str = "AUTO") -> Any:
        return tune.run(
            Large, config={"log": str(tmp_path / "log")}, name="e", storage_path=str(tmp_path), executor="inline",
            verbose=0, resume=resume, stop={"training_iteration": 2}, checkpoint_at_end=True,
            raise_on_failed_trial=False, checkpoint_budget=budget,
        ).trials[0]  # fmt: skip

    trial = once("10KB")
    assert (trial.status, trial.error.type, trial.error.disk) == ("ERROR", "CheckpointBudgetError", False)
    assert once("10KB").attempt == 1, "shown, not run again"
    trial = once("1MB", "AUTO+ERRORED")
    assert (trial.status, trial.iteration) == ("TERMINATED", 2) and trial.checkpoint is not None
    assert (tmp_path / "log").read_text() == "1 2 1 2 "


# --- why, in the journal -------------------------------------------------------------------------------------


def test_a_verdict_is_journaled_with_what_it_went_by(tmp_path: Path) -> None:
    run(tmp_path, "stop", "durable")
    told = [fact for fact in facts(tmp_path) if isinstance(fact, (ev.ResultReported, ev.TrialEnded))]
    assert [fact.reason for fact in told[:-2]] == [None] * (LAST - 1)
    why = Reason(ReasonKind.CRITERION, "DictStopper", LAST, "training_iteration", float(LAST), cut=float(LAST))
    assert [fact.reason for fact in told[-2:]] == [why, why]


def test_a_bare_decision_is_named_by_its_class(tmp_path: Path) -> None:
    class Stops(tune.schedulers.TrialScheduler):
        def on_trial_result(self, trial: Any, result: dict[str, Any]) -> Decision:
            return Decision.STOP if result["training_iteration"] == 2 else Decision.CONTINUE

    trial = run(tmp_path, "continue", "durable", scheduler=Stops()).trials[0]
    assert trial.end_reason == Reason(ReasonKind.DECIDED, "Stops", 2)


def test_a_pause_keeps_its_reason_over_a_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACE", str(tmp_path))
    monkeypatch.setenv("TUNE_ON_INTERRUPT", "return")
    trial = run(tmp_path, "pause", "durable", Ends("finished", "durable", halt=True)).trials[0]
    assert trial.told_reason == Reason(ReasonKind.WAITS, "Pauses", LAST, cut=7.0)
    assert run(tmp_path, "pause", "durable").trials[0].end_reason.kind is ReasonKind.DONE


# --- attempts that fail again and again ------------------------------------------------------------------------


def dies_on_the_way_out(config: dict[str, Any]) -> None:
    with open(config["log"], "a") as log:
        log.write("begun ")
    try:
        while True:
            tune.report({"x": 1}, checkpoint=tune.Checkpoint.from_dict({"x": bytes(20_000_000)}))
    finally:
        os.kill(os.getpid(), signal.SIGKILL)


def test_who_dies_before_the_last_save_is_there_is_not_started_hundreds_of_times(tmp_path: Path) -> None:
    """The attempts report what was told already, so each of them has a result: that is no progress."""
    analysis = tune.run(
        dies_on_the_way_out, config={"log": str(tmp_path / "log")}, storage_path=str(tmp_path), name="e", verbose=0,
        stop={"training_iteration": 1}, max_failures=-1, time_budget_s=2, raise_on_failed_trial=False,
    )  # fmt: skip
    assert (tmp_path / "log").read_text().count("begun") <= 4
    assert analysis.trials[0].iteration <= 1


def test_ctrl_c_ends_the_wait(tmp_path: Path) -> None:
    """A real clock: the run would go on for a minute."""

    class Interrupts(tune.Callback):
        def on_trial_recover(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            if trial.num_failures == 4:
                signal.setitimer(signal.ITIMER_REAL, 0.05)

    def fails(config: dict[str, Any]) -> None:
        raise RuntimeError("again")

    before = signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
    try:
        with pytest.raises(tune.Interrupted) as stopped:
            tune.run(
                fails, executor="inline", storage_path=str(tmp_path), name="e", max_failures=-1, verbose=0,
                callbacks=[Interrupts()],
            )  # fmt: skip
    finally:
        signal.signal(signal.SIGALRM, before)
    trials = stopped.value.analysis.trials
    assert [(trial.status, trial.num_failures) for trial in trials] == [("PENDING", 4)]


def test_a_trial_that_dies_because_the_directory_is_gone_is_no_failure_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def removes(config: dict[str, Any]) -> None:
        tune.report({"n": 1})
        shutil.rmtree(tmp_path / "e")
        raise ValueError("what comes of it")

    with pytest.raises(OwnedElsewhereError, match="e was removed or replaced"):
        tune.run(removes, name="e", storage_path=tmp_path, executor="inline", verbose=1)
    assert "what comes of it" not in capsys.readouterr().out
