"""How much each parameter matters, told by a process of its own, which ends with that.

What Optuna loads for it, 160 MB, would stay in a server for as long as it lives.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from trainables.decoding import decode
from trainables.starting import start_process
from tuner.experiment.hostile import UNREADABLE
from tuner.experiment.trial import Trial

WEIGH_S = 60.0
"""Whoever takes longer is ended: there is a page that waits for it."""
_PACKAGES = Path(__file__).parents[2]
_COMMAND = "import sys; sys.path.append(sys.argv[1]); from tuner.ui.weighing import main; main()"
_ONE = threading.Lock()
"""Held while there is such a process: however many look, there is one at a time."""


class Weighable(msgspec.Struct):
    """What importances are told of.

    Args:
        trials: those that have ended.
        space: the domains, as experiment.json has them.
        varied: the keys that had several values.
    """

    trials: list[Trial]
    metric: str
    mode: str
    space: dict[str, str]
    varied: list[str]


def encoded(trials: Sequence[Trial], metric: str, mode: str, space: Mapping[str, str], varied: Sequence[str]) -> bytes:
    """What such a process is given."""
    return msgspec.json.encode(Weighable(list(trials), metric, mode, dict(space), list(varied)))


def weighed_beside(given: bytes) -> dict[str, float] | None:
    """The importance of each parameter, the largest first, by a process of its own; None where it cannot be told.

    Args:
        given: as `encoded` makes it.
    """
    command = [sys.executable, "-c", _COMMAND, str(_PACKAGES)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with _ONE:
        try:
            process = start_process(command, what="the importance of parameters", start_new_session=True, **pipes)
        except OSError:
            return None
        with process:
            try:
                said, _ = process.communicate(given, timeout=WEIGH_S)
            except subprocess.TimeoutExpired:
                process.kill()
                return None
    try:
        return msgspec.json.decode(said, type=dict[str, float] | None) if process.returncode == 0 else None
    except msgspec.DecodeError:
        return None


def main() -> None:
    """That process: what is to be weighed comes on stdin, and the importances go to stdout."""
    sys.modules["sklearn"] = None  # type: ignore[assignment]  # not needed for these, and most of what would be loaded
    given = decode(sys.stdin.buffer.read(), Weighable)
    try:
        made = _weighed(given)
    except (*UNREADABLE, RuntimeError):  # Optuna's own for what it cannot weigh
        made = None
    os.write(sys.stdout.fileno(), msgspec.json.encode(made))


def _weighed(given: Weighable) -> dict[str, float] | None:
    from tuner.analysis.plot_source import PlotSource
    from tuner.analysis.searched import importances
    from tuner.analysis.study import study_of

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Optuna: of a notebook's progress bar, and of values that it looks for
        study = study_of(given.trials, [given.metric], [given.mode], space=given.space, name="page", curves=False)
        source = PlotSource(given.trials, [given.metric], [given.mode], lambda: study)
        return importances(source, 0, given.varied) or None
