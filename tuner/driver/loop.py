"""TrialLoop: the only place where events, decisions and I/O meet.

Each result goes the four steps of `_on_report`: callbacks see it, stoppers and scheduler decide, the trial is
answered, the fact is logged and journaled. Waiting happens in one place, `Executor.run_once`; whatever takes long
(fsync, hashing, deletion) runs beside the loop and comes back through `wake`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import msgspec

from trainables import tagged, wire
from tuner.callback import CallbackList
from tuner.clock import Clock
from tuner.driver.checkpoints import Hosts, Keeping
from tuner.driver.fact_log import FULL_LOOK_S, FULL_PATIENCE_S, Books
from tuner.driver.jobs import LoopSettings, describe, launch_of, start_at
from tuner.driver.plugins import Plugins
from tuner.driver.running import Running
from tuner.driver.waiting import Waiting
from tuner.error import StorageFullError
from tuner.executors.base import Event, Executor, Exited, Message, Resources, Started
from tuner.experiment import events as ev
from tuner.experiment.journal import JournalWriter
from tuner.experiment.ownership import HEARTBEAT_S, Ownership
from tuner.experiment.reason import Reason, ReasonKind
from tuner.experiment.resume import raw
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial
from tuner.experiment.trial_records import CheckpointRecord
from tuner.retention.custodian import Custodian
from tuner.schedulers.base import Decision, Exploit, Reallocate, Verdict
from tuner.syncer.sink import Problem, ReplicaBacklog, ReplicaSink

log = logging.getLogger(__name__)

Halt = Literal["interrupted", "preempted", "budget", "fail_fast"]
LOOK_S = 1.0
"""After so long the loop looks again whether it owns the experiment: it may have been stopped, and taken over from."""
DELETE_GRACE_S = 5.0
"""How long the end of a run waits for deletions, or for the next to end when nothing hurries it.

