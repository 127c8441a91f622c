"""`tuner cp SRC DST`: copy an experiment or one checkpoint between any two places."""

from __future__ import annotations

import argparse
from pathlib import PurePath
from typing import Any

from trainables.places import child_of, is_elsewhere, parent_and_name, split_query
from trainables.store.manifest import MANIFEST_NAME
from trainables.transfer.open import open_backend, shown
from tuner.cli import output, place
from tuner.error import ExperimentNotFoundError, SettingError
from tuner.experiment.paths import as_local_path
from tuner.progress.task_bar import TaskBar


def add(verbs: Any) -> None:
    verb: argparse.ArgumentParser = verbs.add_parser("cp", help="copy an experiment or a checkpoint to another place")
    verb.add_argument(
        "source", metavar="SRC", help="a path, a URI, an experiment's name under ~/tuner_results, or EXPERIMENT@TAG"
    )
    verb.add_argument("target", metavar="DST", help="its new path or URI; with a slash at the end: under that")
    output.add_json(verb)
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from tuner.syncer import views
    from tuner.tools.copy import copy_checkpoint, copy_experiment

    given = _source(arguments.source)
    above, name = parent_and_name(given)
    into, new = place.target(arguments.target, name)
    if _plain(child_of(into, new)).is_relative_to(_plain(given)) and _plain(child_of(into, new)) != _plain(given):
        raise SettingError(f"{shown(arguments.target)!r} is not accepted: {shown(given)} cannot be copied into itself")
    with open_backend(above) as source, open_backend(into) as target:
        if name and source.exists(f"{name}/{MANIFEST_NAME}"):
            with TaskBar("copying", "checkpoint", say=_say).shown() as work:
                size = copy_checkpoint(source, name, target, new, work).bytes
            there = shown(target.url(new))
            text = f"{there}: a checkpoint, {output.size(size)}"
            output.told(arguments, text, place=there, checkpoints=1, bytes=size)
            return 0
        if not name or not source.exists(f"{name}/experiment.json"):
            raise ExperimentNotFoundError(f"{shown(given)} is neither an experiment nor a checkpoint")
        with views.opened(given) as remote, TaskBar("copying", "checkpoint", say=_say).shown() as work:
            copied = copy_experiment(source, remote, target, new, work)
    output.complain("cp", *copied.problems)
    there, problems = shown(target.url(new)), [str(each) for each in copied.problems]
    text = f"{there}: {output.counted(copied.checkpoints, 'checkpoint')}, {output.size(copied.bytes)}"
    facts = {"checkpoints": copied.checkpoints, "bytes": copied.bytes, "problems": problems}
    output.told(arguments, text, place=there, **facts)
    return 1 if copied.problems else 0


def _say(line: str) -> None:
    output.complain("cp", line)


def _plain(given: str) -> PurePath:
    """A path or URI, so that one can be told to lie in another."""
    return PurePath(*reversed(split_query(given))) if is_elsewhere(given) else as_local_path(given).resolve()


def _source(given: str) -> str:
    if (addressed := place.checkpoint(given)) is not None:
        return addressed
    try:
        return given if is_elsewhere(given) else str(place.experiment(given))
    except ExperimentNotFoundError:
        return place.whole(given)
