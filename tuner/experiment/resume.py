"""Resume: what the words mean, and the join of the journal with the manifests on disk (design rule R4).

Everything here decides; nothing is changed on disk. `reconcile` looks at the trial directories through the store and
returns the facts that bring the state up to what is really there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from pathlib import Path

import msgspec

from trainables import tagged
from trainables.quick_dataclass import dataclass
from trainables.store.manifest import Published
from trainables.validation import nearest_name
from trainables.wire import CheckpointRef
from tuner.error import SettingError
from tuner.experiment import events as ev
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial
from tuner.experiment.trial_records import CheckpointRecord


class Base(Enum):
    """Where a resume looks for the experiment, and what it does when there is none."""

    NEW = "NEW"
    """Never resume; an experiment with results under that name is an error."""
    LOCAL = "LOCAL"
    """The local directory has to hold it."""
    REMOTE = "REMOTE"
    """The replica has to hold it."""
    AUTO = "AUTO"
    """Resume if there is one, else start."""
    PROMPT = "PROMPT"
    """Ask on the terminal."""


class Errored(Enum):
    """What happens to errored trials."""

    SHOW = "show"
    """They stay as they are, with their checkpoints."""
    CONTINUE = "continue"
    """They go on from their newest checkpoint."""
    RESTART = "restart"
    """They begin anew; their earlier checkpoints are not used."""


@dataclass(frozen=True, slots=True)
class Resume:
    """One resume word, understood."""

    base: Base
    errored: Errored = Errored.SHOW
    only_errored: bool = False
    """Leave unfinished trials as they are, create none, and run only the errored ones, if those."""


_SUFFIXES = {
    "ERRORED": (Errored.CONTINUE, False),
    "RESTART_ERRORED": (Errored.RESTART, False),
    "ERRORED_ONLY": (Errored.CONTINUE, True),
    "RESTART_ERRORED_ONLY": (Errored.RESTART, True),
}
_BASES = ("LOCAL", "REMOTE", "PROMPT", "AUTO")
_WORDS = ("ERRORED_ONLY", *_BASES, *(f"{base}+{suffix}" for base in _BASES for suffix in _SUFFIXES))
ACCEPTED = (
    'False, True, "LOCAL", "REMOTE", "PROMPT", "AUTO", "ERRORED_ONLY", and "LOCAL", "REMOTE", "PROMPT" or "AUTO" '
    "followed by +ERRORED, +RESTART_ERRORED, +ERRORED_ONLY or +RESTART_ERRORED_ONLY"
)


def parse(word: Resume | bool | str | None) -> Resume:
    """Understand `resume=`; SettingError lists what is accepted."""
    if isinstance(word, Resume):
        return word
    if word is None or word is False:
        return Resume(Base.NEW)
    if word is True:
        return Resume(Base.LOCAL)
    if isinstance(word, str):
        if word == "ERRORED_ONLY":
            return Resume(Base.LOCAL, Errored.CONTINUE, only_errored=True)
        base, _, suffix = word.partition("+")
        if base in _BASES and (not _ or suffix in _SUFFIXES):
            return Resume(Base(base), *_SUFFIXES[suffix]) if suffix else Resume(Base(base))
    near = nearest_name(word, _WORDS) if isinstance(word, str) else None
    hint = "accepted are" if near is None else f"did you mean {near!r}? Accepted are"
    raise SettingError(f"resume={word!r} is not accepted; {hint} {ACCEPTED}")


ListCheckpoints = Callable[[Path], Iterable[Published]]
"""(trial directory) -> the complete checkpoints in it, any order; a missing directory holds none."""
Elsewhere = Callable[[Trial, CheckpointRef], bool]
"""(trial, checkpoint) -> whether it is complete in a replica, and can be fetched from there."""
LetGo = Callable[[Trial], Iterable[Published]]
"""(trial) -> checkpoints that a replica holds complete and the trial does not have any more."""


def reconcile(
    state: ExperimentState,
    *,
    listed: ListCheckpoints,
    resume: Resume,
    now: float,
    elsewhere: Elsewhere = lambda trial, ref: False,
    let_go: LetGo = lambda trial: (),
    fetched: bool = False,
) -> tuple[list[ev.AnyFact], list[str]]:
    """Bring `state` up to what lies on disk, and in a replica; only unfinished trials are looked at.

    With `fetched` the journal came from the replica: a trial has ended only if its latest checkpoint is there too, and
    of what finished trials keep only what arrived is left.
    Returns the facts, which are applied to `state` already, and the warnings to show.
    """
    facts: list[ev.AnyFact] = []
    notes: list[str] = []

    def add(fact: ev.AnyFact) -> None:
        state.apply(fact)
        facts.append(fact)

    for trial in state.trials:
        if trial.status == Trial.TERMINATED:
            lost = _lost(trial, listed, elsewhere) if fetched else []
            latest = trial.latest_checkpoint
            if latest is None or latest.ref not in lost:
                for ref in lost:
                    notes.append(f"{trial.name}: checkpoint {ref.name} did not arrive at the replica; it is lost")
                    add(ev.CheckpointSetAside(ref, "did not arrive"))
                continue
            notes.append(f"{trial.name} had ended, and its checkpoint {latest.ref.name} did not arrive: it goes on")
            add(ev.TrialReopened(trial.trial_id))
        if trial.status == Trial.ERROR:
            if resume.errored is Errored.SHOW and not (trial.error and trial.error.disk):
                if fetched and _lost(trial, listed, elsewhere):
                    _join(trial, listed(trial.directory), add, notes, now, elsewhere, fetched)
                    _take_back(trial, let_go(trial), add, now)
                continue
            add(ev.TrialReopened(trial.trial_id, anew=resume.errored is Errored.RESTART))
        elif resume.only_errored:
            if trial.status == Trial.RUNNING:
                add(ev.AttemptEnded(trial.trial_id, trial.attempt, "halted"))
            continue
        latest = trial.latest_checkpoint
        _join(trial, listed(trial.directory), add, notes, now, elsewhere, fetched)
        _take_back(trial, let_go(trial), add, now)
        if trial.status == Trial.RUNNING:
            if trial.is_stopped and (latest is None or latest in trial.checkpoints):
                # Decided before the kill, only not written down as ended; nothing is to be saved any more.
                add(ev.TrialEnded(trial.trial_id, "TERMINATED", now, reason=trial.told_reason))
            else:
                add(ev.AttemptEnded(trial.trial_id, trial.attempt, "halted"))
    return facts, notes


def _lost(trial: Trial, listed: ListCheckpoints, elsewhere: Elsewhere) -> list[CheckpointRef]:
    """What the trial keeps and is neither in the replica nor here."""
    missing = [record.ref for record in trial.checkpoints if not elsewhere(trial, record.ref)]
    here = {item.ref.order for item in listed(trial.directory)} if missing else set()
    return [ref for ref in missing if ref.order not in here]


def _join(
    trial: Trial,
    found: Iterable[Published],
    add: Callable[[ev.AnyFact], None],
    notes: list[str],
    now: float,
    elsewhere: Elsewhere,
    fetched: bool,
) -> None:
    """Adopt what the lineage published and the journal does not know; drop what is not there any more.

    Of attempts before the last everything that counts is journaled. What a power cut brought back of them is adopted
    all the same, for retention to let go of it again; but not beside a history that went on elsewhere, for which it may
    be void.
    """
    adopted = set(trial.lineage[-1:] if fetched else trial.lineage)
    on_disk = {item.ref.order: item for item in found if item.ref.trial_id == trial.trial_id}
    known = {record.order for record in trial.checkpoints}
    gone = {ref.order for ref in trial.forgotten}
    for order in sorted(on_disk):
        item = on_disk[order]
        if order in known or order in gone or order[:2] not in adopted:
            continue
        add(ev.CheckpointPublished(item.ref, item.manifest.bytes, item.digest, now, item.manifest.metrics))
    for record in list(trial.checkpoints):
        if record.order not in on_disk and not elsewhere(trial, record.ref):
            notes.append(f"{trial.name}: checkpoint {record.ref.name} is missing or incomplete on disk; it is not used")
            add(ev.CheckpointSetAside(record.ref, "missing or incomplete"))


def _take_back(trial: Trial, found: Iterable[Published], add: Callable[[ev.AnyFact], None], now: float) -> None:
    """The newest that was let go of counts again where everything newer is lost with the disk that it was on."""
    own = candidates(trial)
    newer = [item for item in found if not own or item.ref.order > own[0].order]
    if newer:
        item = max(newer, key=lambda item: item.ref.order)
        add(ev.CheckpointPublished(item.ref, item.manifest.bytes, item.digest, now, item.manifest.metrics))


def candidates(trial: Trial) -> list[CheckpointRecord]:
    """The trial's own checkpoints that its next attempt may start from, the best candidate first."""
    return trial.own_checkpoints[::-1]


def start_of(trial: Trial, record: CheckpointRecord | None) -> tuple[CheckpointRef | None, int, float]:
    """(checkpoint, iteration, time_total_s) that an attempt from `record` starts with; a clone's counts are its own."""
    if record is None:
        return None, 0, 0.0
    own = record.ref.trial_id == trial.trial_id
    begins = trial.fork is not None and record.ref == trial.fork.donor
    spent = (record.metrics if own or begins else trial.last_result).get("time_total_s")
    iteration = record.iteration if own else trial.clone_iteration
    return record.ref, iteration, float(spent) if isinstance(spent, (int, float)) else 0.0


def raw(value: object) -> msgspec.Raw:
    """A value as tagged JSON, ready to stand in a fact."""
    return msgspec.Raw(tagged.dumps(value))
