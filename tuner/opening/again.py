"""A script that is run again: which experiment a call means that does not say so, or says `resume=True` and no name."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainables.quick_dataclass import dataclass
from tuner.error import ExperimentDamagedError, NewerFormatError, ResumeError
from tuner.experiment import existing
from tuner.experiment.existing import Existing, Rerun
from tuner.experiment.generations import read_records
from tuner.experiment.naming import aside_name, script_hash
from tuner.experiment.paths import ExperimentPaths, safe_name
from tuner.experiment.reader import is_experiment, read_settings
from tuner.experiment.resume import Base
from tuner.spec import Spec

_calls: Counter[tuple[Path, str, bool]] = Counter()
"""Runs that this process has started, by storage, name (or trainable, without a name), and whether it is a name."""


@dataclass(frozen=True, slots=True)
class Earlier:
    """An experiment that may be meant."""

    name: str
    description: Mapping[str, Any]
    since: float
    """When its newest life began, in seconds since the epoch."""

    @property
    def number(self) -> int:
        """Of its call in the process that made it; it was the first where nothing is known."""
        return int(self.description.get("call") or 1)


def settle(spec: Spec) -> Spec:
    """The spec with the experiment that it means, where that is found by looking at those of its storage.

    A script may start several runs of one name, or of one trainable without any: of those before it, `resume` means
    the one that was as manieth of its process. In a notebook or at a prompt each is the first, for cells are run again.

    Raises SettingError for TUNE_EXISTING, ResumeError where `resume=True` has no name and finds nothing.
    """
    word, number = existing.chosen(), _number(spec)
    spec = replace(spec, rerun=Rerun(word, number))
    base = spec.resume_choice.base
    if base is Base.LOCAL and spec.name is None and spec.restore is None:
        return _newest(spec)
    if base is not Base.NEW or spec.overwrite or word is not Existing.RESUME:
        return spec
    if spec.name is None:
        return _nameless(spec)
    if _is(spec, spec.name, number):
        return replace(spec, resume="AUTO")
    there = [one for one in _earlier(spec.storage) if _moved_from(spec.name, one) and one.number == number]
    if there:
        return _continuing(spec, there, f"which was {spec.name!r} before a later one took that name")
    if is_experiment(ExperimentPaths(spec.storage / spec.name)):
        return replace(spec, rerun=Rerun(Existing.ASIDE, number))  # it is of another call of this script
    return replace(spec, resume="AUTO")


def _newest(spec: Spec) -> Spec:
    """With the newest experiment of that trainable, for `resume=True` without a name."""
    every = list(_earlier(spec.storage))
    there = [one for one in every if one.description.get("trainable") == spec.trainable_name]
    if not there:
        names = ", ".join(f"{one.name} (of {one.description.get('trainable')!r})" for one in every[:10])
        raise ResumeError(
            f"resume={spec.resume!r} without a name continues the newest experiment of {spec.trainable_name!r}, and "
            f"there is none under {spec.storage}; there {f'are: {names}' if names else 'is no experiment at all'}. "
            'Give name=, or the storage_path in which it lies; resume="AUTO" starts anew where there is none'
        )
    return _continuing(spec, there, f"the newest experiment of {spec.trainable_name!r} under {spec.storage}")


def _nameless(spec: Spec) -> Spec:
    """With the newest run of the same call of the same script; a new one where there is none."""
    stem, script = f"{safe_name(spec.trainable_name, limit=60)}_", script_hash(spec.trainable, spec.trainable_name)

    def fits(one: Earlier) -> bool:
        same = one.description.get("script", script) == script and one.number == spec.rerun.number
        return same and one.name.startswith(stem) and one.description.get("trainable") == spec.trainable_name

    there = [one for one in _earlier(spec.storage) if fits(one)]
    if not there:
        return spec
    return _continuing(replace(spec, resume="AUTO"), there, "the newest one of this script without a name")


def _continuing(spec: Spec, there: list[Earlier], note: str) -> Spec:
    """With the newest of these."""
    newest = max(there, key=lambda one: (one.since, one.name))
    resume = spec.resume if spec.resume_choice.base is not Base.NEW else "AUTO"
    return replace(spec, name=newest.name, resume=resume, rerun=replace(spec.rerun, note=note))


def _number(spec: Spec) -> int:
    main = sys.modules.get("__main__")
    if not getattr(main, "__file__", None):
        return 1
    key = (spec.storage, spec.name or spec.trainable_name, spec.name is not None)
    _calls[key] += 1
    return _calls[key]


def _is(spec: Spec, name: str, number: int) -> bool:
    """Whether that experiment is here, and of that call."""
    found = _look(spec.storage / name)
    return found is not None and found.number == number


def _moved_from(name: str, one: Earlier) -> bool:
    """Whether it is `TUNE_EXISTING=aside` that gave it its name: `e.1` may be somebody's own name."""
    _, _, number = one.name.rpartition(".")
    said = one.description.get("moved_from"), one.description.get("name")  # the latter: killed before it was written
    return number.isdecimal() and one.name == aside_name(name, number) and name in said


def _earlier(storage: Path) -> Iterator[Earlier]:
    """The experiments in a directory that can be read."""
    for entry in sorted(storage.iterdir()) if storage.is_dir() else ():
        if (found := _look(entry)) is not None:
            yield found


def _look(root: Path) -> Earlier | None:
    paths = ExperimentPaths(root)
    if not is_experiment(paths):
        return None
    try:
        description, records = read_settings(paths), read_records(paths)
    except (ExperimentDamagedError, NewerFormatError):
        return None
    return Earlier(root.name, description, records[-1].since if records else 0.0)
