"""One way in which a fact reaches state and plug-ins: of the loop, of a resume that replays a journal, and of tests."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from trainables import tagged
from trainables.quick_dataclass import dataclass
from tuner.driver.plugins.calling import call
from tuner.driver.plugins.plugin_set import PluginSet
from tuner.experiment import events as ev
from tuner.experiment.forks import result_at, result_before
from tuner.experiment.reason import Reason, ReasonKind
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial
from tuner.schedulers.base import Decision, Exploit, Reallocate, Verdict

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Heard:
    """A result that the plug-ins were told of, and what they decided."""

    trial: Trial
    iteration: int
    result: dict[str, Any]
    """As callbacks have changed it."""
    verdict: Verdict
    reason: Reason | None
    """Why, if that is not to go on."""
    done: bool
    """The trial, or a callback, says that it is over."""
    changed: bool
    """A callback has changed the result."""


class FactApplier:
    """Adds facts to the state and tells the plug-ins of them.

    While it replays, the same calls are made in the same order, but for callbacks: only those that keep a state hear
    of it, at once that an attempt was started, and nothing of checkpoints' contents, which may be gone by now.
    """

    def __init__(self, state: ExperimentState, plugins: PluginSet) -> None:
        self.state, self.plugins = state, plugins
        plugins.join(state.trials)
        self.turn = 0
        """Of the loop, as callbacks are told it."""
        self._replaying = False
        self._differed = False

    def apply(self, fact: ev.AnyFact) -> None:
        """Add a fact to the state and tell everybody of it; the scheduler's directives are collected then."""
        handler = _HANDLERS.get(type(fact))
        if handler is None:
            self.state.apply(fact)
        else:
            handler(self, fact)
            self._collect()
        self.plugins.directives.done(fact)

    def _collect(self) -> None:
        """Take what the scheduler has ordered; a directive for a trial that is over is none."""
        if not self.plugins.directives.collect():
            return
        noted = self.plugins.directives.noted
        for trial in [self.state.trials.get(trial_id) for trial_id in noted]:
            if trial is not None and trial.is_finished():
                del noted[trial.trial_id]

    def replay(self, facts: Iterable[ev.AnyFact]) -> None:
        """Apply the facts after a snapshot: the plug-ins are told what they were told then, and the journal's answers
        stand where theirs would be others now.
        """
        everybody, self.plugins.callbacks = self.plugins.callbacks, self.plugins.callbacks.stateful()
        self._replaying, self.plugins.required.live = True, False
        try:
            for fact in facts:
                self.apply(fact)
        finally:
            self._replaying, self.plugins.callbacks, self.plugins.required.live = False, everybody, True
        stopper = self.plugins.stopper
        self.plugins.source.stopped = stopper is not None and stopper.stop_all()

    # --- results ------------------------------------------------------------------------------------------

    def hear(self, trial: Trial, result: dict[str, Any], iteration: int) -> Heard:
        """Show a result to callbacks that may change it, tell the plug-ins, and have them decide."""
        by_itself = result.get("done")
        changed = self.plugins.callbacks.on_trial_result(self.turn, self.state.trials, trial, result)
        done = bool(result.get("done"))
        verdict, reason = self.plugins.decide(trial, result, iteration, iteration <= trial.told)
        if done and not by_itself:
            reason = Reason(ReasonKind.DONE, "a callback", iteration)
        return Heard(trial, iteration, result, verdict, reason, done, changed)

    def keep(self, heard: Heard, fact: ev.ResultReported, journal: Callable[[ev.ResultReported], object]) -> None:
        """Show a result that was decided on to callbacks that read it, and make it a fact."""
        trial = heard.trial
        self.plugins.callbacks.after_trial_result(self.turn, self.state.trials, trial, heard.result)
        journal(fact)
        self.state.add_result(trial, fact, heard.result)
        if heard.verdict is not Decision.CONTINUE:
            self._note(heard, fact)
        self._collect()

    def _note(self, heard: Heard, fact: ev.ResultReported) -> None:
        """Hold how a trial is to go on once it has paused, until a fact of its own says that it was done."""
        verdict = heard.verdict
        if isinstance(verdict, Reallocate) or (isinstance(verdict, Exploit) and fact.then == "pause"):
            self.plugins.directives.note(heard.trial, verdict, heard.reason)

    def _reported(self, fact: ev.ResultReported) -> None:
        trial = self.state.trial(fact.trial)
        result: dict[str, Any] = tagged.loads(bytes(fact.metrics))
        ended = fact.then == "stop" and not fact.done  # by one of those who are told of it now
        heard = self.hear(trial, {**result, "done": False} if ended else dict(result), fact.iteration)
        heard.result = result  # the journal's stands
        self.keep(heard, fact, lambda fact: None)

    # --- trials -------------------------------------------------------------------------------------------

    def _created(self, fact: ev.TrialCreated) -> None:
        self.state.apply(fact)
        trial = self.state.trials[-1]
        if self._replaying and not trial.order:
            same = self.plugins.searcher.replay_suggest(trial.trial_id, trial.config)
            if not same and not self._differed:
                self._differed = True
                log.warning("the searcher would now suggest another config for %s; the journal's stands", trial.name)
        call(self.plugins.scheduler, "on_trial_add", trial)
        if fact.fork is not None:
            self.plugins.on_fork(trial, result_before(self.state.trials, trial))
        if trial.order and self.state.search_ended is not None:
            call(self.plugins.scheduler, "on_search_end")  # no more come after it either
        if self._replaying:
            trial.release()

    def _started(self, fact: ev.AttemptStarted) -> None:
        trial = self.state.trial(fact.trial)
        begins_at = result_at(self.state.trials, fact.checkpoint)
        self.plugins.on_trial_start(trial, begins_at, reused=fact.reused is not None)
        self.state.apply(fact)
        if self._replaying:
            self.launched(trial, restored=False)

    def launched(self, trial: Trial, *, restored: bool) -> None:
        """The attempt of which the newest `AttemptStarted` speaks has a process; callbacks hear of it then."""
        if restored:
            self.plugins.callbacks.on_trial_restore(self.turn, self.state.trials, trial)
        self.plugins.callbacks.on_trial_start(self.turn, self.state.trials, trial)

    def _rolled_back(self, fact: ev.RolledBack) -> None:
        self.state.apply(fact)
        trial = self.state.trial(fact.trial)
        self.plugins.on_rollback(trial, fact.iteration)
        self.plugins.callbacks.on_rollback(trial, fact.iteration)

    def _published(self, fact: ev.CheckpointPublished) -> None:
        self.state.apply(fact)
        trial = self.state.trial(fact.ref.trial_id)
        if not self._replaying:
            checkpoint = trial.open_checkpoint(trial.checkpoints[-1])
            self.plugins.callbacks.on_checkpoint(self.turn, self.state.trials, trial, checkpoint)
        self.plugins.callbacks.on_trial_save(self.turn, self.state.trials, trial)
        call(self.plugins.scheduler, "on_checkpoint", trial, fact.ref.iteration)

    def found(self, fact: ev.AnyFact) -> None:
        """A resume found a fact that nobody had written down, and the state has it already; searcher and scheduler
        hear of it. Callbacks do once they are set up.
        """
        if isinstance(fact, ev.CheckpointPublished):
            call(self.plugins.scheduler, "on_checkpoint", self.state.trial(fact.ref.trial_id), fact.ref.iteration)
        elif isinstance(fact, ev.TrialEnded):
            trial = self.state.trial(fact.trial)
            self.plugins.on_trial_end(trial, trial.last_result, failed=False)
        self._collect()

    def _exploited(self, fact: ev.Exploited) -> None:
        self.state.apply(fact)
        self.plugins.on_clone(self.state.trial(fact.trial))
        self.plugins.callbacks.on_trial_clone(self.turn, self.state.trials, self.state.trial(fact.trial))

    def _attempt_ended(self, fact: ev.AttemptEnded) -> None:
        self.state.apply(fact)
        trial = self.state.trial(fact.trial)
        if fact.why == "paused" and not trial.is_paused_by_order:
            self.plugins.on_pause(trial)

    def _ended(self, fact: ev.TrialEnded) -> None:
        trial, failed = self.state.trial(fact.trial), fact.status == "ERROR"
        last = trial.last_result
        self.state.apply(fact)
        self.plugins.on_trial_end(trial, last, failed=failed)
        callbacks = self.plugins.callbacks
        (callbacks.on_trial_error if failed else callbacks.on_trial_complete)(self.turn, self.state.trials, trial)

    # --- the search ---------------------------------------------------------------------------------------

    def _search_ended(self, fact: ev.SearchEnded) -> None:
        self.state.apply(fact)
        self.plugins.on_search_end()

    def _idle(self, fact: ev.Idle) -> None:
        self.state.apply(fact)
        for trial in self.state.held.values():
            call(self.plugins.scheduler, "on_trial_held", trial)
        call(self.plugins.scheduler, "on_idle")


_HANDLERS: dict[type, Callable[[FactApplier, Any], None]] = {
    ev.TrialCreated: FactApplier._created,
    ev.AttemptStarted: FactApplier._started,
    ev.ResultReported: FactApplier._reported,
    ev.CheckpointPublished: FactApplier._published,
    ev.RolledBack: FactApplier._rolled_back,
    ev.Exploited: FactApplier._exploited,
    ev.AttemptEnded: FactApplier._attempt_ended,
    ev.TrialEnded: FactApplier._ended,
    ev.SearchEnded: FactApplier._search_ended,
    ev.Idle: FactApplier._idle,
}
