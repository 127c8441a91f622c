"""Why and how attempts and runs end: what an exit means, whether a trial tries again, and what halts everything."""

from __future__ import annotations

import logging
import math
import signal
from collections.abc import Callable
from enum import Enum

import msgspec

from trainables import wire
from tuner.driver.attempts import LiveAttempt, Phase
from tuner.driver.deaths import death_of
from tuner.driver.missing_results import MissingResults, runs_anew
from tuner.driver.parts import LoopParts, Timer
from tuner.driver.transitions import Transitions
from tuner.error import TrialTimeoutError
from tuner.executors.base import Exited
from tuner.experiment import events as ev
from tuner.experiment.reason import Reason, ReasonKind
from tuner.experiment.trial import Trial

log = logging.getLogger(__name__)

MAX_LOST = 10
"""Attempts in a row that may be lost to the engine (keeper or fork server gone) before a trial is given up."""


class HaltCause(Enum):
    """What ends a run early. Trials save if they can; all that have not ended are left unfinished, for a resume."""

    INTERRUPTED = "interrupted"
    """Ctrl-C."""
    PREEMPTED = "preempted"
    """SIGTERM, SIGUSR1, or a callback has seen that the machine goes: trials have the grace time to save."""
    HUNG_UP = "hung_up"
    """SIGHUP: the terminal or the ssh connection is gone. Trials have the grace time to save."""
    BUDGET = "budget"
    """`time_budget_s` is spent."""
    FAIL_FAST = "fail_fast"
    """A trial failed, and `fail_fast` says that this is enough."""
    DESERTED = "deserted"
    """The last caller of a session has closed it, or died."""

    @property
    def exit_status(self) -> int | None:
        """Exit status of a script whose run a notice ended, 128 and the signal's number as in a shell; else None."""
        return {HaltCause.PREEMPTED: 128 + signal.SIGTERM, HaltCause.HUNG_UP: 128 + signal.SIGHUP}.get(self)


