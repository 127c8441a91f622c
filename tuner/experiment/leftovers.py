"""What earlier drivers left in the trials' directories: removed, set aside, or a reason not to go on."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from pathlib import Path

from trainables.store import delete, fs, verify
from trainables.store.manifest import Published
from tuner.error import ExperimentDamagedError
from tuner.experiment import events as ev
from tuner.experiment.journal import JournalContents
from tuner.experiment.paths import ExperimentPaths, TrialPaths
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial


def remove_halves(state: ExperimentState, touched: Container[str]) -> None:
    """Remove saves that never ended, and end deletions that had begun, of all trials that may have some.

    `touched`: ids of trials that the journal speaks of since its last snapshot.
    """
    for trial in state.trials:
        if trial.status != Trial.TERMINATED or trial.forgotten or trial.trial_id in touched:
            for leftover in verify.leftovers(trial.directory):
                fs.rmtree(leftover)
            delete.finish_deletes(trial.directory)


class Look:
    """Lists trials' checkpoints for `reconcile`, and remembers what else there was."""

    def __init__(self) -> None:
        self._seen: list[verify.Listing] = []

    def listed(self, directory: Path) -> list[Published]:
        """The complete checkpoints in a trial's directory."""
        self._seen.append(verify.scan(directory))
        return self._seen[-1].complete

    def set_aside(self, state: ExperimentState, facts: Iterable[ev.AnyFact]) -> list[str]:
        """Hide what is incomplete, known to the journal or not; say so where no fact does. Nothing is deleted."""
        notes = []
        told = set()
        for fact in facts:
            trial = state.trials.get(fact.ref.trial_id) if isinstance(fact, ev.CheckpointSetAside) else None
            if isinstance(fact, ev.CheckpointSetAside) and trial is not None:
                told.add(trial.directory / fact.ref.name)
        for path in filter(fs.is_dir, told):
            verify.set_aside(path)
        for broken in (broken for listing in self._seen for broken in listing.broken):
            if fs.exists(broken.path):  # published, and the driver killed before the journal knew
                notes.append(f"checkpoint {broken.path} is incomplete: set aside, not used ({broken.reason})")
                verify.set_aside(broken.path)
        for unknown in (path for listing in self._seen for path in listing.unknown):
            if unknown.name.startswith("checkpoint") and fs.exists(unknown):
                notes.append(f"{unknown} is no checkpoint of that trial: left alone, not used")
        return notes


def check_nothing_lost(paths: ExperimentPaths, contents: JournalContents, state: ExperimentState) -> None:
    """Raise ExperimentDamagedError if a part of the journal, or all of it, is lost, and whole trials with it."""
    if not contents.damaged and state.trials:
        return
    known = {trial.dirname for trial in state.trials}
    file = paths.journal / contents.damaged[0] if contents.damaged else paths.journal
    for name in trials_with_results(paths):
        if name not in known:
            raise ExperimentDamagedError(
                f"{file} is damaged or missing, and what it said of {name}, which has results, is lost. Bring it back "
                "from a copy; to go on without that trial, move its directory away; overwrite=True replaces everything"
            )


def trials_with_results(paths: ExperimentPaths) -> Iterator[str]:
    """Directories of trials that have a result or a complete checkpoint, whatever the journal says."""
    for name in fs.listdir(paths.root):
        trial = TrialPaths(paths.root / name)
        if not trial.trial_json.exists():
            continue
        reported = trial.result_json.exists() and fs.size(trial.result_json) > 0
        if reported or verify.list_checkpoints(trial.root):
            yield name
