"""What earlier experiments have trained already: `reuse=`. They are read, and never changed.

A trial with a config that was trained there begins with that one's results, and with a copy of its checkpoint, whose
bytes are verified.
"""

from __future__ import annotations

import datetime
import logging
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from trainables import tagged
from trainables.addresses import checkpoint_address
from trainables.errors import CheckpointCorruptError, CheckpointError, TrainablesError
from trainables.quick_dataclass import dataclass
from trainables.result_history import RESULT_FILE, read_history
from trainables.store import fs, publish, staging, verify
from trainables.store.manifest import Manifest
from trainables.store.publish import PreparedCheckpoint
from trainables.transfer.open import shown
from trainables.wire import CheckpointRef
from tuner.error import SettingError, TuneError
from tuner.experiment.config_key import config_key
from tuner.experiment.continuing import resume_words
from tuner.experiment.finding import find_experiment
from tuner.experiment.paths import ExperimentPaths, is_elsewhere
from tuner.experiment.reader import is_experiment, load_state, read_settings
from tuner.experiment.reason import ReasonKind
from tuner.experiment.reused import Reused
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial
from tuner.experiment.trial_records import CheckpointRecord
from tuner.opening.trainable_code import edited_since, fingerprint_of, fingerprint_parts
from tuner.spec import Spec
from tuner.syncer import views

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EarlierCheckpoint:
    """A checkpoint of an earlier experiment."""

    experiment: str
    """Its directory, or its URI, as it may be shown."""
    trial: Trial
    record: CheckpointRecord

    @property
    def lineage(self) -> Reused:
        """As the fact of a start from it says it."""
        return Reused(self.experiment, self.trial.trial_id, self.record.iteration)

    def __str__(self) -> str:
        return checkpoint_address(self.experiment, f"{self.trial.index}@{self.record.iteration}")


@dataclass(frozen=True, slots=True)
class StagedReuse:
    """A copy of an earlier checkpoint that is ready to be published, and the results up to it."""

    source: EarlierCheckpoint
    prepared: PreparedCheckpoint
    results: Sequence[tuple[int, msgspec.Raw]]
    """(iteration, the whole result), oldest first."""

    def discard(self) -> None:
        """It is not wanted any more."""
        fs.remove_quietly(self.prepared.staged)


class EarlierTrials:
    """The checkpoints of earlier experiments, by the config that they were trained with."""

    def __init__(self) -> None:
        self._found: dict[bytes, list[EarlierCheckpoint]] = {}

    def add(self, experiment: str, state: ExperimentState) -> int:
        """Note what an experiment has; returns how many of its trials can be gone on from."""
        number = 0
        for trial in state.trials:
            kept = [] if trial.clones else [record for record in trial.own_checkpoints if record.iteration > 0]
            if kept:  # a clone was not trained with its config from the beginning
                number += 1
                found = self._found.setdefault(config_key(bytes(trial.raw_config)), [])
                found += [EarlierCheckpoint(experiment, trial, record) for record in kept]
        return number

    def of(self, trial: Trial) -> list[EarlierCheckpoint]:
        """What a trial may begin with that has no checkpoint: the deepest first.

        One that began so before, in a life that was cut off, does it again, and with the same one.
        """
        found = self._found.get(config_key(bytes(trial.raw_config)), [])
        if trial.attempt:
            before = trial.reused
            found = [each for each in found if before is not None and each.lineage.is_of(before)]
        return sorted(found, key=lambda each: -each.record.iteration)


# --- at the start -------------------------------------------------------------------------------------------------


class ReadEarlier(NamedTuple):
    """What `reuse=` names."""

    trials: EarlierTrials | None = None
    """None: nothing."""
    told: Sequence[str] = ()
    """A line about each experiment, for the user."""


def read_earlier(spec: Spec, paths: ExperimentPaths, ends: ExitStack, *, resumes: bool) -> ReadEarlier:
    """Read what `reuse=` names.

    Args:
        ends: removes at the end of the run what was brought here for it.
        resumes: the run has begun before: what is wrong with an experiment by now is a warning.

    Raises SettingError for one that cannot be reused, what reading it raises.
    """
    if not spec.reuse:
        return ReadEarlier()
    found, lines = EarlierTrials(), list[str]()
    for place in spec.reuse:
        try:
            lines.append(_read(found, place, spec, paths, ends))
        except (TuneError, TrainablesError) as error:
            if not resumes:
                raise
            log.warning("trials that have not begun train from nothing: %s", error)
    return ReadEarlier(found, lines)


def _read(found: EarlierTrials, place: str, spec: Spec, paths: ExperimentPaths, ends: ExitStack) -> str:
    if is_elsewhere(place):
        directory = Path(ends.enter_context(tempfile.TemporaryDirectory(prefix="tuner-reuse-")))
        with views.view(place, views.results) as there:
            settings, state = read_settings(there), views.opened_from(place, load_state(there))
            _refuse(place, settings, spec)
            for trial in state.trials:  # whoever looks next at that place replaces what was brought here
                _keep_results(trial, directory / trial.dirname)
    else:
        beside = spec.storage / place  # by its bare name
        root = beside if is_experiment(ExperimentPaths(beside)) else find_experiment(place)
        if root.resolve() == paths.root.resolve():
            raise SettingError(
                f"reuse={place!r} is this experiment itself: {resume_words(paths.root, spec.started_by)} continues it"
            )
        settings, state = read_settings(ExperimentPaths(root)), load_state(ExperimentPaths(root))
        place = str(root)
        _refuse(place, settings, spec)
    number = found.add(shown(place), state)
    return f"reuse: {number} of the {len(state.trials)} trials of {shown(place)} have checkpoints to go on from"


