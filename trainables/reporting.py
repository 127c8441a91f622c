"""Shared parts of the integrations' callbacks: metric selection, reports with a library's checkpoint."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from trainables import session
from trainables.checkpoint import Checkpoint
from trainables.errors import CheckpointNotFoundError, MetricError, MissingExtraError
from trainables.extras import how_to_install
from trainables.validation import invalid, nearest_name

Metrics = str | list[str] | dict[str, str] | None
"""Which metrics a callback reports: a name, names, a dict of name to report -> the library's name; None for all."""


def library(*names: str, extra: str) -> ModuleType:
    """The first of these modules that is installed. Raises MissingExtraError, which names the extra."""
    for name in names:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise  # it is installed, and lacks something of its own
    raise MissingExtraError(f"{names[0]} is not installed: {how_to_install(extra)}")


def checked_metrics(owner: str, metrics: Any) -> Metrics:
    """`metrics` as it was given to `owner`. Raises InvalidSettingError for what is none of `Metrics`."""
    if metrics is not None and not isinstance(metrics, str | list | tuple | Mapping):
        raise invalid(f"{owner}: metrics", metrics, "a name, a list of names, or a dict of name -> the library's name")
    return cast(Metrics, metrics)


def not_here(module: str, instead: Mapping[str, str]) -> Callable[[str], Any]:
    """A `__getattr__` for a module that lacks names of Ray's: importing one raises ImportError with what to use."""

    def missing(name: str) -> Any:
        if name in instead:
            raise ImportError(f"{module}.{name} is not here: {instead[name]}", name=module)
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return missing


def chosen(metrics: Metrics, found: Mapping[str, Any], said_by: str, *, strict: bool = True) -> dict[str, Any]:
    """The metrics that were asked for, under the names to report.

    Raises MetricError for one that `said_by`, the library, has not; the message names the nearest that it has. If not
    `strict`, one warning says so instead: it may come later in the training.
    """
    if not metrics:
        return dict(found)
    if isinstance(metrics, str):
        metrics = [metrics]
    wanted = metrics if isinstance(metrics, Mapping) else {name: name for name in metrics}
    for theirs in wanted.values():
        if theirs not in found:
            near = nearest_name(theirs, found)
            hint = f"; did you mean {near!r}?" if near else f"; it has {', '.join(sorted(found)) or 'none'}"
            if strict:
                raise MetricError(f"there is no metric {theirs!r} of {said_by}{hint}")
            session.warn_once(f"there is no metric {theirs!r} of {said_by} yet{hint}")
    return {ours: found[theirs] for ours, theirs in wanted.items() if theirs in found}


def saved_file(checkpoint: Checkpoint, directory: str, filename: str) -> Path:
    """A library's file in a checkpoint that lies in `directory`. Raises CheckpointNotFoundError, which names those."""
    path = Path(directory, filename)
    if not path.exists():
        there = ", ".join(sorted(file.name for file in path.parent.iterdir() if file.name[0] != ".")) or "none"
        raise CheckpointNotFoundError(f"{checkpoint!r} holds no {filename}; its files: {there}")
    return path


def report_saved(
    metrics: Mapping[str, Any], save: Callable[[Path], object], *, metadata: Mapping[str, Any] | None = None
) -> None:
    """Report with a checkpoint: `save` writes it into an empty directory. In a group only rank 0 saves."""
    if session.get_world_rank() != 0:
        session.report(dict(metrics))
        return
    with tempfile.TemporaryDirectory(prefix="saving_") as directory:
        save(Path(directory))
        checkpoint = Checkpoint.from_directory(directory, move=True)
        if metadata:
            checkpoint.set_metadata(metadata)
        session.report(dict(metrics), checkpoint=checkpoint)


def events(on: str | Iterable[str], known: Iterable[str], owner: str) -> frozenset[str]:
    """Names of a library's events, without `on_`. Raises InvalidSettingError for one that it has not."""
    asked = frozenset([on] if isinstance(on, str) else on)
    for name in asked - set(known):
        near = nearest_name(name, known)
        raise invalid(f"{owner}: on", name, f"{near!r}" if near else ", ".join(sorted(known)))
    return asked
