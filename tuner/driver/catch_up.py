"""Bringing an experiment up: to where its last driver left it, and to what its disks and its replica really hold."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping

from trainables.store import fs
from tuner.driver.jobs import describe, describe_again
from tuner.driver.plugins import FactApplier, stored
from tuner.executors.base import Executor
from tuner.experiment import events as ev
from tuner.experiment.leftovers import Look, check_nothing_lost, clear_void, remove_halves
from tuner.experiment.paths import TrialPaths
from tuner.experiment.reader import facts_of
from tuner.experiment.resume import Elsewhere, reconcile
from tuner.experiment.standing import Results, StandingResult
from tuner.experiment.trial import Trial
from tuner.logger.completing import complete
from tuner.opening import other_hosts
from tuner.opening.apply import OwnedExperiment
from tuner.opening.attach import Origins, find_origins
from tuner.progress import formatting as text


class CatchUp:
    """Replays the journal, then finds the facts that nobody wrote down.

    Args:
        announce: shows the user what takes long.
    """

    def __init__(
        self,
        opened: OwnedExperiment,
        applier: FactApplier,
        *,
        executor: Executor,
        announce: Callable[[str], None],
    ) -> None:
        self.taken_up: list[Trial] = []
        """Trials that ran when the last driver was killed."""
        self.ended: list[Trial] = []
        """Trials whose good end was decided before that, and is written down only now."""
        self.touched: dict[str, Trial] = {}
        """Trials of which the journal speaks after its last snapshot: a power cut may have undone work on them."""
        self.set_aside: list[str] = []
        """What was said of checkpoints of a history that went on elsewhere."""
        self.only: frozenset[str] | None = None
        """The trials that may run now; None: all."""
        self.replica = opened.replica
        self.origins: Origins | None = None
        """Where checkpoints of a restored experiment are that neither this machine nor the replica has."""
        self._opened = opened
        self._applier, self._state = applier, applier.state
        self._executor, self._announce = executor, announce
        self._results = Results()
        self._fetched = opened.replica is not None and opened.replica.fetched
        self._let_go = set(opened.replica.let_go if opened.replica is not None else ())
        """(trial id, name) of checkpoints that are void where another history was taken over."""

    def replay(self) -> list[str]:
        """Apply what is journaled. Returns what the user is to know of it."""
        contents = self._opened.contents
        stored.load(self._applier.plugins, self._state)
        if contents is None:
            return []
        facts = facts_of(self._opened.paths, contents.bodies)
        self._applier.replay(_noting(self._results.noting(facts, self._state), self._let_go))
        check_nothing_lost(self._opened.paths, contents, self._state)  # before anything is touched
        for known in self._state.trials if self._fetched else ():
            if not fs.exists(TrialPaths(known.directory).trial_json):
                describe(known, int(self._opened.description["seed"]))  # what else is in it comes when it is needed
        self._describe_again()
        self.touched = {trial_id: self._state.trial(trial_id) for trial_id in self._results.by_trial}
        lost = (f"{damage}; the run goes on from what stands before them" for damage in contents.damaged)
        notes, seed = [*contents.notes, *lost, *self._opened.start.changes], self._opened.description["seed"]
        given = self._opened.spec.seed
        if given not in (None, seed):
            notes.append(f"seed={given!r} has no effect: this experiment was started with seed={seed!r}")
        return notes

    def first_facts(self, notes: list[str]) -> Iterator[ev.AnyFact]:
        """Whose history this generation continues, and what is really on disk; the user's notes go into `notes`."""
        contents, generation = self._opened.contents, self._opened.ownership.generation
        hosts = self._executor.remote_hosts
        if self.replica is not None and contents is not None:
            self.origins = find_origins(self.replica, self._opened.description, self._state)
        if hosts is not None:
            self.replica = other_hosts.join(hosts, self._opened, self._state, self._announce)
        started = ev.GenerationStarted(generation)
        if contents is not None:
            started = ev.GenerationStarted(generation, contents.generation, contents.generation_id, contents.last_seq)
        self._state.apply(started)
        yield started
        if contents is None:
            return
        remove_halves(self._state, self.touched)
        if hosts is not None:
            notes.extend(other_hosts.gather(hosts, self._state, self._elsewhere()))
        yield from self._reconciled(notes)

    def _reconciled(self, notes: list[str]) -> list[ev.AnyFact]:
        """What lies on the disks and is not journaled; the plug-ins are told of it."""
        look = Look()
        reached = {trial.trial_id: trial.iteration for trial in self._state.trials if trial.status != trial.TERMINATED}
        facts, problems = reconcile(
            self._state,
            listed=look.listed,
            resume=self._opened.spec.resume_choice,
            now=self._executor.clock.time(),
            elsewhere=self._elsewhere(),
            let_go=self.replica.kept_longer() if self.replica is not None else lambda trial: (),
            fetched=self._fetched or self.origins is not None,
        )
        notes.extend([*problems, *look.set_aside(self._state, facts)])
        notes.extend(self._complete_files(facts, reached))
        if self.replica is not None and (self._fetched or self.replica.unsettled):
            self.set_aside = clear_void(self._opened.paths, self._state, self._let_go)
            notes.extend(self.set_aside)
            fs.remove_quietly(self._opened.paths.taking_over)
        if self._opened.spec.resume_choice.only_errored:
            self.only = frozenset(fact.trial for fact in facts if isinstance(fact, ev.TrialReopened))
        for fact in facts:
            self._applier.found(fact)
            if isinstance(fact, (ev.TrialEnded, ev.AttemptEnded)):
                self.taken_up.append(self._state.trial(fact.trial))
            if isinstance(fact, ev.TrialEnded):
                self.ended.append(self._state.trial(fact.trial))
        return facts

    def _complete_files(self, found: Iterable[ev.AnyFact], reached: Mapping[str, int]) -> list[str]:
        """Put back into trials' files what a power cut took, or the replica had not yet; say what nobody has.

        `found`: facts of what is really there, which the journal does not know; `reached`: the iterations before them.
        """
        for fact in found:
            trial_id = fact.ref.trial_id if isinstance(fact, ev.CheckpointPublished) else ""
            self._results.note(fact, reached=reached.get(trial_id, 0))
        for trial in self._state.trials if self._fetched else ():
            if not trial.is_finished():  # of those that have ended the files may not be here yet
                self._results.by_trial.setdefault(trial.trial_id, StandingResult())
        notes = []
        for trial_id, standing in self._results.by_trial.items():
            trial = self._state.trial(trial_id)
            standing.fetched = self._fetched
            missing = complete(self._applier.plugins.callbacks.callbacks, trial, standing)
            if missing:
                self.touched[trial_id] = trial
                few = f"{missing[0]} to {missing[-1]}" if len(missing) > 1 else str(missing[0])
                notes.append(
                    f"{trial.name}: {text.counted(len(missing), 'result')} before its iteration {trial.iteration} "
                    f"({few}) went with the machine that had the journal; in its files these rows say missing"
                )
        return notes

    def _elsewhere(self) -> Elsewhere:
        if self._executor.virtual_checkpoints:
            return lambda trial, ref: True
        return self.replica.elsewhere(self.origins) if self.replica is not None else lambda trial, ref: False

    def _describe_again(self) -> None:
        """A power cut may have taken what identifies a trial: of those that go on, and those that were worked on."""
        if not self._executor.directories:
            return
        for trial in self._state.trials:
            if trial.attempt and (not trial.is_finished() or trial.trial_id in self._results.by_trial):
                with contextlib.suppress(OSError):  # it is for people and other programs: nothing waits for it
                    describe_again(trial, int(self._opened.description["seed"]))


def _noting(facts: Iterable[ev.AnyFact], let_go: set[tuple[str, str]]) -> Iterator[ev.AnyFact]:
    """Pass facts on; note (trial id, name) of what was let go of."""
    for fact in facts:
        if isinstance(fact, ev.CheckpointForgotten):
            let_go.add((fact.ref.trial_id, fact.ref.name))
        yield fact
