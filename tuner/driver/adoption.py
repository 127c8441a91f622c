"""Attempts whose processes have outlived their driver go on under this one (sessions: the callers' processes).

Such an attempt keeps its generation and number: what it publishes, late or not, has the same place in the lineage.
Until its process speaks, or is gone, its trial is given to nobody else.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from tuner.driver.attempts import Phase
from tuner.driver.endings import Endings
from tuner.driver.parts import LoopParts
from tuner.executors.base import Offered, Told
from tuner.experiment import events as ev
from tuner.experiment.trial import Trial
from tuner.resources import parse_resources

_PHASES: dict[Told, Phase] = {"continue": Phase.TRAINING, "pause": Phase.PAUSED, "stop": Phase.STOPPED}


class Adoption:
    """Decides whether an attempt that is offered goes on."""

    def __init__(self, parts: LoopParts, endings: Endings) -> None:
        self.expected: dict[str, Trial] = {}
        """Trials that a living process has, of which nothing was heard yet."""
        self._parts, self._endings = parts, endings

    def expect(self, trials: Iterable[Trial]) -> None:
        """Of those that ran when the last driver was killed, keep back whose processes live."""
        for trial in trials:
            if trial in self._parts.waiting and self._parts.executor.outlives(
                trial.trial_id, trial.attempt, trial.directory
            ):
                self._parts.waiting.remove(trial)
                self.expected[trial.trial_id] = trial

    def released(self, trial_id: str) -> None:
        """Its process is gone: the trial waits, as any that was lost."""
        trial = self.expected.pop(trial_id, None)
        if trial is not None and not trial.is_finished():
            self._endings.transitions.wait(trial)
            self._endings.transitions.carry_out_for(trial)

    def offered(self, event: Offered) -> None:
        """Have the attempt go on from what the journal has, or tell its process that it is over there."""
        trial, parts = self._parts.state.trials.get(event.trial_id), self._parts
        if trial is not None and trial.trial_id in self.expected:
            self.released(trial.trial_id)
        told = None if trial is None else self._told(trial, event)
        if trial is None or told is None:
            parts.executor.decline(event, ended=trial is None or trial.is_finished())
            return
        parts.waiting.remove(trial)
        resources = trial.resources or parse_resources(parts.plan.spec.resources_per_trial)
        run = parts.attempts.take_up(trial, resources, _PHASES[told])
        run.published = any(record.order[:2] == (event.generation, event.attempt) for record in trial.checkpoints)
        at, start = parts.clock.time(), trial.started_from
        parts.facts.add(ev.AttemptStarted(trial.trial_id, run.number, event.generation, at, start, trial.iteration))
        parts.checkpoints.in_use.reads(run)
        parts.interruptions.launched(trial)
        parts.facts.applier.launched(trial, restored=trial.latest_checkpoint is not None)
        parts.facts.touch([trial])
        parts.copies.started(trial)
        go = partial(parts.executor.adopt, event, iteration=trial.iteration, then=told)
        parts.facts.when_durable(go)  # its checkpoints may become visible up to there

    def _told(self, trial: Trial, event: Offered) -> Told | None:
        """What stands answered to its last result; None: the attempt is over.

        One that was to stop or to pause goes on for as long as the checkpoint is missing that was to be saved then.
        """
        same = (trial.attempt_generation, trial.attempt) == (event.generation, event.attempt)
        if not same or trial not in self._parts.waiting or trial.next_start is not None or self._endings.is_halted():
            return None
        told: Told = "continue"
        if trial.told == trial.iteration and trial.told_then != "continue":
            told = "stop" if trial.told_then == "stop" else "pause"
        return told if told == "continue" or trial.save_due else None
