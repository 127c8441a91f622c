"""What a replica holds when a driver takes it up, held against what is kept: a value, from which its streams begin."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field

from trainables.quick_dataclass import dataclass
from trainables.store import fs
from trainables.wire import CheckpointRef
from tuner.experiment.paths import TrialPaths
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial
from tuner.syncer.remote_experiment import REPLACED, RemoteExperiment, complete, is_small

Checkpoint = tuple[str, str]
"""(trial directory, name)"""


@dataclass(frozen=True, slots=True)
class CheckpointOrigin:
    """Where a checkpoint lies that neither this machine nor the replica has."""

    place: str
    key: str


@dataclass(frozen=True, slots=True)
class RemoteTrialFiles:
    """Small files of a trial in a replica.

    Args:
        known: those of a trial whose local directory is as its last owner left it.
        void: those that have another name since then.
        lacking: those of an ended trial that are not here.
    """

    known: Collection[str] = ()
    void: Collection[str] = ()
    lacking: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Inventory:
    """What a replica holds. Names are relative to the experiment; of a checkpoint, its trial's directory counts.

    Args:
        names: of journal, blobs, history and result files (`journal/000001-000001.jsonl`).
        complete: checkpoints that are whole; None: it cannot be looked at, and only the facts say.
        partial: those of which a part is there.
        origins: from where those are copied that are neither here nor there.
        forgotten: what is there, whole or in part, of checkpoints that are not kept any more.
        unknown: partial ones of trials that are not in the journal yet.
        files: small files, by directories of trials.
        touched: ids of trials whose files may hold more here than there.
        replaced: what is void and goes first, in that order; `replaced_whole`: it is an experiment.
        replaced_directories: of that experiment.
        may_hold_orphans: it can be looked for what killed uploads left.
    """

    names: Collection[str] = ()
    complete: Mapping[str, Collection[str]] | None = field(default_factory=dict)
    partial: Mapping[str, Collection[str]] = field(default_factory=dict)
    origins: Mapping[Checkpoint, CheckpointOrigin] = field(default_factory=dict)
    forgotten: Sequence[tuple[Trial, CheckpointRef, bool]] = ()
    unknown: Mapping[str, Sequence[str]] = field(default_factory=dict)
    files: Mapping[str, RemoteTrialFiles] = field(default_factory=dict)
    touched: Collection[str] = ()
    replaced: Sequence[str] = ()
    replaced_whole: bool = False
    replaced_directories: Collection[str] = ()
    may_hold_orphans: bool = False


def take_inventory(
    remote: RemoteExperiment,
    state: ExperimentState,
    *,
    new: bool,
    void: Sequence[str] = (),
    touched: Collection[str] = (),
    origins: Mapping[Checkpoint, CheckpointOrigin] | None = None,
) -> Inventory:
    """Look at what is there.

    Args:
        new: the experiment is, and what is there is of another one.
        void: keys of a history that was not chosen.
        touched: ids of trials of which the journal speaks after its last snapshot.
        origins: of checkpoints that are copied from elsewhere.
    """
    can, listed = remote.uploader.can, {} if new else remote.checkpoints()
    replaced, whole = _replaced(remote, new=new, void=void)
    usable = complete(listed)
    for trial in state.trials:
        if trial.status != trial.TERMINATED and (names := usable.get(trial.dirname)):
            kept = names.intersection(record.ref.name for record in trial.checkpoints)
            names.difference_update([name for name in kept if remote.lacking(trial, name)])
    forgotten = [(trial, ref, False) for trial in state.trials if remote.partials for ref in remote.partials_of(trial)]
    for trial in state.trials if listed else ():
        found = remote.not_kept(trial, void=bool(void), given_up=True)
        forgotten += [(trial, ref, published is not None) for ref, published in found]
    known = {trial.dirname for trial in state.trials}
    return Inventory(
        names=set() if new else names_of(remote.keys),
        complete=usable if can.list else None,
        partial={dirname: set(names) - usable[dirname] for dirname, names in listed.items()},
        origins=origins or {},
        forgotten=forgotten,
        unknown={
            dirname: [name for name, is_whole in names.items() if not is_whole]
            for dirname, names in listed.items()
            if dirname not in known
        },
        files={} if new or void else _files(remote, state, touched),
        touched=touched,
        replaced=replaced,
        replaced_whole=whole,
        replaced_directories={key.partition("/")[0] for key in remote.keys} if new else (),
        may_hold_orphans=can.list and can.delete,
    )


def _replaced(remote: RemoteExperiment, *, new: bool, void: Sequence[str]) -> tuple[Sequence[str], bool]:
    """(names of what is void, whether it is a whole experiment)."""
    if new:
        keys = [key for key in remote.keys if not key.startswith("generations/")]
        keys.sort(key=lambda key: key != "experiment.json")  # first: nobody takes the rest for an experiment then
        return [*keys, *void], True
    if void:
        return void, REPLACED in void
    return ([REPLACED], False) if REPLACED in remote.keys else ((), False)  # nothing had gone yet


def _files(remote: RemoteExperiment, state: ExperimentState, touched: Collection[str]) -> dict[str, RemoteTrialFiles]:
    files: dict[str, list[str]] = {}
    for key in remote.keys:
        if is_small(key) and not key.startswith("blobs/"):
            files.setdefault(key.partition("/")[0], []).append(key.partition("/")[2])
    found = {}
    for trial in (trial for trial in state.trials if trial.dirname in files):
        names, ended = files[trial.dirname], trial.status == trial.TERMINATED
        local = set(fs.listdir(trial.directory)) if ended and fs.is_dir(trial.directory) else set()
        void = _renamed(names, local) if ended else []
        lacking = [name for name in names if ended and name not in local and name not in void]
        known = not lacking and (not ended or trial.trial_id in touched)
        found[trial.dirname] = RemoteTrialFiles(names if known else (), void, lacking)
    return found


def _renamed(remote: Collection[str], local: Collection[str]) -> list[str]:
    """Of a trial that has ended well: what has another name since then, and a killed driver had no time to say so."""
    error, recovered = TrialPaths.error_txt.name, TrialPaths.error_recovered_txt.name
    return [error] if error in remote and error not in local and (recovered in remote or recovered in local) else []


def names_of(keys: Iterable[str]) -> set[str]:
    """Those of which streams know that they are there."""
    return {key for key in keys if key.split("/")[0] in ("journal", "blobs") or key.endswith("/result.json")}
