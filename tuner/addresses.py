"""The checkpoint that an address means: `EXPERIMENT@TAG`, `EXPERIMENT@TRIAL@ITERATION`.

EXPERIMENT is a path, a name under the default storage, or a URI, whose journal is read. A path that exists is a path,
whatever stands in it; and where several parts of an address name experiments, the longest is the one that is meant.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from trainables.addresses import CheckpointAddress, Selector, address_in, checkpoint_address
from trainables.checkpoint import Checkpoint
from trainables.errors import CheckpointNotFoundError
from trainables.places import is_elsewhere, parent_and_name
from trainables.quick_dataclass import dataclass
from trainables.store.manifest import MANIFEST_NAME
from trainables.transfer.open import open_backend, shown
from trainables.validation import nearest_name
from tuner.error import ExperimentNotFoundError, OrderError, SettingError
from tuner.experiment.finding import find_experiment
from tuner.experiment.paths import ExperimentPaths, as_local_path
from tuner.experiment.reader import load_state
from tuner.experiment.trial import Trial
from tuner.experiment.trial_records import CheckpointRecord
from tuner.experiment.trials import find_trial

TAGS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class FoundCheckpoint:
    """A checkpoint that an experiment keeps."""

    experiment: str
    """Its directory, or its URI."""
    trial: Trial
    record: CheckpointRecord

    @property
    def checkpoint(self) -> Checkpoint:
        """Here where it is here, else where there is a copy, fetched when it is used."""
        return self.trial.open_checkpoint(self.record)


def checkpoint_at(given: str | os.PathLike[str] | CheckpointAddress) -> FoundCheckpoint | None:
    """The checkpoint that is meant; None: this is no address, or names no experiment, or is the path of something.

    Raises CheckpointNotFoundError where the experiment has no such checkpoint, with the tags that it has.
    """
    address = given if isinstance(given, CheckpointAddress) else address_in(given)
    if address is None or _is_there(address):
        return None
    for experiment, selector in address.readings():
        found = _trials_of(experiment, address)
        if found is not None:
            place, trials = found
            return FoundCheckpoint(place, *selected(trials, selector, of=place))
    return None


def is_address(given: str | os.PathLike[str]) -> bool:
    """Whether it names a checkpoint of an experiment that is there. Raises CheckpointNotFoundError if that has none."""
    return checkpoint_at(given) is not None


def ordered(given: str, trials: Callable[[], Sequence[Trial]]) -> tuple[str, int]:
    """(trial, iteration) of a checkpoint as orders name it: "3@40", or by its tag.

    Args:
        trials: those of the experiment, read where they are needed: for a tag.

    Raises OrderError for what is neither, CheckpointNotFoundError for a tag that there is not.
    """
    selector = Selector.read(given) if isinstance(given, str) else None
    if selector is None:
        raise OrderError(
            f"checkpoint={given!r:.90} is not accepted; accepted are TRIAL@ITERATION, as 3@40, and a tag "
            "(a trial whose name has an @ or a / goes by its number)"
        )
    if not selector.tag:
        return selector.trial, selector.iteration
    trial, record = selected(trials(), selector)
    return trial.trial_id, record.iteration


def selected(trials: Sequence[Trial], selector: Selector, *, of: str = "") -> tuple[Trial, CheckpointRecord]:
    """The checkpoint of one of these trials that has a tag, or the newest of an iteration.

    Args:
        of: what the experiment is called in messages.

    Raises CheckpointNotFoundError, which names what there is, the nearest first.
    """
    there = (
        f"there is no checkpoint {checkpoint_address(shown(of), selector)}"
        if of
        else f"there is no checkpoint {selector}"
    )
    if selector.tag:
        tagged = {tag: (trial, record) for trial in trials for record in trial.checkpoints for tag in record.tags}
        if selector.tag in tagged:
            return tagged[selector.tag]
        raise CheckpointNotFoundError(f"{there}: {_tags_text(selector.tag, list(tagged), trials)}")
    trial = find_trial(trials, selector.trial)
    if trial is None:
        near = nearest_name(selector.trial, [one.trial_id for one in trials])
        hint = f"; did you mean {near!r}?" if near else f"; there are {len(trials)}, numbered from 0"
        raise CheckpointNotFoundError(f"{there}: there is no trial {selector.trial!r}{hint}")
    found = [record for record in trial.checkpoints if record.iteration == selector.iteration]
    if not found:
        kept = ", ".join(str(record.iteration) for record in trial.checkpoints[-10:]) or "none"
        raise CheckpointNotFoundError(f"{there}: {trial.name} has those of iterations {kept}")
    return trial, found[-1]


def _tags_text(wanted: str, tags: list[str], trials: Sequence[Trial]) -> str:
    near = nearest_name(wanted, tags)
    tags = sorted(tags, key=lambda tag: (tag != near, tag))
    more = f" and {len(tags) - TAGS_SHOWN} more" if len(tags) > TAGS_SHOWN else ""
    hint = f"; did you mean {near!r}?" if near else ""
    said = f"its tags are {', '.join(tags[:TAGS_SHOWN])}{more}{hint}" if tags else "nothing is tagged there"
    trial = find_trial(trials, wanted)
    return said if trial is None else f"{said}; one of trial {trial.index} is {wanted}@ITERATION"


def _is_there(address: CheckpointAddress) -> bool:
    """Whether the whole of it is the path or URI of something."""
    text = address.text
    if not is_elsewhere(text):
        try:
            return as_local_path(address.anchored(text)).exists()
        except (SettingError, OSError):
            return False
    above, name = parent_and_name(text)
    if not name:
        return False
    with open_backend(above) as backend:
        return any(backend.exists(f"{name}/{file}") for file in (MANIFEST_NAME, "experiment.json"))


def _trials_of(experiment: str, address: CheckpointAddress) -> tuple[str, Sequence[Trial]] | None:
    """An experiment's place, and its trials; None: there is none of that name."""
    try:
        if not is_elsewhere(experiment):
            root = _found(experiment, address)
            return str(root), load_state(ExperimentPaths(root)).trials
        if not parent_and_name(experiment)[1]:
            return None
        from tuner.syncer import views

        with views.view(experiment) as paths:
            return experiment, views.opened_from(experiment, load_state(paths)).trials
    except (ExperimentNotFoundError, SettingError):
        return None


def _found(experiment: str, address: CheckpointAddress) -> Path:
    """As everywhere: what lies where it was said comes before the default storage."""
    try:
        return find_experiment(address.anchored(experiment))
    except ExperimentNotFoundError:
        return find_experiment(experiment)
