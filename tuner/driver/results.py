"""What a result means: plug-ins see it and decide, the trial is answered, and both become a fact; then saves.

The four steps of a result are those of `ResultHandler.on_report`.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import msgspec

from trainables import tagged, wire
from trainables.checkpoint_config import AUTO
from tuner.driver.attempts import LiveAttempt, Phase
from tuner.driver.endings import Endings
from tuner.driver.parts import LoopParts
from tuner.driver.plugins import Heard
from tuner.experiment import events as ev
from tuner.experiment.reason import Reason, ReasonKind
from tuner.experiment.resume import raw
from tuner.schedulers.base import Decision, Exploit, Reallocate

log = logging.getLogger(__name__)

# Looked up once: an attribute of an Enum costs as much as a call, and these are wanted with every result.
_TOLD = {"stop": Phase.STOPPED, "pause": Phase.PAUSED, "continue": Phase.TRAINING}
_PAUSING = (Phase.PAUSE_DUE, Phase.PAUSED)
_GO_ON = wire.Answer()


class ResultHandler:
    """Handles what trials say while they run."""

    def __init__(self, parts: LoopParts, endings: Endings) -> None:
        self._parts, self._endings, self._transitions = parts, endings, endings.transitions
        self._facts, self._checkpoints = parts.facts, parts.checkpoints
        self._attempts, self._copies, self._executor = parts.attempts, parts.copies, parts.executor
        spec = parts.plan.spec
        self._class_api, self._can_save, self._config = spec.class_api, spec.can_save, spec.checkpoint_config
        # A save that the budget refuses is to be refused by its own answer.
        self._can_go_ahead = parts.executor.answers_ahead and not spec.class_api and spec.checkpoint_budget is None
        self.unanswered: dict[str, tuple[LiveAttempt, wire.Answer, bool]] = {}
        """Trials that wait for their answer: while the disk is full, or (True) until the replica has caught up."""

    def on_message(self, run: LiveAttempt, body: wire.FromTrial) -> None:
        """Something that a trial said."""
        if run.phase is Phase.REFUSED:
            return
        if isinstance(body, wire.Report):
            self.on_report(run, body)
        elif isinstance(body, wire.SavePublished):
            latest = run.trial.latest_checkpoint
            if latest is None or latest.order != body.ref.order:  # else said once more, to a driver's next life
                self.on_published(run, body)
        elif isinstance(body, wire.SaveFailed):
            lost = (run.trial.name, body.ref.name, body.error)
            log.warning("%s: checkpoint %s was not saved: %s", *lost, extra={"each": True})
            self._checkpoints.not_saved(run.trial, body)
        elif isinstance(body, wire.SaveBehind):
            run.behind.add(body.ref)
            self._facts.when_durable(partial(self._allow, run, body.ref.iteration))
        elif isinstance(body, wire.SaveUploaded):
            self._copies.uploaded(run.trial, body)
        elif isinstance(body, wire.CheckpointOpened):
            self._checkpoints.in_use.opened(run, body.ref)
        elif isinstance(body, wire.CheckpointClosed):
            self._checkpoints.closed(run, body.ref)
        elif not isinstance(body, wire.Listening | wire.Reusable):  # those are for an executor
            run.said = body

    # --- a result -----------------------------------------------------------------------------------------------

    def on_report(self, run: LiveAttempt, report: wire.Report) -> None:
        """Plug-ins decide, the trial is answered, the fact is journaled, and what was ordered is carried out."""
        trial = run.trial
        if run.decided is not None:
            if report.waits:  # it did not know yet
                self._executor.tell(trial.trial_id, run.decided)
            return
        heard = self._facts.applier.hear(trial, tagged.loads(bytes(report.metrics)), report.iteration)
        if report.save_s:
            self._parts.interruptions.measured(report.save_s)
        refusal = None if report.saving is None else self._admit(run, report.saving, heard.result)
        saves = report.saving is not None and refusal is None
        then, reason = self._then(run, heard, saves)
        if run.reuses:
            saves = saves or bool(then == "stop" and self._class_api and self._config.checkpoint_at_end)
        elif report.saving is None and self._class_api:
            saves = self._class_saves(heard, then, due=report.save_due) or (run.save_asked and self._can_save)
            if self._endings.halted is not None and then == "continue" and saves:
                then, reason = "pause", None  # a function decides itself: it may look at should_stop()
        if then == "stop":
            heard.result["done"] = heard.changed = True
        pausing = run.phase in _PAUSING
        answer = wire.Answer(
            then=then,
            save=saves and report.saving is None,
            should_checkpoint=bool(heard.result.get("should_checkpoint"))
            or pausing
            or run.save_asked
            or heard.verdict is Decision.SAVE,
            should_stop=self._endings.halted is not None,
            budget_error=refusal,
        )
        if self._can_go_ahead and report.waits and answer == _GO_ON and not self._copies.behind(trial):
            answer = wire.Answer(free_until=self._parts.plugins.free_until(trial, report.iteration))
        phase = Phase.PAUSE_DUE if pausing and then == "continue" else _TOLD[then]
        if phase is not run.phase:
            self._attempts.enter(run, phase)
        if not report.waits:
            self._correct(run, report.iteration, answer, saves)
        elif not run.reuses:
            self._reply(run, answer, saves)  # the trial goes on while its result is written down
        metrics = raw(heard.result) if heard.changed else report.metrics
        fact = ev.ResultReported(trial.trial_id, run.number, report.iteration, metrics, then, saves, heard.done, reason)
        seq = self._facts.add_result(heard, fact)
        if then == "pause":
            self._transitions.redirect(trial, heard.verdict, reason)
        if saves and not run.reuses:
            run.save_asked = False
            self._facts.when_durable(partial(self._allow, run, report.iteration), seq)
        self._transitions.carry_out()

    def _admit(self, run: LiveAttempt, saving: wire.PendingSave, result: dict[str, Any]) -> str | None:
        """Why the save that came with a result does not fit into the budget; None: it does."""
        refusal = self._checkpoints.refusal(run, saving.bytes, result)
        if refusal is None and saving.uploading:
            self._copies.uploading(run.trial, saving.ref)
        return refusal

    def _then(self, run: LiveAttempt, heard: Heard, saves: bool) -> tuple[ev.Then, Reason | None]:
        """What the trial is told, and why. Nobody pauses without a checkpoint: a function runs on to its next save."""
        trial, verdict, reason = run.trial, heard.verdict, heard.reason
        directives = self._parts.plugins.directives
        ordered = directives.noted.get(trial.trial_id)
        if heard.iteration < trial.told or (heard.iteration == trial.told and trial.told_then == "pause"):
            ordered = None  # it trains up to where it was told already: what was ordered since then comes after that
        if ordered is not None and reason is None:
            reason = directives.why(ordered, heard.iteration)
        if verdict is Decision.STOP or (ordered is not None and ordered.what is Decision.STOP):
            return "stop", reason
        if isinstance(verdict, Exploit):
            return ("pause", reason) if self._transitions.donated(verdict) is not None else ("continue", None)
        pausing = run.phase in _PAUSING
        wanted = verdict is Decision.PAUSE or isinstance(verdict, Reallocate)
        if ordered is not None or wanted or trial.held or run.reallocates:
            if run.why is None or run.why.kind is ReasonKind.ORDER:
                run.why = reason or Reason(ReasonKind.ORDER, "you", heard.iteration)
            if not pausing:
                self._attempts.enter(run, Phase.PAUSE_DUE)
                pausing = True
        if not pausing or not (saves or run.saved_behind or (self._can_save and not run.reuses)):
            return "continue", reason if verdict is Decision.SAVE else None
        return "pause", run.why

    def _class_saves(self, heard: Heard, then: ev.Then, *, due: bool) -> bool:
        """Whether a class trainable is to save after this result."""
        every = self._config.checkpoint_frequency
        if then == "pause" and isinstance(heard.verdict, Exploit):
            return False  # what it has come to is given up
        return bool(
            heard.result.get("should_checkpoint")
            or (due if every == AUTO else every and heard.iteration % int(every) == 0)
            or (then == "stop" and self._config.checkpoint_at_end)
            or then == "pause"
            or (heard.verdict is Decision.SAVE and self._can_save)
            or (then == "continue" and self._endings.halted is not None)
        )

    def _reply(self, run: LiveAttempt, answer: wire.Answer, saves: bool) -> None:
        behind = saves and answer.then == "continue" and self._waits_for_copies(run)
        if behind or self._facts.full:
            self.unanswered[run.trial.trial_id] = (run, answer, behind)
        else:
            self._executor.tell(run.trial.trial_id, answer)

    def _correct(self, run: LiveAttempt, iteration: int, answer: wire.Answer, saves: bool) -> None:
        """Tell a trial that did not wait for an answer, where that is not "continue", or where it is to wait now."""
        ends = answer.then != "continue"
        if ends:
            run.decided = answer
        if ends or answer.should_checkpoint or (saves and self._waits_for_copies(run)):
            self._executor.tell(run.trial.trial_id, wire.Decided(iteration, answer))

    # --- its answer ---------------------------------------------------------------------------------------------

    def _waits_for_copies(self, run: LiveAttempt) -> bool:
        """Whether so much of the trial is to be copied still that it should not save more."""
        if self._endings.halted is not None or not self._copies.behind(run.trial):
            return False
        log.warning("%s waits: its checkpoints are saved faster than %s takes them", run.trial.name, self._copies.place)
        return True

    def answer(self) -> bool:
        """Answer the trials that need not wait any longer; True: there were some."""
        if self._facts.full:
            return False
        due = [
            (run, answer)
            for run, answer, behind in self.unanswered.values()
            if not behind or self._endings.halted is not None or not self._copies.behind(run.trial)
        ]
        for run, answer in due:
            del self.unanswered[run.trial.trial_id]
            if run is self._attempts.running.get(run.trial.trial_id):
                self._executor.tell(run.trial.trial_id, answer)
        return bool(due)

    # --- saves --------------------------------------------------------------------------------------------------

    def _allow(self, run: LiveAttempt, iteration: int) -> None:
        """The journal holds the result: its checkpoint may become visible, if this driver still owns the experiment."""
        self._parts.check_owner()
        self._executor.tell(run.trial.trial_id, wire.Durable(iteration))

    def on_published(self, run: LiveAttempt, body: wire.SavePublished, metrics: msgspec.Raw = ev.NO_RAW) -> None:
        """A save is on the disk.

        Args:
            metrics: the result that it belongs to, where that did not announce it.
        """
        run.published = True
        run.saved_behind = body.ref in run.behind and run.phase is Phase.PAUSE_DUE
        now = self._parts.clock.time()
        seq = self._facts.add(ev.CheckpointPublished(body.ref, body.bytes, body.digest, now, metrics))
        problem = self._checkpoints.published(run, body, seq)
        if problem is not None:
            run.said = wire.AttemptErrored("CheckpointBudgetError", problem, problem, retry=False)
            self._attempts.enter(run, Phase.REFUSED)
            self._executor.kill(run.trial.trial_id)
        self._transitions.carry_out()
