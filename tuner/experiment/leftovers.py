"""What earlier drivers left in the trials' directories: removed, set aside, or a reason not to go on."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from pathlib import Path

from trainables.errors import CheckpointError
from trainables.store import delete, fs, manifest, staging, verify
from trainables.store.manifest import Published
from trainables.wire import CheckpointRef
from tuner.error import ExperimentDamagedError
from tuner.experiment import events as ev
from tuner.experiment.holding import is_held
from tuner.experiment.journal import JournalContents
from tuner.experiment.paths import ExperimentPaths, TrialPaths, parse_checkpoint
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial


def remove_halves(state: ExperimentState, touched: Container[str]) -> None:
    """Remove saves that never ended, and end deletions that had begun, of all trials that may have some.

    `touched`: ids of trials that the journal speaks of since its last snapshot.
    """
    for leftover in verify.leftovers(state.root):
        fs.rmtree(leftover)
    for trial in state.trials:
        if trial.status != Trial.TERMINATED or trial.forgotten or trial.trial_id in touched:
            for leftover in () if is_held(trial.directory) else verify.leftovers(trial.directory):
                fs.rmtree(leftover)
            delete.finish_deletes(trial.directory)


def remove_views(root: Path) -> None:
    """Remove what killed processes had laid out to be copied elsewhere; none works on the experiment any more."""
    directories = [root / name for name in fs.listdir(root) if not name.startswith(".")]
    for directory in (root, *directories):
        for leftover in verify.leftovers(directory, staging.VIEW_PREFIX):
            fs.remove_quietly(leftover)


def clear_void(paths: ExperimentPaths, state: ExperimentState, let_go: Container[tuple[str, str]]) -> list[str]:
    """Clear away checkpoints that are no part of the history which went on elsewhere, and say so.

    Those that it never knew, for they had not been copied, are set aside; what was set aside earlier goes then. Those
    that it knew and let go of are removed: `let_go` has the (trial id, name) of them.
    """
    void = []
    for trial in state.trials:
        known = {record.ref.name for record in trial.checkpoints} | {ref.name for ref in trial.forgotten}
        for found in verify.list_checkpoints(trial.directory):
            if found.ref.trial_id != trial.trial_id or found.ref.name in known:
                continue
            if (trial.trial_id, found.ref.name) in let_go:
                delete.delete(found.path)
            else:
                void.append(found.path)
    if not void:
        return []
    remove_set_aside(paths)
    for path in void:
        fs.make_dirs(paths.set_aside / path.parent.name)
        fs.rename(path, paths.set_aside / path.parent.name / path.name)
    return [
        f"{len(void)} checkpoints that were saved here and never copied are no part of the history that went on "
        f"elsewhere: set aside in {paths.set_aside}, which a later run removes when it has finished"
    ]


def remove_set_aside(paths: ExperimentPaths) -> None:
    """Remove what `clear_void` set aside."""
    if fs.exists(paths.set_aside):
        fs.rmtree(paths.set_aside)


class Look:
    """Lists trials' checkpoints for `reconcile`, and remembers what else there was."""

    def __init__(self) -> None:
        self._seen: list[verify.LocalListing] = []

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
            verify.quarantine(path)
        for broken in (broken for listing in self._seen for broken in listing.broken):
            if fs.exists(broken.where):  # published, and the driver killed before the journal knew
                notes.append(f"checkpoint {broken.where} is incomplete: set aside, not used ({broken.reason})")
                verify.quarantine(broken.where)
        for unknown in (path for listing in self._seen for path in listing.unknown):
            if unknown.name.startswith("checkpoint") and fs.exists(unknown):
                notes.append(f"{unknown} is no checkpoint of that trial: left alone, not used")
        return notes


def check_nothing_lost(paths: ExperimentPaths, contents: JournalContents, state: ExperimentState) -> None:
    """Raise ExperimentDamagedError if a part of the journal, or all of it, is lost, and what trials did with it.

    An attempt is in the journal before its process starts: a checkpoint of a later one than the journal knows says that
    the journal's end is gone. (One of an older generation says nothing: what that did after it was taken over is void.)
    """
    known = {trial.dirname for trial in state.trials}
    file = paths.journal / contents.damaged[0].segment if contents.damaged else paths.journal
    for name in trials_with_results(paths, but=known):
        later = _later(paths.root / name, (contents.generation, 0))
        if contents.damaged or not state.trials or later:
            raise ExperimentDamagedError(
                f"{file} is damaged or missing, and what it said of {name}, which has results, is lost. Bring it back "
                "from a copy; to go on without that trial, move its directory away; overwrite=True replaces everything"
            )
    for trial in state.trials:
        if trial.status == Trial.TERMINATED:
            continue
        known_to = max((contents.generation, 0), (trial.attempt_generation, trial.attempt))
        for ref in _later(trial.directory, known_to):
            raise ExperimentDamagedError(
                f"{trial.directory / ref.name} was saved by attempt {ref.attempt} of generation {ref.generation}, of "
                f"which {file} does not know: its last part is lost. Bring it back from a copy; to go on from an older "
                "checkpoint, move that one away; overwrite=True replaces everything"
            )


def _later(directory: Path, known: tuple[int, int]) -> list[CheckpointRef]:
    """Published checkpoints of a trial that a later (generation, attempt) saved; most names say that it did not."""
    found = []
    for name in fs.listdir(directory) if fs.is_dir(directory) else ():
        saved = parse_checkpoint(name)
        if saved is not None and saved > known:
            try:
                ref = manifest.read(directory / name).ref
            except CheckpointError:
                continue  # not published, or not to be read: `Look` says so
            found += [ref] if ref.name == name and ref.order[:2] > known else []
    return found


def trials_with_results(paths: ExperimentPaths, *, but: Container[str] = ()) -> Iterator[str]:
    """Directories of trials that have a result or a complete checkpoint, whatever the journal says."""
    for name in fs.listdir(paths.root):
        if name in but:
            continue
        trial = TrialPaths(paths.root / name)
        if not trial.trial_json.exists():
            continue
        reported = trial.result_json.exists() and fs.size(trial.result_json) > 0
        if reported or verify.list_checkpoints(trial.root):
            yield name