class Endings:
    """Decides what becomes of a trial when its attempt ends, and of all when the run is halted."""

    def __init__(self, parts: LoopParts) -> None:
        self.transitions = Transitions(parts)
        self.missing = MissingResults(parts)
        self.asked: HaltCause | None = None
        """What a signal handler wants; it is done at the next turn of the loop."""
        self.halted: HaltCause | None = None
        self.late_notice = False
        """A notice came after the loop had ended: the last copies have the grace time, and the run ends as it would."""
        self.failure: tuple[str, ev.ErrorInfo] | None = None
        """The trial whose failure ended everything (`fail_fast`), and why it failed."""
        self.on_halt: Callable[[HaltCause, float], None] = lambda why, grace: None
        """Told when that begins, and how many seconds trials have."""
        self._is_told = False
        self._copies_until = math.inf
        self.exceptions: dict[str, bytes] = {}
        """What trials raised, pickled."""
        self._parts, self._plan, self._checkpoints = parts, parts.plan, parts.checkpoints

    # --- the run ------------------------------------------------------------------------------------------------

    def halt(self, why: HaltCause) -> None:
        """End the experiment early: every trial may save, then all is left unfinished. Safe to call again."""
        if self.halted is not None:
            return
        self.halted = why
        self.transitions.try_again(math.inf)  # they wait for the resume now
        self._parts.timers[Timer.GRACE] = self._parts.clock.monotonic() + self._grace(why)
        for run in list(self._parts.attempts.running.values()):
            if run.trial.trial_id not in self._parts.attempts.prepared:
                self._parts.executor.tell(run.trial.trial_id, wire.Halt())
        self._tell(why)

    def ask(self, why: HaltCause) -> None:
        """`halt` at the next turn of the loop; for signal handlers."""
        if self.asked is None:
            self.asked = why
            if self._parts.executor.is_in_users_code:  # that turn may be far, and nothing of the loop is under way
                self._tell(why)

    def _tell(self, why: HaltCause) -> None:
        if not self._is_told:
            self._is_told = True
            self.on_halt(why, self._grace(why))

    def _grace(self, why: HaltCause) -> float:
        return self._plan.grace_s if why.exit_status is not None else self._plan.stop_grace_s

    @property
    def halting(self) -> bool:
        """Whether the run is halted, or about to be."""
        return self.asked is not None or self.halted is not None

    def is_out_of_time(self) -> bool:
        """Return True once the grace time of the last copies is over: it begins with the first call after a notice."""
        now = self._parts.clock.monotonic()
        if self.late_notice or (self.halted is not None and self.halted.exit_status is not None):
            self._copies_until = min(self._copies_until, now + self._plan.grace_s)
        return now >= self._copies_until

    def is_halted(self) -> bool:
        """Whether nothing begins any more; what a signal handler asked for is done first."""
        if self.asked is not None:
            self.halt(self.asked)
        return self.halted is not None

    def end_grace(self) -> None:
        """A run that is halted waits no longer for its trials."""
        for run in list(self._parts.attempts.running.values()):
            if run.trial.trial_id in self._parts.attempts.prepared:
                self.transitions.end_attempt(run, "halted")  # what it is to start from may never come
            else:
                self._parts.executor.kill(run.trial.trial_id)

    def end_starved(self) -> None:
        """Nothing runs: trials that wait for space fail, but not in a run that is halted."""
        starved = list(self._parts.attempts.starved.values())
        for run in starved:
            self._parts.attempts.enter(run, Phase.ENDED)
        for run in starved if self.halted is None else ():
            self.transitions.end_trial(run.trial, run.error)

    # --- an attempt ---------------------------------------------------------------------------------------------

    def on_exit(self, run: LiveAttempt, event: Exited) -> None:
        """The process of an attempt is gone: its trial ends, waits, or tries again."""
        error = self._error_of(run, event)
        if error is not None:
            self._parts.check_owner()  # that its directory is gone is the reason then, and not what it died of
        if run.phase is Phase.STOPPED:
            self._end_stopped(run, event, error)
        elif error is not None:
            self.failed(run, error)
        elif event.reason == "timeout":
            text = f"ran longer than trial_timeout_s={self._plan.spec.trial_timeout_s} and was ended (TIMEOUT)"
            reason = Reason(ReasonKind.TIMEOUT, TrialTimeoutError.__name__, run.trial.iteration)
            self.transitions.end_trial(run.trial, ev.ErrorInfo(TrialTimeoutError.__name__, text), reason)
        elif isinstance(run.said, wire.Finished):
            self._end_finished(run)
        else:
            self.transitions.end_attempt(run, self._unfinished_by(run, event))

    def _error_of(self, run: LiveAttempt, event: Exited) -> ev.ErrorInfo | None:
        """Why an attempt failed, or None: it did not, whatever it was."""
        said = run.said
        if event.reason == "timeout" or isinstance(said, (wire.Finished, wire.Preempted)):
            return None
        if isinstance(said, wire.AttemptErrored):
            return ev.ErrorInfo(said.type, said.message, said.traceback, said.disk)
        if self.halted is not None or event.reason == "unusable":
            return None
        if event.reason == "lost" and run.trial.num_lost < MAX_LOST:
            return None
        names = self._plan.spec.log_files if self._parts.executor.directories else ()
        return death_of(event, [run.trial.directory / name for name in names])

    def _unfinished_by(self, run: LiveAttempt, event: Exited) -> ev.AttemptEnd:
        """How an attempt ended that neither failed nor finished."""
        if self.halted is not None:
            return "halted"
        if isinstance(run.said, wire.Preempted):
            return "preempted"
        if event.reason == "unusable":
            self._set_start_aside(run)
        return "lost"

    def _end_finished(self, run: LiveAttempt) -> None:
        """The trainable has ended by itself, or pauses."""
        trial = run.trial
        if run.phase is not Phase.PAUSED:
            if trial.save_due:
                self.failed(run, _save_lost(trial))
            else:
                self._end_well(trial)
        elif self.halted is None and (error := self._unsaved(trial)) is not None:
            self.failed(run, error)
        else:
            self.transitions.end_attempt(run, "halted" if self.halted else "paused")

    def _end_well(self, trial: Trial) -> None:
        """The trial ends. Raises MetricMissingError where the run ends, as no trial has reported what is needed."""
        anew = runs_anew(trial)
        if self.halted is None and anew:
            self.missing.check(trial)  # before the fact: a resume runs it with what was mended
        self.transitions.end_trial(trial, None)
        if self.halted is None and not anew:
            self.missing.check(trial)

    def _end_stopped(self, run: LiveAttempt, event: Exited, error: ev.ErrorInfo | None) -> None:
        """A trial that was told to stop is gone, in whatever way: it has ended, unless its last save is missing."""
        trial = run.trial
        if not trial.save_due:
            if error is not None or event.reason == "timeout":
                problem = "it was ended after trial_timeout_s" if error is None else f"{error.type}: {error.message}"
                log.warning("%s had been told to stop and has ended; then: %s", trial.name, problem)
            self._end_well(trial)
        elif error is not None:
            self.failed(run, error)
        elif event.reason == "timeout" or isinstance(run.said, wire.Finished):
            self.failed(run, _save_lost(trial))
        else:  # from its newest checkpoint, and no further than it had come
            self.transitions.end_attempt(run, self._unfinished_by(run, event))

    def _unsaved(self, trial: Trial) -> ev.ErrorInfo | None:
        """Why a trial that pauses failed: its saves do, each in an attempt of its own, and it comes no further."""
        failures = trial.save_failures
        if trial.next_start is not None or failures < max(self._plan.max_publish_failures, 1):
            return None  # with `next_start` it goes on from a donor's
        text = f"{failures} checkpoints in a row were not saved; the last one: {trial.save_error}"
        return ev.ErrorInfo("PublishError", text, disk=True)

    def _set_start_aside(self, run: LiveAttempt) -> None:
        """Its host found the checkpoint damaged that it was to start from: the next attempt gets an older one."""
        ref = run.trial.started_from
        kept = [] if ref is None else self._parts.state.trial(ref.trial_id).checkpoints
        for record in [record for record in kept if record.ref == ref]:
            log.warning("%s: checkpoint %s cannot be used and is set aside", run.trial.name, record.ref.name)
            self._checkpoints.set_aside(record, "the host that was to use it could not")

    def failed(self, run: LiveAttempt, error: ev.ErrorInfo, *, again: bool = True) -> None:
        """An attempt failed: the trial begins another one if `again` and the settings allow it, or ends."""
        trial, config = run.trial, self._plan.spec.failure_config
        said = run.said if isinstance(run.said, wire.AttemptErrored) else None
        may_retry = said is None or said.retry
        if said is not None and said.pickled:
            self.exceptions[trial.trial_id] = said.pickled
        retry = again and may_retry and (config.max_failures < 0 or trial.num_failures < config.max_failures)
        if config.max_failures and self.halted is None:
            tries = trial.num_failures + 1
            of = max(config.max_failures + 1, tries) if config.max_failures > 0 else 0
            error = msgspec.structs.replace(error, tries=tries, of=of)
        if self.halted is not None:
            self.transitions.end_attempt(run, "halted", error)
        elif retry and not config.fail_fast:
            self._retry(run, error)
        else:
            if trial.told_then == "stop" and trial.save_due and run.phase is not Phase.REFUSED:
                error = msgspec.structs.replace(error, disk=True)  # whatever the error: any resume saves that again
            self.transitions.end_trial(trial, error)
            if config.fail_fast and may_retry:
                self.failure = (trial.trial_id, error)
                self.halt(HaltCause.FAIL_FAST)

    def _retry(self, run: LiveAttempt, error: ev.ErrorInfo) -> None:
        self.transitions.end_attempt(run, "failed", error)
        if run.trial.is_finished():
            return  # the scheduler had ordered it to stop
        if error.disk:
            self.transitions.starve(run, error)
        else:
            self.transitions.back_off(run)
        applier = self._parts.facts.applier
        self._parts.plugins.callbacks.on_trial_recover(applier.turn, self._parts.state.trials, run.trial)


def _save_lost(trial: Trial) -> ev.ErrorInfo:
    """Why a trial whose last save is missing has not ended well."""
    why = trial.save_error or "its process ended before that"
    text = f"the last checkpoint that was to be saved, of iteration {trial.save_due}, is not on the disk: {why}"
    return ev.ErrorInfo("PublishError", text, disk=True)
