"""`tuner sync EXPERIMENT [--to URI | --from URI]`: push what a replica of an experiment lacks, or fetch all of it."""

from __future__ import annotations

import argparse
from typing import Any

from trainables.transfer.open import shown
from tuner.cli import output, place
from tuner.error import ExperimentNotFoundError, SettingError, SyncError
from tuner.experiment.paths import ExperimentPaths, as_local_path
from tuner.progress.task_bar import TaskBar


def add(verbs: Any) -> None:
    verb: argparse.ArgumentParser = verbs.add_parser("sync", help="push what a copy lacks, or fetch it all")
    verb.add_argument("experiment", metavar="EXPERIMENT", help="a path, or a name under ~/tuner_results")
    way = verb.add_mutually_exclusive_group()
    way.add_argument("--to", metavar="URI", help="the copy, made where there is none; default: where the run copied to")
    way.add_argument("--from", dest="source", metavar="URI", help="bring everything from there")
    verb.add_argument("--syncer", metavar="COMMAND", help="the command that made the copy, with {source} and {target}")
    verb.add_argument("--delete-template", metavar="COMMAND", help="the one that deletes there, with {target}")
    verb.add_argument("--options", metavar="TEXT", help="what stands for {options}")
    output.add_json(verb)
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from tuner.tools import sync

    given = {name: getattr(arguments, name) for name in ("syncer", "delete_template", "options")}
    how = {name: value for name, value in given.items() if value is not None}
    if how and (arguments.syncer is None or arguments.to or arguments.source):
        raise SettingError("--delete-template, --options go with --syncer, and --syncer with neither --to nor --from")
    if arguments.source is not None:
        try:
            root = place.experiment(arguments.experiment)
        except ExperimentNotFoundError:
            root = as_local_path(arguments.experiment)
        with TaskBar("fetching", "checkpoint", say=_say).shown() as work:
            fetched = sync.fetch(ExperimentPaths(root), place.whole(arguments.source), work=work)
        source = shown(arguments.source)
        text = f"{root}: up to date with {source}; fetched: {output.counted(fetched, 'checkpoint')}"
        output.told(arguments, text, path=str(root), source=source, fetched=fetched)
        return 0
    paths = ExperimentPaths(place.experiment(arguments.experiment))
    config = sync.copies_of(paths, **how) if arguments.to is None else sync.copy_at(paths, place.whole(arguments.to))
    try:
        with TaskBar("copying", "checkpoint", say=_say).shown() as work:
            address, lacking = sync.push(paths, config, work=work)
    except SyncError as error:
        output.complain("sync", error)
        return 1
    output.complain("sync", *lacking)
    text = f"{address}: {'everything that is here is there' if lacking else 'complete'}"
    output.told(arguments, text, place=address, complete=not lacking, lacking=[str(each) for each in lacking])
    return 1 if lacking else 0


def _say(line: str) -> None:
    output.complain("sync", line)
