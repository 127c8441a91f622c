"""Who starts: trials are chosen while there is room for them, and given what they start from."""

from __future__ import annotations

import logging
import math
from functools import partial

from tuner.driver.attempts import LiveAttempt, Phase
from tuner.driver.endings import Endings
from tuner.driver.jobs import describe, launch_of, start_at
from tuner.driver.parts import LoopParts
from tuner.driver.results import ResultHandler
from tuner.driver.reused_attempts import ReusedAttempts
from tuner.executors.base import Launch, Resources
from tuner.experiment import events as ev
from tuner.experiment.trial import Trial
from tuner.experiment.trial_records import CheckpointRecord
from tuner.resources import parse_resources
from tuner.syncer.sink import Problem

log = logging.getLogger(__name__)

AT_ONCE = 64
"""Attempts that are prepared together; what room there is beside them need not be added up for thousands."""


class Admission:
    """Has trials created, chooses of those that wait, and starts attempts of them."""

    def __init__(self, parts: LoopParts, endings: Endings, results: ResultHandler) -> None:
        self._parts, self._endings, self._transitions = parts, endings, endings.transitions
        self._plan, self._state, self._facts = parts.plan, parts.state, parts.facts
        self._source = parts.plugins.source
        self._attempts, self._waiting = parts.attempts, parts.waiting
        self._reused = ReusedAttempts(parts, endings, results)
        self._unchosen: Trial | None = None
        """The trial that was created last, if the scheduler has not chosen it: no other is created before it does."""
        self._wanting: Trial | None = None
        """The trial that was chosen last, if there was no room for it."""
        parts.plugins.has_room = lambda trial: self._room(self._resources(trial))
        spec = parts.plan.spec
        self._limits = parts.limits
        self._default: Resources = parse_resources(spec.resources_per_trial)
        parts.state.usual_resources.update(self._default)
        self._usual: Resources = self._default
        """What the trial that was created last asked for."""

    def fill(self) -> bool:
        """Start attempts while there is room for them; False: there was no more room."""
        if self._source.wants_population(self._state):
            while self._create() is not None:
                pass  # it compares them all along: none goes on before all are there
        if self._parts.plugins.scheduler.sees_new:
            self._create_ahead()
        while self._endings.halted is None and not self._attempts.starved:
            if not self._waiting and not self._needs_room():
                executor = self._parts.executor
                if self._plan.spec.reuse_actors and executor.keeps_processes and not self._attempts.prepared:
                    executor.end_idle()
                return True
            if not self._room(self._likely()):
                return False
            if len(self._attempts.prepared) >= AT_ONCE:
                return True  # more when these are under way
            trial = self._next()
            if trial is None:
                return True
            resources = self._resources(trial)
            self._waiting.alike = self._waiting.alike and trial.resources is None
            if not self._room(resources):
                self._wanting = trial
                return False
            self._wanting = None
            self._waiting.remove(trial)
            run = self._attempts.begin(trial, resources)
            self._parts.checkpoints.in_use.reads(run)
            self._choose_start(run)
        return True

    def more_to_come(self) -> bool:
        """Whether trials may be created still."""
        return self._plan.only is None and self._source.more_to_come(self._state)

    def moved(self) -> bool:
        """Whether an attempt without a process has ended since the last time: who waits may go on."""
        return self._reused.ended()

    # --- which trial ----------------------------------------------------------------------------------------

    def _next(self) -> Trial | None:
        """The trial that runs next: one that waits, or where the scheduler chooses none of them a new one.

        One that is behind what it was told comes first, and again until there is room for it; the scheduler is not
        asked: it has decided about it.
        """
        behind = self._waiting.first_behind()
        if behind is not None:
            return behind
        chosen = self.choose()
        self._transitions.carry_out()
        if chosen is not None or (self._unchosen is not None and not self._unchosen.attempt):
            return chosen
        self._unchosen = self._create()
        chosen = self.choose()
        self._transitions.carry_out()
        return chosen

    def choose(self) -> Trial | None:
        """Whom the scheduler would have run next of those that wait."""
        return self._parts.plugins.choose(self._waiting.view) if self._waiting else None

    def _create_ahead(self) -> None:
        """Have as many trials wait as a scheduler that was written for Ray is used to see."""
        counts, most = self._state.counts, self._limits.wished
        while counts["PENDING"] < self._source.ahead:
            live = len(self._state.trials) - counts["TERMINATED"] - counts["ERROR"]
            if live >= most or self._create() is None:
                return

    def _create(self) -> Trial | None:
        created = self._source.create(self._state) if self._plan.only is None else None
        if created is None:
            return None
        self._facts.add(created)
        if isinstance(created, ev.SearchEnded):
            self._transitions.carry_out()
            return None
        trial = self._state.trials[-1]
        self._waiting.add(trial)
        self._usual = self._resources(trial)
        self._transitions.carry_out()
        return trial

    # --- room -----------------------------------------------------------------------------------------------

    def _likely(self) -> Resources:
        """What the trial that runs next probably asks for.

        One that was chosen and found no room comes first: to look for other room would give up what it waits for.
        """
        if self._wanting is not None and self._wanting in self._waiting:
            return self._resources(self._wanting)
        chosen = None if self._waiting.alike else self.choose()
        return self._usual if chosen is None else self._resources(chosen)

    def _resources(self, trial: Trial) -> Resources:
        return trial.resources or self._default

    def _room(self, resources: Resources) -> bool:
        if len(self._attempts.running) >= self._limits.at_once:
            return False
        promised = [run.resources for run in self._attempts.prepared.values()]
        if (hosts := self._parts.executor.remote_hosts) is not None:
            hosts.expect(self._more_at_once())
        return self._parts.executor.can_launch(resources, promised)

    def _more_at_once(self) -> float:
        """How many attempts could begin beside those that run; infinite where no end of the trials is known."""
        planned = self._source.planned(self._state) if self.more_to_come() else len(self._state.trials)
        to_come = math.inf if planned < 0 else planned - len(self._state.trials)
        return min(self._limits.at_once - len(self._attempts.running), len(self._waiting) + max(0, to_come))

    def _needs_room(self) -> bool:
        """Whether a trial may come; on a cluster room that nobody will use would be taken from others."""
        if self.more_to_come() and self._source.all_created(self._state):
            self._create()  # hears so
        return bool(self._waiting) or self.more_to_come()

    # --- its start ------------------------------------------------------------------------------------------

    def _choose_start(self, run: LiveAttempt) -> None:
        """Hash the checkpoint that the attempt would get; start it with the newest that is whole."""
        record = self._parts.checkpoints.best_start(run.trial)
        if record is None and run.trial.forked:
            problem = ev.ErrorInfo("CheckpointError", "the checkpoint that it was forked from is gone")
            self._endings.failed(run, problem, again=False)
            self._transitions.carry_out()
        elif record is None:
            if not self._reused.begin(run, otherwise=partial(self._start, run, None)):
                self._start(run, None)
        else:
            self._parts.checkpoints.check(record, partial(self._checked, run, record))

    def _checked(self, run: LiveAttempt, record: CheckpointRecord, problem: Problem) -> None:
        trial, ref = run.trial, record.ref
        if run.phase is not Phase.CHECKING:
            return  # the run ended meanwhile
        if problem is None:
            self._start(run, record)
        elif isinstance(problem, ev.ErrorInfo):  # to start from an older one would give up what may be whole
            log.warning("%s cannot start from checkpoint %s: %s", trial.name, ref.name, problem.message)
            self._endings.failed(run, problem, again=problem.disk)
            self._transitions.carry_out()
        else:
            if record in self._parts.state.trial(ref.trial_id).checkpoints:  # else another trial has seen it too
                log.warning("%s: checkpoint %s is damaged and set aside: %s", trial.name, ref.name, problem)
                self._parts.checkpoints.set_aside(record, problem)
            self._choose_start(run)

    def _start(self, run: LiveAttempt, record: CheckpointRecord | None) -> None:
        trial, plan, executor = run.trial, self._plan, self._parts.executor
        holder, own = trial, 0
        if record is not None:
            holder = self._state.trial(record.ref.trial_id)
            own = record.iteration if holder is trial else trial.clone_iteration  # a clone's count is its own
        if trial.iteration > own:
            self._facts.add(ev.RolledBack(trial.trial_id, run.number, own))
        first = trial.attempt == 0
        start = start_at(trial, record, plan, holder=holder)
        generation = self._state.generation.generation if self._state.generation else 1
        launches: list[Launch] = []

        def prepare() -> None:
            if run.phase is not Phase.JOURNALED:
                return  # the run ended meanwhile
            if first and executor.directories:
                describe(trial, plan.seed)  # its own change of the disk: the fact is not to wait for it
            launch = launch_of(
                trial,
                start,
                plan,
                executor,
                attempt=run.number,
                generation=generation,
                resources=run.resources,
                save_pace=self._parts.interruptions.pace(),
            )
            launches.append(executor.prepare(launch))

        at = self._parts.clock.time()
        self._facts.add(
            ev.AttemptStarted(trial.trial_id, run.number, generation, at, start.checkpoint, start.iteration)
        )
        self._attempts.enter(run, Phase.JOURNALED)
        self._parts.checkpoints.in_use.reads(run)

        def go() -> None:
            if run.phase is not Phase.JOURNALED:
                return  # the run ended meanwhile
            if self._endings.is_halted():
                self._transitions.end_attempt(run, "halted")
                return
            self._parts.check_owner()
            self._attempts.enter(run, Phase.TRAINING)
            executor.launch(launches[0])
            self._parts.interruptions.launched(trial)
            trial.release()  # its process has it
            self._facts.applier.launched(trial, restored=not first and record is not None)
            self._facts.touch([trial])
            self._parts.copies.started(trial)

        # A process may not get a config that a power cut could take back.
        self._facts.when_durable(go, meanwhile=prepare)
