"""The `tuner` command. One file per verb; each has `add(verbs)` and `run(arguments) -> exit status`."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Sequence
from importlib.metadata import version

from trainables.errors import TrainablesError
from trainables.user_frames import pointers_of
from trainables.validation import nearest_name
from tuner.cli import (
    best,
    completion,
    cp,
    diff,
    doctor,
    explain,
    export,
    help_json,
    log,
    logs,
    ls,
    mcp,
    order,
    output,
    prove,
    report,
    resume,
    retention,
    rm,
    run,
    set_setting,
    show,
    sync,
    ui,
    verify,
    watch,
)
from tuner.error import TuneError
from tuner.experiment.hostile import UNREADABLE, said
from tuner.progress.warn_once import WarnOnce

VERBS = (
    *(run, ls, show, best, log, logs, watch, ui, mcp, diff, report, export, retention),
    *(order, set_setting, resume, verify, sync, cp, rm, prove, doctor, explain, completion),
)

READING = (
    "ls",
    "show",
    "best",
    "log",
    "logs",
    "watch",
    "ui",
    "mcp",
    "diff",
    "report",
    "export",
    "retention",
    "verify",
    "sync",
    "cp",
)
"""Verbs that only read or copy what is there: whatever that is, they end without a traceback."""

PROBLEMS = 1
"""Exit status: trials failed, or `verify` found something."""
REFUSED = 2
"""Exit status: the command or its settings are not accepted; nothing was touched."""


def parser() -> argparse.ArgumentParser:
    """The command line of all verbs."""
    top = argparse.ArgumentParser(
        prog="tuner", description="Hyperparameter tuning that survives anything.", epilog=help_json.epilog()
    )
    top.add_argument("--version", action="store_true", help="print the version and end")
    for_programs = "with --help: all verbs and their arguments, for programs"
    top.add_argument("--json", action="store_true", dest="help_json", help=for_programs)
    verbs = top.add_subparsers(dest="verb", metavar="VERB")
    for verb in VERBS:
        verb.add(verbs)
    for made in verbs.choices.values():
        made.set_defaults(parser=made, top=top)
    return top


def _parsed(top: argparse.ArgumentParser, words: list[str]) -> argparse.Namespace:
    """Parse; what a verb does not know is said with its own usage, and the nearest option that it has."""
    rest: list[str] = []
    if words[:1] == ["prove"] and "--" in words:  # what follows is the script's own
        at = words.index("--")
        words, rest = words[:at], words[at + 1 :]
    given, unknown = top.parse_known_args(words)
    if rest:
        given.rest = rest
    if len(unknown) == 1 and not unknown[0].startswith("-") and getattr(given, "trial", "") is None:
        given.trial = unknown.pop()  # `tuner logs EXPERIMENT -f TRIAL`, of which argparse makes nothing
    if isinstance(getattr(given, "places", None), list) and not any(word.startswith("-") for word in unknown):
        given.places += unknown  # `tuner ui PLACE --read-only PLACE`, likewise
        unknown = []
    if unknown:
        parser = getattr(given, "parser", top)
        option = unknown[0].partition("=")[0]
        near = nearest_name(option, parser._option_string_actions) if option.startswith("-") else None
        hint = f"; did you mean {near}?" if near else ""
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    return given


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; errors that are meant for people come without a traceback."""
    top = parser()
    words = sys.argv[1:] if arguments is None else list(arguments)
    if help_json.asked_for(words):
        with contextlib.suppress(BrokenPipeError):
            output.say(output.as_json(help_json.of(top, words, version("tuner"))))
        return 0
    given = _parsed(top, words)
    if given.version:
        print(version("tuner"))
        return 0
    if given.verb is None:
        top.print_help()
        return REFUSED
    warnings = WarnOnce(lambda line: output.say(line, sys.stderr), repeat=True)
    warnings.install()
    try:
        status: int = given.run(given)
        return status
    except (TuneError, TrainablesError) as error:
        output.say(f"tuner {given.verb}: {error}", sys.stderr)
        if not isinstance(error, ValueError):  # what is not accepted says all itself
            for pointer in pointers_of(error):
                output.say(pointer, sys.stderr)
        return REFUSED if isinstance(error, (ValueError, FileNotFoundError, FileExistsError)) else PROBLEMS
    except BrokenPipeError:  # `tuner ls | head`
        if sys.stderr is not None:
            sys.stderr.close()
        return PROBLEMS
    except KeyboardInterrupt:
        return 130
    except UNREADABLE as error:
        if given.verb not in READING:
            raise
        where = error.filename if isinstance(error, OSError) and error.filename else "what was read is not understood"
        output.say(f"tuner {given.verb}: {where}: {said(error)}", sys.stderr)
        return PROBLEMS
    finally:
        warnings.remove()


__all__ = ["main"]
