"""`tuner prove SCRIPT`: whether training continues after a kill as if there had been none."""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from pathlib import Path
from typing import Any

from tuner.cli import output
from tuner.error import SettingError

DESCRIPTION = """\
Runs SCRIPT, which calls tune.run or Tuner.fit, twice: once as it is, and once killed with SIGKILL at some reports and
started again. Then compares, trial by trial, the metrics of all iterations and the last checkpoints, and names the
first metric and the first tensor that differ. Both runs store in a directory of their own; SCRIPT's results are not
touched, and nothing is copied elsewhere. It reads the checkpoints that SCRIPT has written, pickles too. Exit status 0:
proven; 1: not; 2: the command is not accepted."""


def add(verbs: Any) -> None:
    verb: argparse.ArgumentParser = verbs.add_parser(
        "prove",
        help="kill a script's training at random steps, and see that it continues as if nothing had happened",
        description=DESCRIPTION,
        epilog="Arguments of the script itself come after --: tuner prove train.py --kills 3 -- --epochs 10",
    )
    verb.add_argument("script", metavar="SCRIPT", type=Path)
    verb.add_argument("--kills", type=int, default=3, metavar="N", help="how often it is killed (default 3)")
    verb.add_argument("--seed", type=int, default=0, help="draws where; also given to runs without a seed (default 0)")
    verb.add_argument(
        "--concurrent",
        type=int,
        default=1,
        metavar="N",
        help="trials at once (default 1: the order of results, and what is decided by it, is the same in both runs)",
    )
    verb.add_argument(
        "--ignore",
        action="append",
        default=[],
        metavar="NAME",
        help="a metric, or a value in a checkpoint, that may differ, as *_seconds; may be repeated",
    )
    verb.add_argument("--keep", type=Path, metavar="DIRECTORY", help="a new directory for both runs, which stays")
    verb.set_defaults(run=run, rest=[])


def run(arguments: argparse.Namespace) -> int:
    from tuner.progress.task_bar import TaskBar
    from tuner.tools.prove.script import prove_script

    for name in ("kills", "concurrent"):
        if getattr(arguments, name) < 1:
            raise SettingError(f"--{name} {getattr(arguments, name)} is not accepted; accepted are 1, 2, ...")
    place = arguments.keep
    with contextlib.ExitStack() as stack:
        if place is None:
            temporary = tempfile.TemporaryDirectory(prefix="prove-", ignore_cleanup_errors=True)
            place = Path(stack.enter_context(temporary))
        elif place.exists():
            raise SettingError(f"--keep {place} is there already; give a directory that is not")
        place.mkdir(parents=True, exist_ok=True)
        work = stack.enter_context(TaskBar("proving", "result", say=_say).shown())
        verdict = prove_script(
            arguments.script,
            arguments.rest,
            place=place.absolute(),
            kills=arguments.kills,
            seed=arguments.seed,
            concurrent=arguments.concurrent,
            ignore=arguments.ignore,
            say=_print,
            work=work,
        )
    _print(verdict.text)
    return 0 if verdict.proven else 1


def _print(text: str) -> None:
    output.say(output.wrapped(text, output.terminal_width()))


def _say(line: str) -> None:
    output.complain("prove", line)
