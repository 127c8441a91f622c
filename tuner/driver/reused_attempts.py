"""Attempts without a process: a trial becomes what one of an earlier experiment was with its config (`reuse=`).

Its results are told as if it reported them now, so that searcher, scheduler and stoppers decide on each of them; a copy
of its checkpoint is published with the last. Then the attempt ends, and the next one goes on from there. A driver that
is killed in between leaves an attempt that was cut off: the next driver begins it again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from trainables import wire
from trainables.config import CheckpointStrategy
from trainables.errors import PublishError
from trainables.store import publish
from trainables.wire import CheckpointRef
from tuner.driver.attempts import LiveAttempt, Phase
from tuner.driver.endings import Endings
from tuner.driver.jobs import describe
from tuner.driver.parts import LoopParts
from tuner.driver.results import ResultHandler
from tuner.executors.base import Exited
from tuner.experiment import events as ev
from tuner.opening.earlier import EarlierCheckpoint, ReusePlan, StagedReuse

log = logging.getLogger(__name__)

Then = Callable[[StagedReuse | None], None]


class ReusedAttempts:
    """Has trials begin with what earlier experiments have of their config."""

    def __init__(self, parts: LoopParts, endings: Endings, results: ResultHandler) -> None:
        self._parts, self._endings, self._results, self._earlier = parts, endings, results, parts.plan.earlier
        self._facts, self._attempts = parts.facts, parts.attempts
        self._tried: set[str] = set()
        """Trials that began so in this life: one that has nothing of it trains from nothing."""
        self._ended = False

    def begin(self, run: LiveAttempt, otherwise: Callable[[], None]) -> bool:
        """Whether the attempt goes through earlier results, or tries to; `otherwise`: there are none that can be used.

        Only of a trial without a checkpoint.
        """
        trial = run.trial
        found = [] if self._earlier is None or trial.trial_id in self._tried else self._earlier.of(trial)
        if not found:
            return False
        self._tried.add(trial.trial_id)
        describe(trial, self._parts.plan.seed)
        self._lay_out(run, found, partial(self._start, run, otherwise, found))
        return True

    def ended(self) -> bool:
        """Whether an attempt has ended since the last time: no process is heard to exit then."""
        ended, self._ended = self._ended, False
        return ended

    def _lay_out(self, run: LiveAttempt, found: Sequence[EarlierCheckpoint], then: Then) -> None:
        """Copy the deepest checkpoint that is whole, beside the loop."""
        state = self._parts.state
        generation = state.generation.generation if state.generation else 1
        by_index = isinstance(self._parts.plan.spec.checkpoint_config, CheckpointStrategy)
        refs: dict[int, CheckpointRef] = {}
        for iteration in {each.record.iteration for each in found}:
            number = run.trial.saves + 1 if by_index else iteration
            name = publish.checkpoint_name(number, generation, run.number)
            refs[iteration] = CheckpointRef(run.trial.trial_id, name, generation, run.number, 1, iteration)
        plan = ReusePlan(run.trial, found, refs, self._parts.clock.time())
        self._parts.checkpoints.beside(lambda: partial(then, plan.stage()))

    def _start(
        self,
        run: LiveAttempt,
        otherwise: Callable[[], None],
        found: Sequence[EarlierCheckpoint],
        staged: StagedReuse | None,
    ) -> None:
        if run.phase is not Phase.CHECKING:  # the run ended meanwhile
            if staged is not None:
                staged.discard()
            return
        if staged is None:
            otherwise()
            return
        trial = run.trial
        if trial.iteration:
            self._facts.add(ev.RolledBack(trial.trial_id, run.number, 0))
        run.reuses = True
        ref, lineage = staged.prepared.manifest.ref, staged.source.lineage
        at = self._parts.clock.time()
        self._facts.add(ev.AttemptStarted(trial.trial_id, run.number, ref.generation, at, reused=lineage))
        self._attempts.enter(run, Phase.JOURNALED)
        self._facts.when_durable(partial(self._go_through, run, found, staged))

    def _go_through(self, run: LiveAttempt, found: Sequence[EarlierCheckpoint], staged: StagedReuse) -> None:
        """Tell the results, as far as the trial comes."""
        trial = run.trial
        if run.phase is not Phase.JOURNALED:
            staged.discard()
            return
        if self._endings.is_halted():
            staged.discard()
            self._end(run)
            return
        self._parts.check_owner()
        self._attempts.enter(run, Phase.TRAINING)
        self._facts.applier.launched(trial, restored=False)
        self._facts.touch([trial])
        self._parts.copies.started(trial)
        manifest = staged.prepared.manifest
        for iteration, metrics in staged.results:
            saving = wire.PendingSave(manifest.ref, manifest.bytes) if iteration == manifest.iteration else None
            self._results.on_report(run, wire.Report(iteration, metrics, saving))
            if run.phase not in (Phase.TRAINING, Phase.PAUSE_DUE):
                break
        if trial.save_due == manifest.iteration:
            self._facts.when_durable(partial(self._publish, run, staged))
            return
        staged.discard()  # it came to less than that
        older = [each for each in found if each.record.iteration <= trial.iteration < manifest.iteration]
        if older and trial.told_then == "stop":
            self._lay_out(run, older, partial(self._publish_older, run))
        else:
            self._end(run)

    def _publish_older(self, run: LiveAttempt, staged: StagedReuse | None) -> None:
        """The checkpoint of a trial that was stopped before the deepest one."""
        if staged is None:
            self._end(run)
        else:
            self._facts.when_durable(partial(self._publish, run, staged))

    def _publish(self, run: LiveAttempt, staged: StagedReuse) -> None:
        """The results are durable: the checkpoint may become visible."""
        if run.phase is Phase.ENDED:
            staged.discard()
            self._end(run)
            return
        self._parts.check_owner()
        manifest = staged.prepared.manifest
        try:
            done = publish.commit(staged.prepared, run.trial.directory / manifest.name)
        except PublishError as error:
            log.warning("%s: the checkpoint %s could not be copied: %s", run.trial.name, staged.source, error)
            self._facts.add(ev.PublishFailed(manifest.ref, str(error)))
        else:
            saved = wire.SavePublished(manifest.ref, manifest.bytes, done.digest)
            announced = run.trial.save_due == manifest.iteration
            self._results.on_published(run, saved, ev.NO_RAW if announced else manifest.metrics)
        self._end(run)

    def _end(self, run: LiveAttempt) -> None:
        """What follows is a matter of the trial's next attempt, if it has one."""
        self._ended = True
        stopped, due = run.phase is Phase.STOPPED, run.trial.save_due
        if run.phase is Phase.ENDED:
            pass
        elif (stopped and not due) or run.phase is Phase.PAUSED:
            run.said = wire.Finished()
            self._endings.on_exit(run, Exited(run.trial.trial_id, run.number, 0))
        else:  # one that is to save at its end trains up to there
            self._endings.transitions.end_attempt(run, "halted")
        self._endings.transitions.carry_out()
