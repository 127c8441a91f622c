"""What becomes of attempts and trials: they end, wait, or go on otherwise. Each step is a fact."""

from __future__ import annotations

import logging

from tuner.driver.attempts import LiveAttempt, Phase
from tuner.driver.fact_log import FULL_PATIENCE_S
from tuner.driver.parts import LoopParts, Timer
from tuner.experiment import events as ev
from tuner.experiment.reason import Reason, ReasonKind
from tuner.experiment.trial import Trial
from tuner.experiment.trial_records import CheckpointRecord
from tuner.schedulers.base import Decision, Exploit, Reallocate, Verdict

log = logging.getLogger(__name__)

MAX_BACK_OFF_S = 60.0
"""The longest that a trial waits which fails again and again without a new result."""


class Transitions:
    """Ends attempts and trials, lets trials wait, and carries out what the scheduler ordered for those that do."""

    def __init__(self, parts: LoopParts) -> None:
        self._parts = parts
        self._facts, self._checkpoints = parts.facts, parts.checkpoints
        self._attempts, self._waiting = parts.attempts, parts.waiting
        self._directives = parts.plugins.directives

    # --- ends -----------------------------------------------------------------------------------------------

    def end_attempt(self, run: LiveAttempt, why: ev.AttemptEnd, error: ev.ErrorInfo | None = None) -> None:
        """The attempt is over, and its trial waits."""
        trial = run.trial
        self._attempts.enter(run, Phase.ENDED)
        self._parts.interruptions.ended(run, why)
        self._facts.add(ev.AttemptEnded(trial.trial_id, run.number, why, error, self._parts.clock.time()))
        self._checkpoints.attempt_ended(trial)
        self.wait(trial)
        self.carry_out_for(trial)

    def wait(self, trial: Trial) -> None:
        """The trial waits for room, unless a user holds it."""
        if not trial.held:
            self._waiting.add(trial)

    def end_trial(self, trial: Trial, error: ev.ErrorInfo | None, reason: Reason | None = None) -> None:
        """The trial is over, and with it the attempt that it may have."""
        run = self._attempts.running.get(trial.trial_id)
        if run is not None:
            self._attempts.enter(run, Phase.ENDED)
            self._parts.interruptions.ended(run, "" if error is None else "failed")
        status: ev.TrialEnd = "TERMINATED" if error is None else "ERROR"
        at = self._parts.clock.time()
        self._facts.add(ev.TrialEnded(trial.trial_id, status, at, error, reason or why_ended(trial, error)))
        self._facts.touch([trial])
        self._checkpoints.attempt_ended(trial)
        self._checkpoints.forget(trial)
        self.feed()

    # --- trials that wait for more than room ----------------------------------------------------------------------

    def starve(self, run: LiveAttempt, error: ev.ErrorInfo) -> None:
        """Let a trial wait that failed for want of space: again at once it would fail again."""
        log.warning("%s waits until something is deleted: %s", run.trial.name, error.message)
        if run.trial in self._waiting:
            self._waiting.remove(run.trial)
        run.error = error
        self._attempts.enter(run, Phase.STARVED)
        self._parts.timers[Timer.STARVED] = self._parts.clock.monotonic() + FULL_PATIENCE_S

    def feed(self) -> None:
        """Something was freed: who failed for want of space may try again."""
        for run in list(self._attempts.starved.values()):
            self._attempts.enter(run, Phase.ENDED)
            self.wait(run.trial)

    def back_off(self, run: LiveAttempt) -> None:
        """Let a trial that failed again wait, without a slot: not at all the first time, then longer and longer."""
        times = run.trial.failures_in_row
        if times < 2:
            return
        wait = min(2.0 ** min(times - 2, 10), MAX_BACK_OFF_S)
        log.warning(
            "%s failed %d times in a row without a new result; it is tried again in %g s", run.trial.name, times, wait
        )
        if run.trial.held:
            return
        self._waiting.remove(run.trial)
        run.again_at = self._parts.clock.monotonic() + wait
        self._attempts.enter(run, Phase.BACKING_OFF)

    def try_again(self, now: float) -> None:
        """Those whose time has come wait for room again."""
        for run in list(self._attempts.backing_off.values()):
            if run.again_at <= now:
                self._attempts.enter(run, Phase.ENDED)
                self.wait(run.trial)
                self.carry_out_for(run.trial)

    # --- what the scheduler ordered -----------------------------------------------------------------------------

    def donated(self, exploit: Exploit) -> CheckpointRecord | None:
        """The checkpoint that a clone would start from: where the donor would; None: it has none, or is none."""
        donor = self._parts.state.trials.get(exploit.donor)
        return None if donor is None else self._checkpoints.best_start(donor)

    def redirect(self, trial: Trial, verdict: Verdict, reason: Reason | None) -> None:
        """Write down how a trial that pauses goes on, where that is not from its own checkpoint as it was."""
        if isinstance(verdict, Exploit):
            record = self.donated(verdict)
            if record is not None:
                config = self._parts.plugins.source.tagged(verdict.config)
                self._facts.add(ev.Exploited(trial.trial_id, record.ref, config, trial.iteration, reason))
                self._checkpoints.given_back(trial)
        elif isinstance(verdict, Reallocate):
            self.reallocate(trial, self._directives.granted(trial, verdict))

    def reallocate(self, trial: Trial, resources: dict[str, float]) -> None:
        """The trial gets other resources from its next attempt on."""
        self._facts.add(ev.Reallocated(trial.trial_id, resources))
        self._waiting.alike = False

    def carry_out(self) -> None:
        """Do what the scheduler has ordered for trials that wait; of those that still run, once they do."""
        while self._directives.news:
            self._directives.news = False
            self.carry_out_noted()

    def carry_out_noted(self) -> None:
        for trial_id in list(self._directives.noted):
            self.carry_out_for(self._parts.state.trial(trial_id))

    def carry_out_for(self, trial: Trial) -> None:
        noted = self._directives.noted
        if trial.is_finished():
            noted.pop(trial.trial_id, None)
        elif trial in self._waiting and trial.trial_id in noted:
            directive = noted[trial.trial_id]
            if directive.what is Decision.STOP and trial.is_behind:
                return  # first to the result on which that was decided, and its checkpoint
            del noted[trial.trial_id]
            reason = self._directives.why(directive, trial.iteration)
            if directive.what is Decision.STOP:
                self._waiting.remove(trial)
                self.end_trial(trial, None, reason)  # which may be the cause of further directives
            else:
                self.redirect(trial, directive.what, reason)


def why_ended(trial: Trial, error: ev.ErrorInfo | None) -> Reason:
    """Why a trial is over that nothing else is said of."""
    if error is not None:
        return Reason(ReasonKind.ERROR, error.type, trial.iteration)
    if trial.told_then == "stop" and trial.told_reason is not None:
        return trial.told_reason
    return Reason(ReasonKind.DONE, trial.trainable_name, trial.iteration)