def _keep_results(trial: Trial, directory: Path) -> None:
    file = trial.directory / RESULT_FILE
    fs.make_dirs(directory)
    if fs.exists(file):
        shutil.copyfile(file, directory / RESULT_FILE)
    trial.__dict__["root"] = directory


def _refuse(place: str, settings: Mapping[str, Any], spec: Spec) -> None:
    """Raise SettingError where the trainable is not, or is not known to be, the one that was trained there."""
    before, now, name = settings.get("code"), fingerprint_of(spec.trainable), settings.get("trainable")
    if (before, name) == (now, spec.trainable_name):
        return
    told = f"reuse={shown(place)!r} is refused: it was trained with"
    if name != spec.trainable_name:
        raise SettingError(f"{told} the trainable {name!r}, and this run has {spec.trainable_name!r}")
    way = "train without reuse=, or with the code of then"
    if not isinstance(before, str) or before.partition(":")[0] != now.partition(":")[0]:
        recorded = before.partition(":")[0] if isinstance(before, str) and before else "none"
        raise SettingError(
            f"{told} {name!r} as another Python compiled it (recorded: {recorded}, here: {now.partition(':')[0]}), so "
            f"that nobody knows whether it is the same; {way}"
        )
    created = str(settings.get("created"))
    edited = edited_since(spec.trainable, _seconds(created))
    where = f" ({edited} was written to since it was started, {created})" if edited else ""
    then, here = settings.get("code_parts"), fingerprint_parts(spec.trainable)
    then = then if isinstance(then, dict) else {}  # an older version did not record it
    another = [part for part in sorted({*then, *here}) if then.get(part) != here.get(part)] if then else []
    which = ", ".join(another) or f"{name}, or of what of its module it calls"
    raise SettingError(f"{told} other code of {which}{where}; {way}")


def _seconds(created: str) -> float:
    try:
        return datetime.datetime.fromisoformat(created).timestamp()
    except ValueError:
        return float("inf")


# --- for a trial --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReusePlan:
    """What is to be laid out for a trial; done beside the loop."""

    trial: Trial
    found: Sequence[EarlierCheckpoint]
    """The deepest first."""
    refs: Mapping[int, CheckpointRef]
    """Iteration -> what the copy of a checkpoint of it will be."""
    created: float

    def stage(self) -> StagedReuse | None:
        """Lay out the deepest that is whole. None: none is; a warning names all that are not."""
        for left in verify.leftovers(self.trial.directory):
            fs.remove_quietly(left)  # of a driver that was killed at this
        problems: list[str] = []
        staged = next((done for each in self.found if (done := self._stage(each, problems)) is not None), None)
        if problems:
            begins = "from nothing" if staged is None else f"from {staged.source}"
            log.warning("%s starts %s, for reuse= failed: %s", self.trial.name, begins, "; ".join(problems))
        return staged

    def _stage(self, each: EarlierCheckpoint, problems: list[str]) -> StagedReuse | None:
        record, iteration = each.record, each.record.iteration
        try:
            results = list(self._results(each))
            path = Path(each.trial.open_checkpoint(record).fetched().path)
            before = verify.check(path, digest=record.digest or None)
            staged = staging.lend(path, self.trial.directory, "reused")
            prepared = publish.prepare(
                staged, ref=self.refs[iteration], metrics=results[-1][1], created=self.created, extra=before.extra
            )
            if _contents(prepared.manifest) != _contents(before):
                fs.remove_quietly(staged)
                raise CheckpointCorruptError(f"{path} changed while it was copied")
        except (CheckpointError, TrainablesError, TuneError, OSError) as error:
            problems.append(f"{each}: {error}")
            return None
        return StagedReuse(each, prepared, results)

    def _results(self, each: EarlierCheckpoint) -> Iterator[tuple[int, msgspec.Raw]]:
        """The results up to a checkpoint, as this trial's; the last is the one that belongs to it."""
        trial, until = each.trial, each.record.iteration
        rows = {row.get("training_iteration"): row for row in read_history(trial.directory / RESULT_FILE)}
        told = [at for at, row in rows.items() if isinstance(at, int) and 0 < at < until and not row.get("missing")]
        ended = trial.end_reason is not None and trial.end_reason.kind is ReasonKind.DONE
        said_done = ended and trial.iteration == until and bool(each.record.metrics.get("done"))
        for iteration in sorted(told):
            yield iteration, self._own(rows[iteration], done=False)
        yield until, self._own({**each.record.metrics, "training_iteration": until}, done=said_done)

    def _own(self, result: Mapping[str, Any], *, done: bool) -> msgspec.Raw:
        own = {"trial_id": self.trial.trial_id, "experiment_tag": self.trial.experiment_tag, "done": done}
        return msgspec.Raw(tagged.dumps({**result, **{key: value for key, value in own.items() if key in result}}))


def _contents(manifest: Manifest) -> dict[str, tuple[int, str]]:
    return {entry.name: (entry.size, entry.blake3) for entry in manifest.files}
