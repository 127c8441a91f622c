"""How the history that a replica has of an experiment stands to the one here.

"Newer" is by the chain of generations (design.md section 7), never by a clock: the side whose chain names the other's
newest generation continues it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec

from trainables.errors import ObjectNotFoundError
from trainables.places import child_of
from trainables.store import fs
from tuner.experiment import events as ev
from tuner.experiment.generations import decode_record
from tuner.experiment.journal import JournalContents, read_journal
from tuner.experiment.paths import ExperimentPaths, is_history
from tuner.experiment.reader import facts_of, is_experiment, lies_at, read_settings
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial
from tuner.syncer.remote_experiment import RemoteExperiment, generation_of


class Relation(Enum):
    """How the replica's history stands to the one here."""

    ABSENT = "there is no replica"
    OLDER = "what is here continues it, or is the same"
    NEWER = "it continues what is here, or there is nothing here"
    DIVERGED = "each has a generation that the other lacks"


def relate(remote: RemoteExperiment, paths: ExperimentPaths, incoming: Path) -> Relation:
    """Compare a replica with what lies here, and bring its journal into `incoming` where that is needed to tell."""
    if not remote.exists:
        return Relation.ABSENT
    if is_experiment(paths) and read_settings(paths).get("id") != remote.settings().get("id"):
        remote.fetch_journal(incoming)
        return Relation.DIVERGED  # two experiments of one name
    with lies_at(incoming, remote.uri):
        if not paths.experiment_json.exists():
            read_journal(remote.fetch_journal(incoming))  # it can be
            return Relation.NEWER
        local = read_journal(paths)
        if remote.uploader.can.list and not _is_beyond(remote, local, paths):
            return Relation.OLDER
        return compare(local, read_journal(remote.fetch_journal(incoming)))


def _is_beyond(remote: RemoteExperiment, local: JournalContents, paths: ExperimentPaths) -> bool:
    """Whether a look at the names does not tell that everything remote is local too."""
    names = {key.removeprefix("journal/") for key in remote.keys if key.startswith("journal/") and not is_history(key)}
    if names - set(fs.listdir(paths.journal)):
        return True
    highest = max(filter(None, map(generation_of, remote.keys)), default=0)
    known = {(link.generation, link.id) for link in local.chain}
    return bool(highest) and highest <= local.generation and (highest, _owner_of(remote, highest)) not in known


def _owner_of(remote: RemoteExperiment, generation: int) -> str | None:
    """The id of the driver that had that generation; None: it left no record that can be read."""
    try:
        key = f"generations/{generation:06d}.json"
        return decode_record(remote.read(key), child_of(remote.uri, key)).id
    except (ObjectNotFoundError, msgspec.DecodeError):
        return None


def at_rest(contents: JournalContents, root: Path, whole: Mapping[str, Collection[str]]) -> set[str]:
    """Directories of trials that had ended when the last snapshot was written, and of which no fact speaks since then.

    Copies do not count. Not of those whose kept checkpoints are not all there (`whole`): they may go on.
    """
    return {
        trial.dirname
        for trial in _ended(contents, root)
        if {record.ref.name for record in trial.checkpoints} <= set(whole.get(trial.dirname, ()))
    }


def unchanged(local: JournalContents, remote: JournalContents, root: Path) -> set[str]:
    """Directories of trials that had ended at the last snapshot of both, and did not run in between."""

    def lives(contents: JournalContents) -> dict[str, tuple[Any, ...]]:
        return {
            trial.dirname: (
                trial.trial_id,
                trial.attempt_generation,
                trial.attempt,
                trial.iteration,
                trial.ended_at,
                bytes(trial.raw_result),
            )
            for trial in _ended(contents, root)
        }

    ours, theirs = lives(local), lives(remote)
    return {dirname for dirname, life in ours.items() if theirs.get(dirname) == life}


def _ended(contents: JournalContents, root: Path) -> list[Trial]:
    """Trials that had ended at the last snapshot, and of which no fact speaks since; that they were copied is none."""
    told = set()
    for fact in facts_of(ExperimentPaths(root), contents.bodies):
        if not isinstance(fact, ev.CheckpointCopied):
            told.add(getattr(fact, "trial", None) or getattr(getattr(fact, "ref", None), "trial_id", None))
    trials = ExperimentState.from_snapshot(root, contents.snapshot).trials
    return [trial for trial in trials if trial.status == Trial.TERMINATED and trial.trial_id not in told]


def compare(local: JournalContents, remote: JournalContents) -> Relation:
    """Which of two histories of one experiment continues the other.

    Of one generation both may hold a part: whoever has more of it is newer.
    """
    ours, theirs = ([(link.generation, link.id) for link in each.chain] for each in (local, remote))
    if not theirs:
        return Relation.OLDER
    if not ours:
        return Relation.NEWER
    if ours[-1] == theirs[-1]:
        return Relation.NEWER if remote.last_seq > local.last_seq else Relation.OLDER
    if theirs[-1] in ours:
        return Relation.OLDER
    return Relation.NEWER if ours[-1] in theirs else Relation.DIVERGED
