"""The state of an experiment: what its facts add up to. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import msgspec

from trainables import decoding, tagged
from trainables.wire import CheckpointRef
from tuner.error import ExperimentDamagedError
from tuner.experiment import events as ev
from tuner.experiment.compact import compact, loosen, share
from tuner.experiment.hostile import check_name, check_ref
from tuner.experiment.order_records import OrderRecord, SettingChange
from tuner.experiment.steered_state import SteeredState
from tuner.experiment.trial import Trial
from tuner.experiment.trial_records import CheckpointRecord, Clone, add_to_summary, tight
from tuner.experiment.trials import Trials


class Snapshot(msgspec.Struct, omit_defaults=True):
    """The whole state in one JSON object, as compaction writes it."""

    trials: list[Trial] = []
    search_ended: int | None = None
    run_ended: str | None = None
    plugins: dict[str, str] = {}
    """Plug-in -> hash of the blob with its state at this point."""
    generation: ev.GenerationStarted | None = None
    orders: dict[str, OrderRecord] = {}
    """What users have ordered, by id, oldest first."""
    saves: int = 0
    """Checkpoints so far; those that were kept tell it of older journals."""
    changed: dict[str, SettingChange] = {}
    """Settings of the run that a user has changed, by name."""


class ExperimentState(SteeredState):
    """Applies facts. The loop and a resume use the same one."""

    def __init__(self, root: Path, snapshot: Snapshot | None = None) -> None:
        snapshot = snapshot or Snapshot()
        self.root = root
        self.usual_resources: dict[str, float] = {}
        """What a trial gets that says nothing else, where a run has said so."""
        self._order: list[Trial] = snapshot.trials
        super().__init__({trial.trial_id: trial for trial in self._order}, snapshot.orders, snapshot.changed)
        self.trials = Trials(self._by_id, self._order)
        self.search_ended, self.run_ended = snapshot.search_ended, snapshot.run_ended
        self.plugins, self.generation = snapshot.plugins, snapshot.generation
        self.borrowed: dict[str, CheckpointRef] = {}
        """Clones -> the donor's checkpoint that they start from, until they have one of their own."""
        self.counts = dict.fromkeys(("PENDING", "RUNNING", "PAUSED", "TERMINATED", "ERROR"), 0)
        self.checkpoint_count, self.checkpoint_bytes, self._saves = 0, 0, snapshot.saves
        for trial in self._order:
            self._take_in(trial)
        self._leave(self.run_ended)

    def _take_in(self, trial: Trial) -> None:
        """Count a trial of the snapshot. Raises ExperimentDamagedError for names that no experiment has."""
        kept = trial.checkpoints
        check_name(trial.dirname)
        for ref in (*(record.ref for record in kept), *trial.forgotten, trial.started_from):
            check_ref(ref)
        trial.__dict__.update(home=self.root, usual=self.usual_resources)
        trial.save_due = max(trial.save_due, *trial.unsaved, 0)  # format 1 has no `save_due`
        if kept and trial.lineage and not trial.clones and kept[0].order[:2] < trial.lineage[0]:
            trial.ranked_since = trial.lineage[0]  # older snapshots do not have it
        self.counts[trial.status] += 1
        self._borrows(trial)
        self.checkpoint_count += len(kept)
        self.checkpoint_bytes += sum(record.bytes for record in kept)
        self._saves = max(self._saves, *(record.number for record in kept), 0)
        share(trial)

    def snapshot(self, plugins: dict[str, str]) -> bytes:
        """All of it, as JSON."""
        ended, saves = (self.search_ended, self.run_ended), self._saves
        whole = Snapshot(self._order, *ended, plugins, self.generation, self.orders, saves, self.changed)
        return msgspec.json.encode(whole)

    @classmethod
    def from_snapshot(cls, root: Path, body: bytes | None) -> ExperimentState:
        return cls(root, None if body is None else decoding.decode(body, Snapshot))

    def trial(self, trial_id: str) -> Trial:
        """One that a fact has created. Raises ExperimentDamagedError where none has."""
        if trial_id not in self._by_id:
            raise ExperimentDamagedError(f"the journal names trial {trial_id!r}, which it never created")
        return self._by_id[trial_id]

    def apply(self, fact: ev.AnyFact) -> None:
        """Add one fact. Raises ExperimentDamagedError for one that fits to nothing before it."""
        try:
            _APPLY[type(fact)](self, fact)
        except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
            kind = type(fact).__struct_config__.tag
            raise ExperimentDamagedError(
                f"a fact of kind {kind} does not fit to what stands before it: {error!r}"
            ) from error

    def _status(self, trial: Trial, status: str) -> None:
        self.counts[trial.status] -= 1
        self.counts[status] += 1
        trial.status = status

    def _borrows(self, trial: Trial) -> None:
        """Note whether the trial is a clone that has nothing of its own to go on from."""
        start = trial.next_start
        if start is None and trial.started_from is not None and not trial.own_checkpoints:
            start = trial.started_from if trial.started_from.trial_id != trial.trial_id else None
        if start is None or trial.status == Trial.TERMINATED:
            self.borrowed.pop(trial.trial_id, None)
        else:
            self.borrowed[trial.trial_id] = start

    # --- one method per fact, called as its tag ------------------------------------------------------

    def _generation(self, fact: ev.GenerationStarted) -> None:
        self.generation = fact
        self.run_ended = None
        self._leave(None)

    def _created(self, fact: ev.TrialCreated) -> None:
        check_name(fact.dirname)
        trial = Trial(
            trial_id=fact.trial,
            index=fact.index,
            trainable_name=fact.trainable,
            name=fact.name,
            dirname=fact.dirname,
            raw_config=tight(fact.config),
            raw_evaluated=tight(fact.evaluated),
            experiment_tag=fact.tag,
            resources=fact.resources,
            order=fact.order,
        )
        trial.__dict__.update(home=self.root, usual=self.usual_resources)
        self._order.append(trial)
        self._by_id[fact.trial] = trial
        self._made_by_order(trial, fact)
        self._borrows(trial)
        self.counts["PENDING"] += 1

    def _attempt(self, fact: ev.AttemptStarted) -> None:
        check_ref(fact.checkpoint)
        trial = self._by_id[fact.trial]
        if fact.checkpoint is None or fact.checkpoint.trial_id != fact.trial:
            trial.lineage = []  # anew, or a clone: it never continues from its own checkpoints before that
        self._starts(trial, fact)
        self._borrows(trial)
        if fact.config != ev.NO_RAW:
            trial.raw_config = fact.config
            trial.__dict__.pop("config", None)
        if trial.started_at is None:
            trial.started_at = fact.at
        trial.rested(fact.at, fact.iteration)
        trial.error = None
        self._status(trial, Trial.RUNNING)

    def _exploited(self, fact: ev.Exploited) -> None:
        trial = self._by_id[fact.trial]
        trial.clones = [*trial.clones, Clone.of(fact.iteration, fact.checkpoint, trial.raw_config, fact.config)]
        trial.next_start, trial.clone_iteration = fact.checkpoint, fact.iteration
        trial.save_due = 0  # what it had come to is given up
        if fact.checkpoint.trial_id != fact.trial:
            trial.lineage = []
        trial.raw_config = tight(fact.config)
        trial.__dict__.pop("config", None)
        self._borrows(trial)

    def _reallocated(self, fact: ev.Reallocated) -> None:
        self._by_id[fact.trial].resources = fact.resources

    def _result(self, fact: ev.ResultReported) -> None:
        trial = self._by_id[fact.trial]
        self.add_result(trial, fact, tagged.loads(bytes(fact.metrics)))

    def add_result(self, trial: Trial, fact: ev.ResultReported, metrics: dict[str, Any]) -> None:
        """`apply` for a result whose metrics are at hand already."""
        trial.iteration = fact.iteration
        trial.raw_result = fact.metrics
        trial.__dict__["last_result"] = metrics
        add_to_summary(trial.summary, metrics)
        if fact.iteration > trial.told:  # one that it had before is no progress: the same crash may follow on it again
            trial.failures_in_row = 0
        if fact.iteration >= trial.told:
            trial.told, trial.told_then, trial.told_reason = fact.iteration, fact.then, fact.reason
        if fact.saves:
            trial.save_due = fact.iteration
            summary = {key: list(entry) for key, entry in trial.summary.items()}
            trial.unsaved[fact.iteration] = (fact.metrics, summary)

    def _published(self, fact: ev.CheckpointPublished) -> None:
        check_ref(fact.ref)
        trial = self._by_id[fact.ref.trial_id]
        raw, summary = trial.unsaved.pop(fact.ref.iteration, (fact.metrics, None))
        for iteration in [i for i in trial.unsaved if i < fact.ref.iteration]:
            del trial.unsaved[iteration]  # saves come in order: an older one will not come any more
        if fact.metrics != ev.NO_RAW and fact.ref.iteration > trial.iteration:
            trial.catch_up(fact.ref.iteration, fact.metrics)
        if summary is None:
            summary = {key: list(entry) for key, entry in trial.summary.items()}
        self._saves += 1
        record = CheckpointRecord(fact.ref, fact.bytes, fact.at, raw, fact.digest, summary, self._saves)
        trial.forgotten = [ref for ref in trial.forgotten if ref.order != fact.ref.order]  # a replica still had it
        trial.checkpoints = sorted([*trial.checkpoints, record], key=lambda kept: kept.order)
        if trial.next_start is None:
            self.borrowed.pop(trial.trial_id, None)
        trial.saves += 1
        trial.save_failures, trial.save_error = 0, ""
        if fact.ref.iteration >= trial.save_due:
            trial.save_due = 0
        trial.num_lost = 0
        self.checkpoint_count += 1
        self.checkpoint_bytes += fact.bytes

    def _publish_failed(self, fact: ev.PublishFailed) -> None:
        trial = self._by_id[fact.ref.trial_id]
        trial.unsaved.pop(fact.ref.iteration, None)
        trial.save_failures += 1
        trial.save_error = fact.error
        if not fact.raised or trial.told_then == "stop":
            trial.save_due = max(trial.save_due, fact.ref.iteration)
        elif trial.save_due == fact.ref.iteration:
            trial.save_due = 0  # whoever goes on after the error knows that it is not there

    def _remove(self, ref: CheckpointRef) -> None:
        trial = self._by_id[ref.trial_id]
        for position, record in enumerate(trial.checkpoints):
            if record.order == ref.order:
                del trial.checkpoints[position]
                self.pinned.discard((ref.trial_id, ref.order))
                self.checkpoint_count -= 1
                self.checkpoint_bytes -= record.bytes
                self._borrows(trial)  # a clone that loses its only one goes on from the donor's, if that stands
                return

    def _forgotten(self, fact: ev.CheckpointForgotten) -> None:
        check_ref(fact.ref)
        self._remove(fact.ref)
        trial = self._by_id[fact.ref.trial_id]
        trial.forgotten = [*trial.forgotten, fact.ref]

    def _deleted(self, fact: ev.CheckpointDeleted) -> None:
        trial = self._by_id[fact.ref.trial_id]
        trial.forgotten = [ref for ref in trial.forgotten if ref.order != fact.ref.order]

    def _copied(self, fact: ev.CheckpointCopied) -> None:
        for record in self._by_id[fact.ref.trial_id].checkpoints:
            if record.order == fact.ref.order and fact.place not in record.copies:
                record.copies = [*record.copies, fact.place]

    def _dropped(self, fact: ev.LocalCopyDropped) -> None:
        for record in self._by_id[fact.ref.trial_id].checkpoints:
            if record.order == fact.ref.order:
                record.here = False

    def _set_aside(self, fact: ev.CheckpointSetAside) -> None:
        trial = self._by_id[fact.ref.trial_id]
        latest = trial.latest_checkpoint
        if latest is not None and latest.order == fact.ref.order and trial.status != Trial.TERMINATED:
            trial.save_due = max(trial.save_due, fact.ref.iteration)
        self._remove(fact.ref)

    def _rolled_back(self, fact: ev.RolledBack) -> None:
        trial = self._by_id[fact.trial]
        trial.iteration = fact.iteration
        trial.unsaved = {}
        if trial.save_due > fact.iteration:
            trial.save_due = 0
        kept = next((r for r in reversed(trial.ranked_checkpoints) if r.iteration == fact.iteration), None)
        trial.__dict__.pop("last_result", None)
        trial.raw_result = ev.NO_RAW if kept is None else kept.raw_metrics
        if kept is not None and kept.summary:
            trial.summary = {key: list(entry) for key, entry in kept.summary.items()}
        else:  # only the history knows what came before
            trial.summary = {key: [] for key in trial.summary} if fact.iteration > 0 else {}

    def _attempt_ended(self, fact: ev.AttemptEnded) -> None:
        trial = self._by_id[fact.trial]
        if fact.why != "halted" or trial.next_start is not None:
            trial.unsaved = {}  # else its caller may outlive the driver, and save it still
        self._rests(trial, fact)
        if fact.why == "failed":
            trial.num_failures += 1
            trial.failures_in_row += 1
        elif fact.why == "lost":
            trial.num_lost += 1
        trial.error = fact.error
        paused = fact.why in ("paused", "halted") and (trial.checkpoints or trial.started_from)
        self._status(trial, Trial.PAUSED if paused else Trial.PENDING)

    def _ended(self, fact: ev.TrialEnded) -> None:
        trial = self._by_id[fact.trial]
        trial.error = fact.error
        trial.ended_at, trial.end_reason = fact.at, fact.reason
        if trial.held:
            self._hold(trial, held=False)  # it has ended first; tried again, it runs
        trial.rested(fact.at, trial.iteration)
        self._status(trial, fact.status)
        self._borrows(trial)
        compact(trial)

    def _reopened(self, fact: ev.TrialReopened) -> None:
        trial = self._by_id[fact.trial]
        self._begun(fact.order)
        trial.error = None
        if trial.rests and trial.rests[-1].until == trial.ended_at:
            trial.rests[-1].until = None  # it was ended while it did not run
        elif trial.started_at is not None:
            trial.rest("failed" if trial.status == Trial.ERROR else "halted", trial.ended_at)
        trial.num_failures = trial.num_lost = trial.failures_in_row = 0
        trial.end_reason = None
        loosen(trial)
        if fact.anew:
            trial.started_from, trial.next_start, trial.lineage, trial.reused = None, None, [], None
            self._anew(trial, (trial.attempt_generation, trial.attempt + 1))
            self._begins(trial)
        self._status(trial, Trial.PENDING)
        self._borrows(trial)

    def _search_ended(self, fact: ev.SearchEnded) -> None:
        self.search_ended = fact.samples

    def _idle(self, fact: ev.Idle) -> None:
        """What came of it has facts of its own."""

    def _run_ended(self, fact: ev.RunEnded) -> None:
        self.run_ended = fact.why
        self._leave(fact.why)

    def _leave(self, why: str | None) -> None:
        """Let each trial that has not ended know what ended the run before it."""
        for trial in self._order:
            if not trial.is_finished():
                trial.__dict__["left"] = why


_APPLY: dict[type, Callable[[ExperimentState, Any], None]] = {
    kind: getattr(ExperimentState, f"_{kind.__struct_config__.tag}") for kind in get_args(ev.AnyFact)
}
"""Each kind of fact -> the method that is called as its tag."""
