"""Orders about a trial's life: it ends, pauses, goes on, saves or is tried again because a user says so.

Each is begun again from the beginning after a kill, so each is such that doing it twice has the effect of once.
"""

from __future__ import annotations

from tuner.driver.attempts import LiveAttempt, Phase
from tuner.driver.endings import Endings
from tuner.driver.parts import LoopParts
from tuner.error import OrderError
from tuner.experiment import events as ev
from tuner.experiment.outcome import outcome
from tuner.experiment.reason import Reason, ReasonKind
from tuner.experiment.trial import Trial
from tuner.experiment.trial_records import CheckpointRecord
from tuner.opening.trainable_code import edited_since
from tuner.orders.pins import Effect
from tuner.schedulers.base import Decision, Directive


class TrialOrders:
    """Begins what was ordered of a trial; each method returns what tells when it is there, and raises OrderError."""

    def __init__(self, parts: LoopParts, endings: Endings) -> None:
        self._parts, self._transitions = parts, endings.transitions
        self._state, self._facts, self._attempts = parts.state, parts.facts, parts.attempts
        self._waiting = parts.waiting
        self._began = parts.clock.time()

    def _check_unfinished(self, trial: Trial) -> None:
        if trial.is_finished():
            raise OrderError(f"{trial.name} has ended: {outcome(trial)}")

    def stop(self, trial: Trial) -> Effect:
        if trial.status == Trial.TERMINATED and trial.end_reason is not None:
            if trial.end_reason.kind is ReasonKind.ORDER:
                return lambda: (True, outcome(trial))  # by this order, in an earlier life
        self._check_unfinished(trial)
        why = Reason(ReasonKind.ORDER, "you")
        self._parts.plugins.directives.command(Directive(trial.trial_id, Decision.STOP, why))
        self._let_go(trial)
        self._transitions.carry_out_for(trial)
        return lambda: (True, outcome(trial)) if trial.is_finished() else None

    def stop_all(self) -> Effect:
        source = self._parts.plugins.source
        source.stopped = True
        if self._state.search_ended is None and source.num_samples >= 0:
            self._facts.add(ev.SearchEnded(source.num_samples))
        unfinished = [trial for trial in self._state.trials if not trial.is_finished()]
        for trial in unfinished:
            self.stop(trial)

        def is_there() -> tuple[bool, str] | None:
            while unfinished and unfinished[-1].is_finished():
                unfinished.pop()
            return None if unfinished else (True, f"{len(self._state.trials)} trials have ended")

        return is_there

    def pause(self, trial: Trial) -> Effect:
        self._check_unfinished(trial)
        if not trial.held:
            self._facts.add(ev.TrialHeld(trial.trial_id))
        if trial in self._waiting:
            self._waiting.remove(trial)

        def is_there() -> tuple[bool, str] | None:
            if trial.is_finished():
                unsaved = not trial.checkpoints and not self._parts.plan.spec.class_api
                had = "; it had no checkpoint to pause with" if unsaved else ""
                return False, f"it ended first: {outcome(trial)}{had}"
            if not trial.held:
                return False, "it was told to go before"
            return None if trial.trial_id in self._attempts.running else (True, f"at iteration {trial.iteration}")

        return is_there

    def go(self, trial: Trial, order_id: str) -> Effect:
        if not self._state.orders[order_id].begun:  # else an earlier life has done it
            self._check_unfinished(trial)
            if not trial.held:
                now = "waits for a slot already" if trial in self._waiting else f"is {outcome(trial)}"
                raise OrderError(f"{trial.name} was not told to pause: it {now}")
            self._let_go(trial, order_id)
            self._transitions.carry_out_for(trial)  # what the scheduler has decided meanwhile
        return lambda: (True, outcome(trial) if trial.is_finished() else self._next(trial))

    def _next(self, trial: Trial) -> str:
        """What comes after `go` or `retry`."""
        run = "trains on" if trial.trial_id in self._attempts.running else "waits for a slot, then goes on"
        return f"{run} from iteration {trial.iteration}"

    def _let_go(self, trial: Trial, order_id: str = "") -> None:
        """A trial that is held waits for room again, or trains on."""
        if not trial.held:
            return
        self._facts.add(ev.TrialHeld(trial.trial_id, held=False, order=order_id))
        run = self._attempts.running.get(trial.trial_id)
        if run is None:
            self._transitions.wait(trial)
        elif run.phase is Phase.PAUSE_DUE and run.why is not None and run.why.kind is ReasonKind.ORDER:
            run.why = None
            self._attempts.enter(run, Phase.TRAINING)

    def save(self, trial: Trial, *, pin: bool, after: int) -> Effect:
        """A trial that waits for a slot saves when it runs, unless all that it has come to is saved.

        Args:
            after: how many checkpoints the experiment had saved when this was ordered.
        """
        self._check_unfinished(trial)
        first, since = self._attempts.running.get(trial.trial_id), trial.iteration
        asked: LiveAttempt | None = None

        def is_new(record: CheckpointRecord) -> bool:
            in_flight = first is not None and record.ref.attempt == first.number and record.iteration <= since
            return record.number > after and not in_flight

        def is_there() -> tuple[bool, str] | None:
            nonlocal asked
            newest, run = trial.latest_checkpoint, self._attempts.running.get(trial.trial_id)
            if newest is not None and (is_new(newest) or (run is None and _is_all(newest, trial))):
                if pin and not newest.pinned:
                    self._facts.add(ev.CheckpointPinned(newest.ref))
                return True, newest.ref.name
            if run is None and (trial.is_finished() or trial.held):
                has = "it has no checkpoint" if newest is None else f"its newest checkpoint is {newest.ref.name}"
                return False, f"it does not run: {outcome(trial)}; {has}"
            if run is not None and run is not asked:
                asked, run.save_asked = run, True
            return None

        return is_there

    def retry(self, trial: Trial, order_id: str) -> Effect:
        if not self._state.orders[order_id].begun:  # else an earlier life has done it
            if trial.status != Trial.ERROR:
                raise OrderError(f"{trial.name} has not failed: {outcome(trial)}")
            self._facts.add(ev.TrialReopened(trial.trial_id, order=order_id))
            self._transitions.wait(trial)
        edited = edited_since(self._parts.plan.spec.trainable, self._began)
        old = f"; {edited} was edited since this driver began, which runs the code that it began with" if edited else ""
        return lambda: (True, self._next(trial) + old)


def _is_all(newest: CheckpointRecord, trial: Trial) -> bool:
    """Whether a trial that does not run has nothing that is not saved."""
    return newest.iteration == trial.iteration and trial.next_start is None
