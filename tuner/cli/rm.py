"""`tuner rm EXPERIMENT`: set an experiment aside, or delete it for good."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any

from trainables.places import child_of, trim_slash
from trainables.transfer.open import shown
from tuner.cli import output, place
from tuner.clock import SystemClock
from tuner.error import SettingError
from tuner.experiment.hostile import UNREADABLE
from tuner.experiment.paths import ExperimentPaths, is_elsewhere
from tuner.experiment.reader import load_with_journal, read_settings

DESCRIPTION = """\
Asks, then moves the experiment into .removed/ beside it, where every verb still reads it and from where it can be moved
back; with --now it is deleted for good, and with a URI the copy there is. An experiment that runs is refused. Its other
copies stay, and are named. Exit status 0: removed; 1: no answer, or it runs; 2: the command is not accepted."""


def add(verbs: Any) -> None:
    verb: argparse.ArgumentParser = verbs.add_parser(
        "rm",
        help="set an experiment aside, or delete it",
        description=DESCRIPTION,
    )
    verb.add_argument("experiment", metavar="EXPERIMENT", help="a path, a URI, or a name under ~/tuner_results")
    verb.add_argument("-y", "--yes", action="store_true", help="do not ask")
    verb.add_argument("--now", action="store_true", help="delete it; nothing brings it back")
    output.add_json(verb, "for programs; needs --yes")
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.json and not arguments.yes:
        raise SettingError("--json goes with --yes: a program is not asked")
    if is_elsewhere(arguments.experiment):
        return _remove_copy(arguments)
    from tuner.tools import remove

    paths, clock = ExperimentPaths(place.experiment(arguments.experiment)), SystemClock()
    if remove.is_set_aside(paths) and not arguments.now:
        raise SettingError(f"{paths.root} is set aside already; --now deletes it, `mv` brings it back")
    remove.refuse_if_it_runs(paths, clock)
    amount, copies = _described(paths)
    what = "delete for good" if arguments.now else "set aside"
    if not arguments.yes and not _agreed(f"{what} {paths.root}: {amount}?"):
        return 1
    there = remove.remove(paths, clock=clock, now=arguments.now)
    if arguments.json:
        facts = {"path": str(paths.root), "deleted": there is None, "copies": copies}
        output.say(output.as_json(facts | {"set_aside": None if there is None else str(there)}))
        return 0
    if there is None:
        output.say(f"{paths.root}: deleted ({amount})")
    else:
        output.say(f"{paths.root}: set aside, at {there} now ({amount}); `tuner rm {there} --now` frees its room")
    for line in copies:
        output.say(line)
    return 0


def _remove_copy(arguments: argparse.Namespace) -> int:
    from tuner.tools.remove import remove_replica

    address = trim_slash(shown(arguments.experiment))
    if not arguments.now:
        raise SettingError(f"{address!r} is elsewhere, and nothing is set aside there: --now deletes it for good")
    if not arguments.yes and not _agreed(f"delete for good {address}?"):
        return 1
    files = remove_replica(arguments.experiment, clock=SystemClock())
    text = f"{address}: deleted ({output.counted(files, 'file')})"
    output.told(arguments, text, path=address, deleted=True, files=files)
    return 0


def _agreed(question: str) -> bool:
    """Whether the answer on standard input is yes; an end without an answer is a no that is explained."""
    sys.stdout.write(f"{output.value(question)} [y/N] ")
    sys.stdout.flush()
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        output.say("")
    if answer.strip().lower() in ("y", "yes"):
        return True
    output.complain(
        "rm", "nothing was removed" + ("" if answer.strip() else ": there was no answer; --yes asks nothing")
    )
    return False


def _described(paths: ExperimentPaths) -> tuple[str, list[str]]:
    """What is in it, and what copies stay. One that cannot be read can be removed all the same."""
    try:
        settings, problems = read_settings(paths), list[str]()
        state = load_with_journal(paths, problems)[0]
    except UNREADABLE:
        return "it cannot be read", []
    checkpoints = output.counted(state.checkpoint_count, "checkpoint")
    amount = f"{output.counted(len(state.trials), 'trial')}, {checkpoints}, {output.size(state.checkpoint_bytes)}"
    if settings.get("sync_command"):
        return amount, ["what its command has copied elsewhere stays there"]
    if not settings.get("upload_dir"):
        return amount, []
    name = str(settings.get("name") or paths.root.name)
    copy = child_of(settings["upload_dir"], name)
    ends = f"`tuner rm {shlex.quote(copy)} --now`" if is_elsewhere(copy) else f"`rm -r {Path(copy)}`"
    return amount, [
        f"its copies at {copy} stay: a run of that name that copies there goes on from them; {ends} deletes them"
    ]
