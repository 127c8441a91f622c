"""TrialLoop: the only place where events, decisions and I/O meet.

Each result goes the four steps of `_on_report`: callbacks see it, stoppers and scheduler decide, the trial is
answered, the fact is logged and journaled. Waiting happens in one place, `Executor.run_once`; whatever takes long
(fsync, hashing, deletion) runs beside the loop and comes back through `wake`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from trainables import tagged, wire
from trainables.wire import CheckpointRef
from tuner.books import FULL_LOOK_S, Books
from tuner.callback import CallbackList
from tuner.clock import Clock
from tuner.error import StorageFullError
from tuner.executors.base import Event, Executor, Exited, Message, Resources, Started
from tuner.experiment import events as ev
from tuner.experiment.journal import JournalWriter
from tuner.experiment.lock import Ownership
from tuner.experiment.resume import candidates, raw
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import CheckpointRecord, Trial
from tuner.launching import LoopSettings, describe, launch_of, start_at
from tuner.plugins import Plugins
from tuner.retention.custodian import Custodian

log = logging.getLogger(__name__)

Halt = Literal["interrupted", "preempted", "budget", "fail_fast"]
HEARTBEAT_S = 10.0
DELETE_GRACE_S = 5.0
"""How long the end of a run waits for deletions; what is left then is done by the next start."""
MAX_LOST = 10
"""Attempts in a row that may be lost to the engine (keeper or fork server gone) before a trial is given up."""


@dataclass(slots=True)
class Running:
    """An attempt from its selection to its exit."""

    trial: Trial
    attempt: int
    resources: Resources
    launched: bool = False
    said: wire.Finished | wire.Errored | wire.Preempted | None = None
    then: str = "continue"
    published: bool = False
    """The attempt has a checkpoint of its own: what it started from is not needed any more."""
    refused: bool = False
    """A save did not fit into the budget: the process is being ended, and nothing that it still says counts."""


class TrialLoop:
    """Runs an experiment from wherever its state stands to its end."""

    def __init__(
        self,
        settings: LoopSettings,
        *,
        state: ExperimentState,
        journal: JournalWriter,
        ownership: Ownership | None,
        executor: Executor,
        plugins: Plugins,
        custodian: Custodian,
        clock: Clock,
    ) -> None:
        self.settings = settings
        self.state = state
        self.clock = clock
        self.halted: Halt | None = None
        self.failure: tuple[str, ev.ErrorInfo] | None = None
        """The trial whose failure ended everything (`fail_fast`), and why it failed."""
        self.exceptions: dict[str, bytes] = {}
        self._books = Books(state, journal, clock=clock)
        self._ownership = ownership
        self._executor = executor
        self._plugins = plugins
        self._callbacks: CallbackList = plugins.callbacks
        self._custodian = custodian
        self._running: dict[str, Running] = {}
        self._pending: dict[str, Trial] = {
            trial.trial_id: trial
            for trial in state.trials
            if trial.status in (Trial.PENDING, Trial.PAUSED)
            and (settings.only is None or trial.trial_id in settings.only)
        }
        self._answers: list[tuple[str, wire.ToTrial]] = []
        self._iteration = 0
        self._asked: Halt | None = None
        self._deadlines: dict[str, float] = {}

    # --- the loop -----------------------------------------------------------------------------------

    def run(self, *, taken_up: Iterable[Trial] = (), unsynced: Iterable[Trial] = ()) -> None:
        """Run until no trial is left to run, or the experiment is halted.

        Args:
            taken_up: trials that ran when the last driver was killed: retention runs on what was found of them.
            unsynced: trials with results or deletions since the last snapshot.
        """
        self._books.touch(unsynced)
        now = self.clock.monotonic()
        self._deadlines["heartbeat"] = now + HEARTBEAT_S
        if self.settings.time_budget_s is not None:
            self._deadlines["budget"] = now + self.settings.time_budget_s
        self._custodian.take_over(self.state)
        for trial in self.state.trials:
            for ref in trial.forgotten:  # decided before, and not known to be done
                self._delete_when_durable(ref)
        for trial in taken_up:
            self._forget(trial)
        while True:
            self._callbacks.on_step_begin(self._iteration, self.state.trials)
            self._fill()
            self._settle()
            if not self._running:
                break
            self._executor.run_once(self.dispatch, self._timeout())
            self._settle()
            self._pass_deadlines()
            self._callbacks.on_step_end(self._iteration, self.state.trials)
            self._iteration += 1
        if self.halted is None:
            self._say_what_is_left()

    def _say_what_is_left(self) -> None:
        """A run that ends although there is more to do says why."""
        if self._pending:
            log.warning(
                "the run ends with %d trials that wait: no trial runs, and the scheduler chooses none of them",
                len(self._pending),
            )
        elif self.settings.only is None and self._plugins.more_to_come(self.state):
            log.warning(
                "the run ends with %d trials: none runs any more, and the searcher has neither a config nor said that "
                "there are no more",
                len(self.state.trials),
            )

    def ask_to_halt(self, why: Halt) -> None:
        """`halt` at the next turn of the loop; for signal handlers."""
        if self._asked is None:
            self._asked = why

    @property
    def halting(self) -> bool:
        return self._asked is not None or self.halted is not None

    def halt(self, why: Halt) -> None:
        """End the experiment early: every trial may save, then all is left unfinished. Safe to call again."""
        if self.halted is not None:
            return
        self.halted = why
        grace = self.settings.grace_s if why == "preempted" else self.settings.stop_grace_s
        self._deadlines["grace"] = self.clock.monotonic() + grace
        for trial_id, run in list(self._running.items()):
            if run.launched:
                self._executor.tell(trial_id, wire.Halt())

    def _timeout(self) -> float | None:
        refresh = self._callbacks.next_refresh()
        due = min(self._deadlines.values()) - self.clock.monotonic()
        return max(0.0, due if refresh is None else min(due, refresh))

    def _pass_deadlines(self) -> None:
        if self._asked is not None:
            self.halt(self._asked)
        now = self.clock.monotonic()
        for name in [name for name, at in self._deadlines.items() if at <= now]:
            del self._deadlines[name]
            if name == "heartbeat":
                self._deadlines[name] = now + HEARTBEAT_S
                if self._ownership is not None:
                    self._ownership.heartbeat()
            elif name == "budget":
                self.halt("budget")
            elif name == "full":
                continue  # the next turn tries to write again
            elif name == "grace":
                for trial_id, run in list(self._running.items()):
                    if run.launched:
                        self._executor.kill(trial_id)

    # --- the books --------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Write the journal, answer the trials, then do what became durable, and what ended beside the loop."""
        books = self._books
        while True:
            if books.flush():
                answers, self._answers = self._answers, []
                for trial_id, answer in answers:
                    self._executor.tell(trial_id, answer)
            else:
                self._deadlines["full"] = self.clock.monotonic() + FULL_LOOK_S
            books.run_due()
            for fact in self._custodian.finished():
                books.add(fact)
                if (trial := self.state.trials.get(fact.ref.trial_id)) is not None:
                    books.touch([trial])
            if not self._answers and not books.due:
                break
        if books.should_compact():
            self.compact()

    def compact(self) -> None:
        """Fold the journal into one snapshot; the plug-in states that only the one before it named go."""
        before = self.state.plugins
        saved = self._plugins.save()
        if self._books.compact(saved):
            self._plugins.discard(set(before.values()) - set(saved.values()))

    # --- starting ---------------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Start attempts while there is room for them."""
        while self.halted is None and self._room(self.settings.resources):
            trial = self._plugins.choose(list(self._pending.values())) if self._pending else self._create()
            if trial is None:
                return
            resources = trial.resources or self.settings.resources
            if not self._room(resources):
                return
            del self._pending[trial.trial_id]
            self._running[trial.trial_id] = Running(trial, trial.attempt + 1, resources)
            self._choose_start(trial)

    def _room(self, resources: Resources) -> bool:
        limit = self.settings.max_concurrent
        if limit is not None and len(self._running) >= limit:
            return False
        wanted = dict(resources)
        for run in self._running.values():
            if not run.launched:
                for key, amount in run.resources.items():
                    wanted[key] = wanted.get(key, 0) + amount
        return self._executor.can_launch(wanted)

    def _create(self) -> Trial | None:
        if self.settings.only is not None:
            return None
        created = self._plugins.create(self.state)
        if created is None:
            return None
        self._books.add(created)
        if isinstance(created, ev.SearchEnded):
            return None
        trial = self.state.trials[-1]
        self._plugins.on_trial_add(trial)
        self._pending[trial.trial_id] = trial
        return trial

    def _choose_start(self, trial: Trial) -> None:
        """Hash the checkpoint that the attempt would get; start it with the newest that is whole."""
        record = next(iter(candidates(trial)), None)
        if record is None:
            self._start(trial, None)
            return

        def checked(problem: str | None) -> None:
            if problem is None:
                self._start(trial, record)
                return
            log.warning("%s: checkpoint %s is damaged and set aside: %s", trial.name, record.ref.name, problem)
            self._books.add(ev.CheckpointSetAside(record.ref, problem))
            self._custodian.gone(record.ref)
            self._choose_start(trial)

        self._custodian.check(trial.directory / record.ref.name, record.digest, checked)

    def _start(self, trial: Trial, record: CheckpointRecord | None) -> None:
        run = self._running[trial.trial_id]
        own = 0 if record is None else record.iteration
        if trial.iteration > own:
            self._books.add(ev.RolledBack(trial.trial_id, run.attempt, own))
            self._plugins.on_rollback(trial, own)
        first = trial.attempt == 0
        if first:
            describe(trial, self.settings.seed)
        start = start_at(trial, record, self.settings)
        generation = self.state.generation.generation if self.state.generation else 1
        launch = launch_of(
            trial, start, self.settings, attempt=run.attempt, generation=generation, resources=run.resources
        )
        self._books.add(
            ev.AttemptStarted(
                trial.trial_id, run.attempt, generation, self.clock.time(), start.checkpoint, start.iteration
            )
        )

        def go() -> None:
            if self._running.get(trial.trial_id) is not run:
                return  # the run ended meanwhile
            if self.halted is not None:
                self._end_attempt(run, "halted")
                return
            run.launched = True
            self._executor.launch(launch)
            if not first and record is not None:
                self._callbacks.on_trial_restore(self._iteration, self.state.trials, trial)
            self._callbacks.on_trial_start(self._iteration, self.state.trials, trial)

        self._books.when_durable(go)  # a process may not get a config that a power cut could take back

    # --- what trials say ------------------------------------------------------------------------------------

    def dispatch(self, events: Sequence[Event]) -> None:
        """Handle a batch of events; when this returns they are journaled and answered."""
        self._pass_deadlines()  # here too: an executor may run a whole trial within one turn of the loop
        for event in events:
            run = self._running.get(event.trial_id)
            if run is None or event.attempt != run.attempt or isinstance(event, Started):
                continue
            if isinstance(event, Exited):
                self._on_exit(run, event)
            else:
                self._on_message(run, event)
        self._settle()

    def _on_message(self, run: Running, event: Message) -> None:
        body = event.body
        if run.refused:
            return
        if isinstance(body, wire.Report):
            self._on_report(run, body)
        elif isinstance(body, wire.Published):
            self._on_published(run, body)
        elif isinstance(body, wire.PublishFailed):
            log.warning("%s: checkpoint %s was not saved: %s", run.trial.name, body.ref.name, body.error)
            self._books.add(ev.PublishFailed(body.ref, body.error))
            self._custodian.not_saved(run.trial)
        else:
            run.said = body

    def _on_report(self, run: Running, report: wire.Report) -> None:
        trial = run.trial
        result: dict[str, Any] = tagged.loads(bytes(report.metrics))
        again = report.iteration <= trial.told  # told before a rollback: the journaled answer stands
        changed = self._callbacks.on_trial_result(self._iteration, self.state.trials, trial, result)
        decision = self._plugins.decide(trial, result, report.iteration, again)
        then: Literal["continue", "stop", "pause"] = decision
        saves = report.saving is not None
        refusal = None
        if saves:
            refusal = self._custodian.refusal(
                trial, report.saving.bytes if report.saving else 0, result, self._in_use(run)
            )
            saves = refusal is None
        elif self.settings.class_api:
            saves = self._class_saves(report.iteration, result, then)
        if self.halted is not None and then == "continue" and saves and self.settings.class_api:
            then = "pause"  # a function decides itself: it may look at should_stop() and have more to do
        if then == "stop":
            result["done"] = changed = True
        answer = wire.Answer(
            then=then,
            save=saves and report.saving is None,
            should_checkpoint=bool(result.get("should_checkpoint")),
            should_stop=self.halted is not None,
            budget_error=refusal,
        )
        if not self._books.full:
            self._executor.tell(trial.trial_id, answer)  # the trial goes on while its result is written down
        else:
            self._answers.append((trial.trial_id, answer))
        self._callbacks.after_trial_result(self._iteration, self.state.trials, trial, result)
        metrics = report.metrics if not changed else raw(result)
        fact = ev.ResultReported(trial.trial_id, run.attempt, report.iteration, metrics, then, saves)
        seq = self._books.add_result(trial, fact, result)
        run.then = then
        if saves:
            self._books.when_durable(lambda: self._allow(run, report.iteration), seq)

    def _class_saves(self, iteration: int, result: dict[str, Any], then: str) -> bool:
        every = self.settings.checkpoint_frequency
        return bool(
            result.get("should_checkpoint")
            or (every and iteration % every == 0)
            or (then == "stop" and self.settings.checkpoint_at_end)
            or then == "pause"
            or (then == "continue" and self.halted is not None)
        )

    def _allow(self, run: Running, iteration: int) -> None:
        """The journal holds the result: its checkpoint may become visible, if this driver still owns the experiment."""
        if self._ownership is not None:
            self._ownership.check()
        self._executor.tell(run.trial.trial_id, wire.Durable(iteration))

    def _on_published(self, run: Running, body: wire.Published) -> None:
        trial = run.trial
        self._books.add(ev.CheckpointPublished(body.ref, body.bytes, body.digest, self.clock.time()))
        run.published = True
        checkpoint = trial.open_checkpoint(trial.checkpoints[-1])
        self._callbacks.on_checkpoint(self._iteration, self.state.trials, trial, checkpoint)
        self._callbacks.on_trial_save(self._iteration, self.state.trials, trial)
        problem = self._custodian.saved(
            trial, trial.checkpoints[-1], self._in_use(), admitted=not self.settings.class_api
        )
        if problem is not None:  # a class trainable's save, whose size nobody knew before
            run.refused = True
            run.said = wire.Errored("CheckpointBudgetError", problem, problem, retry=False)
            self._custodian.gone(body.ref)
            self._let_go(body.ref)
            self._executor.kill(trial.trial_id)
            return
        self._forget(trial)

    def _forget(self, trial: Trial) -> None:
        for ref in self._custodian.to_forget(trial, self._in_use()):
            self._let_go(ref)

    def _let_go(self, ref: CheckpointRef) -> None:
        self._books.add(ev.CheckpointForgotten(ref))
        self._delete_when_durable(ref)  # forgotten first, deleted after: rule R2

    def _delete_when_durable(self, ref: CheckpointRef) -> None:
        trial = self.state.trials.get(ref.trial_id)
        assert trial is not None
        path = trial.directory / ref.name

        def go() -> None:
            if self._ownership is not None:
                self._ownership.check()
            self._custodian.delete(ref, path)

        self._books.when_durable(go)

    def _in_use(self, but: Running | None = None) -> set[tuple[str, tuple[int, int, int]]]:
        """Checkpoints that running attempts started from and have nothing of their own yet."""
        return {
            (run.trial.started_from.trial_id, run.trial.started_from.order)
            for run in self._running.values()
            if run.trial.started_from is not None and not run.published and run is not but
        }

    # --- the end of an attempt --------------------------------------------------------------------------------

    def _on_exit(self, run: Running, event: Exited) -> None:
        if run.said is None or run.refused or event.status != 0:
            self._adopt(run)
        said = run.said
        if isinstance(said, wire.Finished) and event.reason != "timeout":
            if run.then == "pause":
                self._end_attempt(run, "halted" if self.halted else "paused")
            else:
                self._end_trial(run, None)
        elif event.reason == "timeout":
            text = f"ran longer than trial_timeout_s={self.settings.trial_timeout_s} and was ended (TIMEOUT)"
            self._end_trial(run, ev.ErrorInfo("TrialTimeoutError", text))
        elif isinstance(said, wire.Errored):
            self._failed(run, ev.ErrorInfo(said.type, said.message, said.traceback, said.disk), said)
        elif self.halted is not None:
            self._end_attempt(run, "halted")
        elif isinstance(said, wire.Preempted):
            self._end_attempt(run, "preempted")
        elif event.reason == "lost" and run.trial.num_lost < MAX_LOST:
            self._end_attempt(run, "lost")
        else:
            how = f"by signal {-event.status}" if event.status < 0 else f"with status {event.status}"
            text = f"the trial's process ended {how} without a word; its output is in {run.trial.directory}"
            self._failed(run, ev.ErrorInfo("TrialProcessDiedError", text), None)

    def _adopt(self, run: Running) -> None:
        """What an attempt published before it died counts, told or not."""
        trial = run.trial
        known = {record.order for record in trial.checkpoints} | {ref.order for ref in trial.forgotten}
        for found in self._custodian.after_death(trial.directory):
            ref = found.ref
            mine = (trial.trial_id, trial.attempt_generation, run.attempt)
            if (ref.trial_id, ref.generation, ref.attempt) == mine and ref.order not in known:
                self._on_published(run, wire.Published(ref, found.manifest.bytes, found.digest))

    def _failed(self, run: Running, error: ev.ErrorInfo, said: wire.Errored | None) -> None:
        trial = run.trial
        if said is not None and said.pickled:
            self.exceptions[trial.trial_id] = said.pickled
        retries = self.settings.max_failures
        retry = (said is None or said.retry) and (retries < 0 or trial.num_failures < retries)
        if self.halted is not None:
            self._end_attempt(run, "halted", error)
        elif retry and not self.settings.fail_fast:
            self._end_attempt(run, "failed", error)
            self._callbacks.on_trial_recover(self._iteration, self.state.trials, trial)
        else:
            self._end_trial(run, error)
            if self.settings.fail_fast and (said is None or said.retry):
                self.failure = (trial.trial_id, error)
                self.halt("fail_fast")

    def _end_attempt(
        self,
        run: Running,
        why: Literal["failed", "preempted", "lost", "paused", "halted"],
        error: ev.ErrorInfo | None = None,
    ) -> None:
        trial = run.trial
        del self._running[trial.trial_id]
        self._books.add(ev.AttemptEnded(trial.trial_id, run.attempt, why, error))
        self._custodian.attempt_ended(trial)
        self._pending[trial.trial_id] = trial

    def _end_trial(self, run: Running, error: ev.ErrorInfo | None) -> None:
        trial = run.trial
        del self._running[trial.trial_id]
        last = trial.last_result
        self._books.add(
            ev.TrialEnded(trial.trial_id, "TERMINATED" if error is None else "ERROR", self.clock.time(), error)
        )
        self._custodian.attempt_ended(trial)
        self._plugins.on_trial_end(trial, last, failed=error is not None)
        if error is None:
            self._callbacks.on_trial_complete(self._iteration, self.state.trials, trial)
        else:
            self._callbacks.on_trial_error(self._iteration, self.state.trials, trial)
        self._forget(trial)

    # --- leaving ----------------------------------------------------------------------------------------------

    def finish(self, why: str) -> None:
        """Write the last word: what runs still is unfinished, deletions are waited for, the journal is durable."""
        for run in list(self._running.values()):
            self._end_attempt(run, "halted")
        self._books.add(ev.RunEnded(why, self.clock.time()))
        try:
            self._settle()
            self._books.sync()
            self._settle()
            for fact in self._custodian.close(DELETE_GRACE_S):
                self._books.add(fact)
            self._books.sync()
        except StorageFullError as error:
            log.warning("%s; a resume goes on from what is written", error)
