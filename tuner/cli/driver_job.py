"""What the job of `tuner run --submit` runs: the driver, which waits in the queue again before its job's end.

    python -m tuner.cli.driver_job EXPERIMENT [--on-end HOOK] [--on-failure HOOK]

When Slurm says that the time is nearly over, trials pause at their newest save, agents wait for the next life, and the
job is requeued; where that is not allowed, another one is submitted. After a failure of its node Slurm starts it again
by itself. Any other signal ends the run in order, and it is not continued.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from trainables.decoding import decode
from trainables.errors import TrainablesError
from trainables.store import fs
from tuner import knobs
from tuner.callback import Callback
from tuner.cli import output
from tuner.cli import run as run_verb
from tuner.cli.submitting import SIGNAL, Submission, keep, script_file, submission_file
from tuner.error import SettingError, TuneError
from tuner.executors.slurm import commands

_PREEMPTED = 143


class _Leaving:
    """What the driver does when it is told that its job ends."""

    def __init__(self, executor: Any) -> None:
        self._executor = executor
        self.planned = False

    def listen(self) -> None:
        signal.signal(getattr(signal, f"SIG{SIGNAL}"), self._told)
        signal.signal(signal.SIGTERM, self._end)  # until `execute` has handlers of its own

    def _told(self, number: int, frame: FrameType | None) -> None:
        self.planned = True
        self._executor.leave_agents()
        os.kill(os.getpid(), signal.SIGTERM)  # to whatever handler there is now

    def _end(self, number: int, frame: FrameType | None) -> None:
        raise SystemExit(_PREEMPTED)


class KeepSubmission(Callback):
    """Keeps what was submitted in a directory from which an earlier experiment has been moved away."""

    changes_results = False

    def __init__(self, root: Path, submission: Submission, text: str) -> None:
        self._root, self._submission, self._text = root, submission, text

    def setup(self, *_: Any, **__: Any) -> None:
        if not submission_file(self._root).exists():
            keep(self._root, self._submission, self._text)


def main(arguments: Sequence[str]) -> int:
    """Be the driver; returns the exit status of a run that has ended."""
    from tuner.executors.default import chosen

    parser = argparse.ArgumentParser(prog="python -m tuner.cli.driver_job")
    parser.add_argument("experiment", type=Path)
    run_verb.add_hooks(parser)
    given = parser.parse_args(arguments)
    root: Path = given.experiment
    try:
        submission = decode(fs.read_file(submission_file(root)), Submission)
        text = fs.read_file(script_file(root)).decode()
    except FileNotFoundError as error:
        raise SettingError(f"{error.filename} is not there: `tuner run --submit` writes it") from error
    described = submission.described(root)
    executor = chosen(described.arguments()["executor"])
    leaving = _Leaving(executor)
    leaving.listen()
    keeping = KeepSubmission(root, submission, text)
    try:
        return run_verb.execute(described, run_verb.hooks(given), executor=executor, callbacks=[keeping])
    except SystemExit:
        if not leaving.planned:
            raise
    return _again(text)


def _again(text: str) -> int:
    """Wait in the queue again, and be the next life of the driver."""
    id = knobs.slurm_job().get("SLURM_JOB_ID", "")
    output.say(f"job {id} waits in the queue again, and goes on with the run then")
    try:
        commands.requeue(id)  # which ends this process too
    except TuneError as error:
        (other,) = commands.submit(text)
        output.say(f"job {id} cannot be requeued ({error}): job {other} goes on with the run")
    return 0


def _reported(arguments: Sequence[str]) -> int:
    """`main`, whose errors come without a traceback."""
    try:
        return main(arguments)
    except (TuneError, TrainablesError) as error:
        output.say(f"tuner run: {error}", sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(_reported(sys.argv[1:]))