What is left then is done by the next start.
"""
AT_ONCE = 64
"""Attempts that are prepared together; what room there is beside them need not be added up for thousands."""
MAX_BACK_OFF_S = 60.0
"""The longest that a trial waits which fails again and again without a new result."""
MAX_LOST = 10
"""Attempts in a row that may be lost to the engine (keeper or fork server gone) before a trial is given up."""


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
        copies: ReplicaSink | None = None,
        hosts: Hosts | None = None,
    ) -> None:
        self.settings = settings
        self.state = state
        self.clock = clock
        self.halted: Halt | None = None
        self.failure: tuple[str, ev.ErrorInfo] | None = None
        """The trial whose failure ended everything (`fail_fast`), and why it failed."""
        self.exceptions: dict[str, bytes] = {}
        self._books = Books(state, journal, clock=clock, directories=settings.directories)
        self._ownership = ownership
        self._executor = executor
        self._plugins = plugins
        self._callbacks: CallbackList = plugins.callbacks
        self._custodian = custodian
        self._copies = ReplicaSink() if copies is None else copies
        self._running: dict[str, Running] = {}
        self._promised: dict[str, Resources] = {}
        """What those get that are not launched yet."""
        self._pending = Waiting(
            trial
            for trial in state.trials
            if trial.status in (Trial.PENDING, Trial.PAUSED)
            and (settings.only is None or trial.trial_id in settings.only)
        )
        self._behind = {trial.trial_id: trial for trial in self._pending.view if trial.is_behind}
        """Trials that wait, and are behind what they were told."""
        self._starved: dict[str, tuple[Running, ev.ErrorInfo]] = {}
        """Trials that failed for want of space. They try again when something was freed."""
        self._backing_off: dict[str, tuple[Trial, float]] = {}
        """Trials that failed several times in a row, and when they try again."""
        self._answers: list[tuple[str, wire.ToTrial]] = []
        self._keeping = Keeping(
            state,
            self._books,
            custodian,
            self._copies,
            ownership=ownership,
            running=self._running,
            keep_local=settings.keep_local,
            class_api=settings.class_api,
            hosts=hosts,
        )
        self._held: dict[str, wire.Answer] = {}
        """Answers to trials whose checkpoints pile up: they are given once the replica has caught up."""
        self._unchosen: Trial | None = None
        """The trial that was created last, if the scheduler has not chosen it: no other is created before it does."""
        self._wanting: Trial | None = None
        """The trial that was chosen last, if there was no room for it."""
        self._usual: Resources = settings.resources
        """What the trial that was created last asked for."""
        self._alike = True
        """No trial with a request of its own was met yet."""
        self._iteration = 0
        self._looked_at = clock.monotonic()
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
        if self._plugins.warmed:
            self.compact()
        now = self.clock.monotonic()
        self._deadlines["heartbeat"] = now + HEARTBEAT_S
        if self.settings.time_budget_s is not None:
            self._deadlines["budget"] = now + self.settings.time_budget_s
        self._keeping.take_over()
        for trial in taken_up:
            self._keeping.forget(trial)
        for trial in [trial for trial in self._pending.view if trial.is_stopped]:
            self._pending.remove(trial)  # an older version let it wait, or fail
            self._end_trial(trial, None)
        self._carry_out_left()
        while True:
            self._callbacks.on_step_begin(self._iteration, self.state.trials)
            full = not self._fill()
            self._settle()
            if not self._running and not self._starved and not self._backing_off:
                if self._wakes():
                    continue
                if not full or self.halted is not None or not self._executor.awaits_room():
                    break
            if self._starved and not self._running and not self._backing_off and self._ended_starved():
                continue
            self._executor.run_once(self.dispatch, self._timeout())
            self._pass_deadlines()
            self._settle()
            self._callbacks.on_step_end(self._iteration, self.state.trials)
            if self.halted is None and self._callbacks.is_preempted():
                self.halt("preempted")
            self._iteration += 1
        if self.halted is None:
            self._say_what_is_left()

    def _wakes(self) -> bool:
        """Nothing runs and nobody new comes: whether the scheduler lets one of those that wait go on, or end."""
        if self.halted is not None or not self._pending or self._plugins.choose(self._pending.view) is not None:
            return False
        waited = len(self._pending)
        self._books.add(ev.Idle())
        self._plugins.on_idle()
        self._carry_out()
        return len(self._pending) < waited or self._plugins.choose(self._pending.view) is not None

    def _ended_starved(self) -> bool:
        """Nothing runs: trials that wait for space fail, unless a deletion is under way that may make room."""
        deleting = self._custodian.deleting and "starved" in self._deadlines
        self._settle()  # what was deleted just now
        if self._starved and deleting and self.halted is None:
            return False
        starved, self._starved = self._starved, {}
        for run, error in starved.values() if self.halted is None else ():
            self._end_trial(run.trial, error)
        return True

    def _feed(self) -> None:
        """Something was freed: who failed for want of space may try again."""
        starved, self._starved = self._starved, {}
        for run, _ in starved.values():
            self._pending.add(run.trial)

    def _back_off(self, trial: Trial) -> None:
        """Let a trial that failed again wait, without a slot: not at all the first time, then longer and longer."""
        times = trial.failures_in_row
        if times < 2 or self.halted is not None:
            return
        wait = min(2.0 ** min(times - 2, 10), MAX_BACK_OFF_S)
        log.warning(
            "%s failed %d times in a row without a new result; it is tried again in %g s", trial.name, times, wait
        )
        self._pending.remove(trial)
        self._backing_off[trial.trial_id] = (trial, self.clock.monotonic() + wait)
        self._deadlines["again"] = min(at for _, at in self._backing_off.values())

    def _try_again(self, now: float) -> None:
        """Those whose time has come wait for room again."""
        for trial_id in [trial_id for trial_id, (_, at) in self._backing_off.items() if at <= now]:
            trial, _ = self._backing_off.pop(trial_id)
            self._pending.add(trial)
            self._carry_out_for(trial)
        self._deadlines.pop("again", None)
        if self._backing_off:
            self._deadlines["again"] = min(at for _, at in self._backing_off.values())

    def _say_what_is_left(self) -> None:
        """A run that ends although there is more to do says why."""
        if self._pending:
            log.warning(
                "the run ends with %d trials that wait: no trial runs, and the scheduler chooses none of them",
                len(self._pending),
            )
        elif self._more_to_come():
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
        self._try_again(math.inf)  # they wait for the resume now
        grace = self.settings.grace_s if why == "preempted" else self.settings.stop_grace_s
        self._deadlines["grace"] = self.clock.monotonic() + grace
        for trial_id, run in list(self._running.items()):
            if run.launched:
                self._executor.tell(trial_id, wire.Halt())

    def _timeout(self) -> float | None:
        refresh = self._callbacks.next_refresh()
        at = min(self._deadlines.values())
        if (due := self._copies.due()) is not None:
            at = min(at, due)
        left = at - self.clock.monotonic()
        return max(0.0, left if refresh is None else min(left, refresh))

    def _pass_deadlines(self) -> None:
        if self._asked is not None:
            self.halt(self._asked)
        now = self.clock.monotonic()
        if now - self._looked_at >= LOOK_S:
            self._check_owner()
            self._looked_at = now
        for name in [name for name, at in self._deadlines.items() if at <= now]:
            del self._deadlines[name]
            if name == "heartbeat":
                self._deadlines[name] = now + HEARTBEAT_S
                if self._ownership is not None:
                    self._ownership.heartbeat()
                self._copies.heartbeat()
            elif name == "budget":
                self.halt("budget")
            elif name == "again":
                self._try_again(now)
            elif name == "full":
                continue  # the next turn tries to write again
            elif name == "grace":
                for trial_id, run in list(self._running.items()):
                    if run.launched:
                        self._executor.kill(trial_id)
                    else:  # the checkpoint that it is to start from may never come
                        self._end_attempt(run, "halted")

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
            written = books.last_seq
            books.run_due()
            for fact in self._custodian.finished():
                books.add(fact)
                self._feed()
                if (trial := self.state.trials.get(fact.ref.trial_id)) is not None:
                    books.touch([trial])
            self._copy()
            if (not self._answers or books.full) and not books.due and books.last_seq == written:
                break  # a fetched checkpoint, for one, starts its trial: that fact is to become durable too
        if books.should_compact():
            self.compact()

    def _copy(self) -> None:
        """Let the replica go on, and the trials that wait for it."""
        for fact in self._copies.finished():
            self._books.add(fact)
            self._keeping.copied(self._trial(fact.ref.trial_id))
        for trial_id in list(self._held):
            trial = self.state.trials.get(trial_id)
            if self.halted is not None or trial is None or not self._copies.behind(trial):
                self._answers.append((trial_id, self._held.pop(trial_id)))

    def compact(self) -> None:
        """Fold the journal into one snapshot; the plug-in states that only the one before it named go."""
        self._copies.touched(self._books.unsynced)
        before = self.state.plugins
        try:
            saved = self._plugins.save()
        except StorageFullError as error:
            self._books.postpone_compaction(str(error))
            return
        if self._books.compact(saved):
            self._plugins.discard(set(before.values()) - set(saved.values()))

    # --- starting ---------------------------------------------------------------------------------------

    def _fill(self) -> bool:
        """Start attempts while there is room for them; False: there was no more room."""
        if self._plugins.wants_population(self.state):
            while self._create() is not None:
                pass  # it compares them all along: none goes on before all are there
        while self.halted is None and not self._starved:
            if not self._pending and not self._needs_room():
                return True
            if not self._room(self._likely()):
                return False
            if len(self._promised) >= AT_ONCE:
                return True  # more when these are under way
            trial = self._next()
            if trial is None:
                return True
            resources = self._resources(trial)
            self._alike = self._alike and trial.resources is None
            if not self._room(resources):
                self._wanting = trial
                return False
            self._wanting = None
            self._pending.remove(trial)
            self._running[trial.trial_id] = Running(trial, trial.attempt + 1, resources)
            self._promised[trial.trial_id] = resources
            self._keeping.reads(self._running[trial.trial_id])
            self._choose_start(trial)
        return True

    def _next(self) -> Trial | None:
        """The trial that runs next: one that waits, or where the scheduler chooses none of them a new one.

        One that is behind what it was told comes first, and the scheduler is not asked: it has decided about it.
        """
        for trial_id in list(self._behind):
            trial = self._behind[trial_id]
            if trial in self._pending and trial.is_behind:
                return trial  # and again, until there is room for it
            del self._behind[trial_id]
        chosen = self._plugins.choose(self._pending.view) if self._pending else None
        self._carry_out()
        if chosen is not None or (self._unchosen is not None and not self._unchosen.attempt):
            return chosen
        self._unchosen = self._create()
        chosen = self._plugins.choose(self._pending.view) if self._pending else None
        self._carry_out()
        return chosen

    def _likely(self) -> Resources:
        """What the trial that runs next probably asks for.

        One that was chosen and found no room comes first: to look for other room would give up what it waits for.
        """
        if self._wanting is not None and self._wanting in self._pending:
            return self._resources(self._wanting)
        chosen = self._plugins.choose(self._pending.view) if self._pending and not self._alike else None
        return self._usual if chosen is None else self._resources(chosen)

    def _resources(self, trial: Trial) -> Resources:
        return trial.resources or self.settings.resources

    def _room(self, resources: Resources) -> bool:
        limit = self.settings.max_concurrent
        if limit is not None and len(self._running) >= limit:
            return False
        return self._executor.can_launch(resources, list(self._promised.values()))

    def _more_to_come(self) -> bool:
        return self.settings.only is None and self._plugins.more_to_come(self.state)

    def _needs_room(self) -> bool:
        """Whether a trial may come; on a cluster room that nobody will use would be taken from others."""
        if self._more_to_come() and self._plugins.all_created(self.state):
            self._create()  # hears so
        return bool(self._pending) or self._more_to_come()

    def _create(self) -> Trial | None:
        if self.settings.only is not None:
            return None
        created = self._plugins.create(self.state)
        if created is None:
            return None
        self._books.add(created)
        if isinstance(created, ev.SearchEnded):
            self._plugins.on_search_end()
            self._carry_out()
            return None
        trial = self.state.trials[-1]
        self._plugins.on_trial_add(trial)
        self._pending.add(trial)
        self._usual = self._resources(trial)
        self._carry_out()
        return trial

    def _choose_start(self, trial: Trial) -> None:
        """Hash the checkpoint that the attempt would get; start it with the newest that is whole."""
        record = self._keeping.best_start(trial)
        if record is None:
            self._start(trial, None)
            return
        run = self._running[trial.trial_id]

        def checked(problem: Problem) -> None:
            if self._running.get(trial.trial_id) is not run:
                return  # the run ended meanwhile
            if problem is None:
                self._start(trial, record)
            elif isinstance(problem, ev.ErrorInfo):  # to start from an older one would give up what may be whole
                log.warning("%s cannot start from checkpoint %s: %s", trial.name, record.ref.name, problem.message)
                self._failed(run, problem, None, again=problem.disk)
                self._carry_out()
            else:
                if record in self._trial(record.ref.trial_id).checkpoints:  # else another trial has seen it too
                    log.warning("%s: checkpoint %s is damaged and set aside: %s", trial.name, record.ref.name, problem)
                    self._keeping.set_aside(record, problem)
                self._choose_start(trial)

        self._keeping.check(record, checked)

    def _start(self, trial: Trial, record: CheckpointRecord | None) -> None:
        run = self._running[trial.trial_id]
        foreign = record is not None and record.ref.trial_id != trial.trial_id
        if record is None:
            own = 0
        else:
            own = trial.clone_iteration if foreign else record.iteration  # a clone's count is its own
        if trial.iteration > own:
            self._books.add(ev.RolledBack(trial.trial_id, run.attempt, own))
            self._plugins.on_rollback(trial, own)
        first = trial.attempt == 0
        if first and self.settings.directories:
            describe(trial, self.settings.seed)
        holder = self._trial(record.ref.trial_id) if record is not None else trial
        start = start_at(trial, record, self.settings, holder=holder)
        generation = self.state.generation.generation if self.state.generation else 1
        launch = launch_of(
            trial, start, self.settings, attempt=run.attempt, generation=generation, resources=run.resources
        )
        self._plugins.on_trial_start(trial)
        self._books.add(
            ev.AttemptStarted(
                trial.trial_id, run.attempt, generation, self.clock.time(), start.checkpoint, start.iteration
            )
        )
        self._keeping.reads(run)

        def go() -> None:
            if self._running.get(trial.trial_id) is not run:
                return  # the run ended meanwhile
            if self._asked is not None:
                self.halt(self._asked)  # a moment ago: nothing begins any more
            if self.halted is not None:
                self._end_attempt(run, "halted")
                return
            self._check_owner()
            run.launched = True
            del self._promised[trial.trial_id]
            self._executor.launch(launch)
            trial.release()  # its process has it
            if not first and record is not None:
                self._callbacks.on_trial_restore(self._iteration, self.state.trials, trial)
            self._callbacks.on_trial_start(self._iteration, self.state.trials, trial)
            self._books.touch([trial])
            self._copies.started(trial)

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
        elif isinstance(body, wire.SavePublished):
            self._on_published(run, body)
        elif isinstance(body, wire.SaveFailed):
            lost = (run.trial.name, body.ref.name, body.error)
            log.warning("%s: checkpoint %s was not saved: %s", *lost, extra={"each": True})
            self._keeping.not_saved(run.trial, body)
        elif isinstance(body, wire.SaveUploaded):
            self._copies.uploaded(run.trial, body)
        elif isinstance(body, wire.CheckpointOpened):
            self._keeping.opened(run, body.ref)
        elif isinstance(body, wire.CheckpointClosed):
            self._keeping.closed(run, body.ref)
        elif not isinstance(body, wire.Listening):  # that one is for an executor
            run.said = body

    def _on_report(self, run: Running, report: wire.Report) -> None:
        trial = run.trial
        result: dict[str, Any] = tagged.loads(bytes(report.metrics))
        again = report.iteration <= trial.told  # told before a rollback: the journaled answer stands
        by_itself = result.get("done")
        changed = self._callbacks.on_trial_result(self._iteration, self.state.trials, trial, result)
        done = bool(result.get("done"))
        verdict, reason = self._plugins.decide(trial, result, report.iteration, again)
        if done and not by_itself:
            reason = Reason(ReasonKind.DONE, "a callback", report.iteration)
        saves = report.saving is not None
        refusal = None
        if report.saving is not None:
            refusal = self._keeping.refusal(run, report.saving.bytes, result)
            saves = refusal is None
            if saves and report.saving.uploading:
                self._copies.uploading(trial, report.saving.ref)
        then, reason = self._then(run, verdict, reason, report.iteration, saves)
        if report.saving is None and self.settings.class_api:
            saves = self._class_saves(report.iteration, result, then, verdict)
        if self.halted is not None and then == "continue" and saves and self.settings.class_api:
            then, reason = "pause", None  # a function decides itself: it may look at should_stop() and have more to do
        if then == "stop":
            result["done"] = changed = True
        answer = wire.Answer(
            then=then,
            save=saves and report.saving is None,
            should_checkpoint=bool(result.get("should_checkpoint")) or run.pausing or verdict is Decision.SAVE,
            should_stop=self.halted is not None,
            budget_error=refusal,
        )
        if saves and then == "continue" and self._waits_for_copies(trial):
            self._held[trial.trial_id] = answer
        elif not self._books.full:
            self._executor.tell(trial.trial_id, answer)  # the trial goes on while its result is written down
        else:
            self._answers.append((trial.trial_id, answer))
        self._callbacks.after_trial_result(self._iteration, self.state.trials, trial, result)
        metrics = report.metrics if not changed else raw(result)
        fact = ev.ResultReported(trial.trial_id, run.attempt, report.iteration, metrics, then, saves, done, reason)
        seq = self._books.add_result(trial, fact, result)
        run.then = then
        if then == "pause":
            self._move(trial, verdict, reason)
        if saves:
            self._books.when_durable(lambda: self._allow(run, report.iteration), seq)
        self._carry_out()

    def _waits_for_copies(self, trial: Trial) -> bool:
        """Whether so much of the trial is to be copied still that it should not save more."""
        if self.halted is not None or not self._copies.behind(trial):
            return False
        log.warning("%s waits: its checkpoints are saved faster than %s takes them", trial.name, self._copies.place)
        return True

    def _then(
        self, run: Running, verdict: Verdict, reason: Reason | None, iteration: int, saves: bool
    ) -> tuple[Literal["continue", "stop", "pause"], Reason | None]:
        """What the trial is told, and why. Nobody pauses without a checkpoint: a function runs on to its next save."""
        trial = run.trial
        ordered = self._plugins.ordered.get(trial.trial_id)
        if iteration < trial.told or (iteration == trial.told and trial.told_then == "pause"):
            ordered = None  # it trains up to where it was told already: what was ordered since then comes after that
        if ordered is not None and reason is None:
            reason = self._plugins.why_ordered(ordered, iteration)
        if verdict is Decision.STOP or (ordered is not None and ordered.what is Decision.STOP):
            return "stop", reason
        if isinstance(verdict, Exploit):
            return ("pause", reason) if self._donated(verdict) is not None else ("continue", None)
        if isinstance(verdict, Reallocate):
            self._plugins.order(trial, verdict, reason)  # done when it has paused, which may be at a later result
        if ordered is not None or verdict is Decision.PAUSE or isinstance(verdict, Reallocate):
            run.pausing, run.why = True, run.why or reason
        if not run.pausing or not (saves or (self.settings.class_api and self.settings.can_save)):
            return "continue", reason if verdict is Decision.SAVE else None
        return "pause", run.why

    def _class_saves(self, iteration: int, result: dict[str, Any], then: str, verdict: Verdict) -> bool:
        every = self.settings.checkpoint_frequency
        if then == "pause" and isinstance(verdict, Exploit):
            return False  # what it has come to is given up
        return bool(
            result.get("should_checkpoint")
            or (every and iteration % every == 0)
            or (then == "stop" and self.settings.checkpoint_at_end)
            or then == "pause"
            or (verdict is Decision.SAVE and self.settings.can_save)
            or (then == "continue" and self.halted is not None)
        )

    # --- clones, and trials that wait --------------------------------------------------------------------------

    def _donated(self, exploit: Exploit) -> CheckpointRecord | None:
        """The checkpoint that a clone would start from: where the donor would; None: it has none, or is none."""
        donor = self.state.trials.get(exploit.donor)
        return None if donor is None else self._keeping.best_start(donor)

    def _move(self, trial: Trial, verdict: Verdict, reason: Reason | None) -> None:
        """Write down how a trial that pauses goes on, where that is not from its own checkpoint as it was."""
        if isinstance(verdict, Exploit):
            record = self._donated(verdict)
            if record is not None:
                config = self._plugins.tagged(verdict.config)
                self._books.add(ev.Exploited(trial.trial_id, record.ref, config, trial.iteration, reason))
                self._keeping.given_back(trial)
                self._callbacks.on_trial_clone(self._iteration, self.state.trials, trial)
        elif isinstance(verdict, Reallocate):
            self._books.add(ev.Reallocated(trial.trial_id, self._plugins.granted(trial, verdict)))

    def _carry_out(self) -> None:
        """Do what the scheduler ordered for trials that wait; of those that still run, once they do."""
        while self._plugins.collect():
            self._carry_out_left()

    def _carry_out_left(self) -> None:
        for trial_id in list(self._plugins.ordered):
            self._carry_out_for(self._trial(trial_id))

    def _carry_out_for(self, trial: Trial) -> None:
        if trial.is_finished():
            self._plugins.ordered.pop(trial.trial_id, None)
        elif trial in self._pending and trial.trial_id in self._plugins.ordered:
            order = self._plugins.ordered[trial.trial_id]
            if order.what is Decision.STOP and trial.is_behind:
                return  # first to the result on which that was decided, and its checkpoint
            del self._plugins.ordered[trial.trial_id]
            reason = self._plugins.why_ordered(order, trial.iteration)
            if order.what is Decision.STOP:
                self._pending.remove(trial)
                self._end_trial(trial, None, reason)  # which may be the cause of further orders
            else:
                self._move(trial, order.what, reason)

    def _trial(self, trial_id: str) -> Trial:
        trial = self.state.trials.get(trial_id)
        assert trial is not None, trial_id
        return trial

    def _check_owner(self) -> None:
        """Raise OwnedElsewhereError where another driver has taken over."""
        if self._ownership is not None:
            self._ownership.check()

    def _allow(self, run: Running, iteration: int) -> None:
        """The journal holds the result: its checkpoint may become visible, if this driver still owns the experiment."""
        self._check_owner()
        self._executor.tell(run.trial.trial_id, wire.Durable(iteration))

    def _on_published(self, run: Running, body: wire.SavePublished) -> None:
        trial = run.trial
        seq = self._books.add(ev.CheckpointPublished(body.ref, body.bytes, body.digest, self.clock.time()))
        run.published = True
        checkpoint = trial.open_checkpoint(trial.checkpoints[-1])
        self._callbacks.on_checkpoint(self._iteration, self.state.trials, trial, checkpoint)
        self._callbacks.on_trial_save(self._iteration, self.state.trials, trial)
        self._plugins.on_checkpoint(trial, body.ref.iteration)
        problem = self._keeping.published(run, body, seq)
        if problem is not None:
            run.refused = True
            run.said = wire.AttemptErrored("CheckpointBudgetError", problem, problem, retry=False)
            self._executor.kill(trial.trial_id)
        self._carry_out()

    # --- the end of an attempt --------------------------------------------------------------------------------

    def _on_exit(self, run: Running, event: Exited) -> None:
        for ref in list(run.open):
            self._keeping.closed(run, ref)
        if run.said is None or run.refused or event.status != 0:
            for published in self._keeping.left_behind(run):
                self._on_published(run, published)
        error = self._error_of(run, event)
        if run.then == "stop" and not run.refused:
            self._end_stopped(run, event, error)
        elif error is not None:
            self._failed(run, error, run.said if isinstance(run.said, wire.AttemptErrored) else None)
        elif event.reason != "timeout" and isinstance(run.said, wire.Finished):
            self._end_finished(run)
        elif event.reason == "timeout":
            text = f"ran longer than trial_timeout_s={self.settings.trial_timeout_s} and was ended (TIMEOUT)"
            self._end_trial(run.trial, ev.ErrorInfo("TrialTimeoutError", text))
        else:
            self._end_attempt(run, self._unfinished_by(run, event))
        self._carry_out()

    def _error_of(self, run: Running, event: Exited) -> ev.ErrorInfo | None:
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
        how = f"by signal {-event.status}" if event.status < 0 else f"with status {event.status}"
        text = f"the trial's process ended {how} without a word; its output is in {run.trial.directory}"
        return ev.ErrorInfo("TrialProcessDiedError", text)

    def _unfinished_by(self, run: Running, event: Exited) -> Literal["preempted", "lost", "halted"]:
        """How an attempt ended that neither failed nor finished."""
        if self.halted is not None:
            return "halted"
        if isinstance(run.said, wire.Preempted):
            return "preempted"
        if event.reason == "unusable":
            self._set_start_aside(run)
        return "lost"

    def _end_finished(self, run: Running) -> None:
        """The trainable has ended by itself, or pauses."""
        if run.then != "pause":
            if run.trial.save_due:
                self._failed(run, self._save_lost(run.trial), None)
            else:
                self._end_trial(run.trial, None)
        elif self.halted is None and (error := self._unsaved(run.trial)) is not None:
            self._failed(run, error, None)
        else:
            self._end_attempt(run, "halted" if self.halted else "paused")

    def _end_stopped(self, run: Running, event: Exited, error: ev.ErrorInfo | None) -> None:
        """A trial that was told to stop is gone, in whatever way: it has ended, unless its last save is missing."""
        trial = run.trial
        if not trial.save_due:
            if error is not None or event.reason == "timeout":
                problem = "it was ended after trial_timeout_s" if error is None else f"{error.type}: {error.message}"
                log.warning("%s had been told to stop and has ended; then: %s", trial.name, problem)
            self._end_trial(trial, None)
        elif error is not None:
            self._failed(run, error, run.said if isinstance(run.said, wire.AttemptErrored) else None)
        elif event.reason == "timeout" or isinstance(run.said, wire.Finished):
            self._failed(run, self._save_lost(trial), None)
        else:  # from its newest checkpoint, and no further than it had come
            self._end_attempt(run, self._unfinished_by(run, event))

    @staticmethod
    def _save_lost(trial: Trial) -> ev.ErrorInfo:
        """Why a trial whose last save is missing has not ended well."""
        why = trial.save_error or "its process ended before that"
        text = f"the last checkpoint that was to be saved, of iteration {trial.save_due}, is not on the disk: {why}"
        return ev.ErrorInfo("PublishError", text, disk=True)

    def _unsaved(self, trial: Trial) -> ev.ErrorInfo | None:
        """Why a trial that pauses failed: its saves do, each in an attempt of its own, and it comes no further."""
        failures = trial.save_failures
        if trial.next_start is not None or failures < max(self.settings.max_publish_failures, 1):
            return None  # with `next_start` it goes on from a donor's
        text = f"{failures} checkpoints in a row were not saved; the last one: {trial.save_error}"
        return ev.ErrorInfo("PublishError", text, disk=True)

    def _set_start_aside(self, run: Running) -> None:
        """Its host found the checkpoint damaged that it was to start from: the next attempt gets an older one."""
        ref = run.trial.started_from
        holder = None if ref is None else self._trial(ref.trial_id)
        record = next((each for each in holder.checkpoints if each.ref == ref), None) if holder is not None else None
        if record is not None:
            log.warning("%s: checkpoint %s cannot be used and is set aside", run.trial.name, record.ref.name)
            self._keeping.set_aside(record, "the host that was to use it could not")

    def _failed(
        self, run: Running, error: ev.ErrorInfo, said: wire.AttemptErrored | None, *, again: bool = True
    ) -> None:
        """An attempt failed: the trial begins another one if `again` and the settings allow it, or ends."""
        trial = run.trial
        if said is not None and said.pickled:
            self.exceptions[trial.trial_id] = said.pickled
        retries = self.settings.max_failures
        retry = again and (said is None or said.retry) and (retries < 0 or trial.num_failures < retries)
        if self.halted is not None:
            self._end_attempt(run, "halted", error)
        elif retry and not self.settings.fail_fast:
            self._end_attempt(run, "failed", error)
            if trial.is_finished():
                return  # the scheduler had ordered it to stop
            if error.disk:  # again at once it would fail again
                log.warning("%s waits until something is deleted: %s", trial.name, error.message)
                self._pending.remove(trial)
                self._starved[trial.trial_id] = (run, error)
                self._deadlines["starved"] = self.clock.monotonic() + FULL_PATIENCE_S
            else:
                self._back_off(trial)
            self._callbacks.on_trial_recover(self._iteration, self.state.trials, trial)
        else:
            if (
                trial.told_then == "stop" and trial.save_due and not run.refused
            ):  # whatever the error: any resume saves that again
                error = msgspec.structs.replace(error, disk=True)
            self._end_trial(run.trial, error)
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
        self._promised.pop(trial.trial_id, None)
        self._books.add(ev.AttemptEnded(trial.trial_id, run.attempt, why, error, self.clock.time()))
        self._held.pop(trial.trial_id, None)
        self._keeping.attempt_ended(trial)
        if why == "paused":
            self._plugins.on_pause(trial)
        self._pending.add(trial)
        if trial.is_behind:
            self._behind[trial.trial_id] = trial
        self._carry_out_for(trial)

    def _end_trial(self, trial: Trial, error: ev.ErrorInfo | None, reason: Reason | None = None) -> None:
        self._running.pop(trial.trial_id, None)
        self._promised.pop(trial.trial_id, None)
        last, reason = trial.last_result, reason or why_ended(trial, error)
        self._books.add(
            ev.TrialEnded(trial.trial_id, "TERMINATED" if error is None else "ERROR", self.clock.time(), error, reason)
        )
        self._plugins.on_trial_end(trial, last, failed=error is not None)
        if error is None:
            self._callbacks.on_trial_complete(self._iteration, self.state.trials, trial)
        else:
            self._callbacks.on_trial_error(self._iteration, self.state.trials, trial)
        self._books.touch([trial])
        self._keeping.attempt_ended(trial)
        self._keeping.forget(trial)
        self._feed()
        self._held.pop(trial.trial_id, None)

    @property
    def backlog(self) -> ReplicaBacklog:
        """What is still to be copied."""
        return self._copies.backlog

    # --- leaving ----------------------------------------------------------------------------------------------

    def finish(self, why: str) -> None:
        """Write the last word: what runs still is unfinished, and the journal is durable."""
        for run in list(self._running.values()):
            self._end_attempt(run, "halted")
        self._books.add(ev.RunEnded(why, self.clock.time()))
        try:
            self._settle()
            self._books.sync()
            self._settle()
        except StorageFullError as error:
            log.warning("%s; a resume goes on from what is written", error)

    def copy_rest(self, hurried: Callable[[], bool]) -> list[str]:
        """Wait until the replica has everything, or `hurried`; returns what did not arrive, one line each."""
        until = self.clock.monotonic() + self.settings.grace_s if self.halted == "preempted" else math.inf
        return self._keeping.copy_rest(self.clock, until, hurried)

    def close(self) -> None:
        """Wait for deletions that are under way, and end what works beside the loop."""
        try:
            for fact in self._custodian.close(DELETE_GRACE_S, patient=self.halted is None):
                self._books.add(fact)
            self._books.sync()
        except StorageFullError as error:
            log.warning("%s; a resume goes on from what is written", error)


def why_ended(trial: Trial, error: ev.ErrorInfo | None) -> Reason:
    """Why a trial is over that nothing else is said of."""
    if error is not None:
        kind = ReasonKind.TIMEOUT if error.type == "TrialTimeoutError" else ReasonKind.ERROR
        return Reason(kind, error.type, trial.iteration)
    if trial.told_then == "stop" and trial.told_reason is not None:
        return trial.told_reason
    return Reason(ReasonKind.DONE, trial.trainable_name, trial.iteration)
