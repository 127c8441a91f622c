"""Orders about a trial's life: it ends, pauses, goes on, saves or is tried again because a user says so.

Each is begun again from the beginning after a kill, so each is such that doing it twice has the effect of once.
"""

from __future__ import annotations

from tuner.driver.attempts import LiveAttempt, Phase
from tuner.driver.endings import Endings
from tuner.driver.parts import LoopParts
from tuner.driver.pins import Effect
from tuner.error import OrderError
from tuner.experiment import events as ev
from tuner.experiment.outcome import outcome
from tuner.experiment.reason import Reason, ReasonKind
from tuner.experiment.trial import Trial
from tuner.opening.trainable_code import edited_since
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
                saved = "" if trial.checkpoints else "; it had no checkpoint to pause with"
                return False, f"it ended first: {outcome(trial)}{saved}"
            if not trial.held:
                return False, "it was told to go before"
            return None if trial.trial_id in self._attempts.running else (True, f"at iteration {trial.iteration}")

        return is_there

    def go(self, trial: Trial) -> Effect:
        self._check_unfinished(trial)
        if not trial.held:
            raise OrderError(f"{trial.name} was not told to pause: it is {outcome(trial)}")
        self._let_go(trial)
        return lambda: (True, self._next(trial))

    def _next(self, trial: Trial) -> str:
        """What comes after `go` or `retry`."""
        run = "trains on" if trial.trial_id in self._attempts.running else "waits for a slot, then goes on"
        return f"{run} from iteration {trial.iteration}"

    def _let_go(self, trial: Trial) -> None:
        """A trial that is held waits for room again, or trains on."""
        if not trial.held:
            return
        self._facts.add(ev.TrialHeld(trial.trial_id, held=False))
        run = self._attempts.running.get(trial.trial_id)
        if run is None:
            self._transitions.wait(trial)
        elif run.phase is Phase.PAUSE_DUE and run.why is not None and run.why.kind is ReasonKind.ORDER:
            run.why = None
            self._attempts.enter(run, Phase.TRAINING)

    def save(self, trial: Trial, *, pin: bool) -> Effect:
        self._check_unfinished(trial)
        run = self._run_of(trial)
        run.save_asked = True
        since = trial.iteration

        def is_there() -> tuple[bool, str] | None:
            newest = trial.latest_checkpoint
            if newest is not None and newest.iteration > since:
                if pin:
                    self._facts.add(ev.CheckpointPinned(newest.ref))
                return True, newest.ref.name
            if self._attempts.running.get(trial.trial_id) is not run:
                return False, f"it does not run any more: {outcome(trial)}"
            return None

        return is_there

    def _run_of(self, trial: Trial) -> LiveAttempt:
        run = self._attempts.running.get(trial.trial_id)
        if run is None:
            newest = trial.latest_checkpoint
            has = "it has no checkpoint" if newest is None else f"its newest checkpoint is {newest.ref.name}"
            raise OrderError(f"{trial.name} does not run; {has}")
        return run

    def retry(self, trial: Trial) -> Effect:
        if trial.status == Trial.TERMINATED:
            raise OrderError(f"{trial.name} has not failed: {outcome(trial)}")
        if trial.status == Trial.ERROR:
            self._facts.add(ev.TrialReopened(trial.trial_id))
            self._transitions.wait(trial)
        edited = edited_since(self._parts.plan.spec.trainable, self._began)
        old = f"; {edited} was edited since this driver began, which runs the code that it began with" if edited else ""
        return lambda: (True, self._next(trial) + old)
