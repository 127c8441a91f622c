"""What is said to an order that needs a driver where none lives: it has no sense any more, or how a life is started."""

from __future__ import annotations

import shlex
from pathlib import Path

from tuner.error import ExperimentDamagedError, ExperimentNotFoundError, OrderError
from tuner.experiment.continuing import how_to_continue, starter_of
from tuner.experiment.liveness import LastDriver
from tuner.experiment.outcome import ENDS, outcome
from tuner.experiment.paths import ExperimentPaths, as_local_path, is_elsewhere
from tuner.experiment.reader import load_state, read_settings
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial
from tuner.orders import order as words
from tuner.orders.lasting import named
from tuner.orders.mailbox import Mailbox

_OF_LIVING = (words.StopOrder, words.PauseOrder, words.GoOrder, words.SaveOrder)


def check_unattended(root: Path, order: words.OrderBody, last: LastDriver, *, waits: bool) -> None:
    """Raise OrderError where the order would be refused by the next driver too, or is not to wait for it."""
    paths = ExperimentPaths(root)
    state = load_state(paths)
    if not (waits and Mailbox(root).waiting()):  # what waits before it may change what it is about
        _check_sense(root, state, order)
    if not waits:
        how = how_to_start(paths) + (", --run starts one here" if isinstance(order, words.RUNNABLE) else "")
        ended = str(last) if state.run_ended is None else ENDS.get(state.run_ended, state.run_ended)
        raise OrderError(f"no driver runs {root} ({ended}): {how}, or --if-dead wait {_IN_PYTHON}")


_IN_PYTHON = "(if_dead='wait' in Python) has the order wait for the next start"


def is_copy(root: Path) -> bool:
    """Whether a directory is where the experiment in it is copied to, and not where it runs."""
    paths = ExperimentPaths(root)
    try:
        place = read_settings(paths).get("upload_dir")
    except (ExperimentDamagedError, ExperimentNotFoundError):  # its driver is about to describe it
        return False
    return place is not None and not is_elsewhere(place) and as_local_path(place).resolve() == root.resolve().parent


def how_to_start(paths: ExperimentPaths) -> str:
    """The command that starts a driver's life."""
    root = shlex.quote(str(paths.root))
    if paths.config_yaml.exists():
        return f"start it with `tuner resume {root}`"
    how = how_to_continue(paths.root, starter_of(paths, read_settings(paths)))
    return f"start it ({how}, or `tuner resume {root} --trainable FILE.py:NAME`)"


def _check_sense(root: Path, state: ExperimentState, order: words.OrderBody) -> None:
    if isinstance(order, words.StopOrder) and order.trial == words.ALL:
        if state.run_ended == "finished" and all(trial.is_finished() for trial in state.trials):
            raise OrderError(f"{root} has finished: all of its {len(state.trials)} trials have ended")
        return
    if not isinstance(order, words.TrialOrder):
        return
    trial = named(state, order.trial)
    if isinstance(order, _OF_LIVING) and trial.is_finished():
        raise OrderError(f"{trial.name} has ended: {outcome(trial)}")
    if isinstance(order, words.GoOrder) and not trial.held:
        raise OrderError(f"{trial.name} was not told to pause: it is {outcome(trial)}")
    if isinstance(order, words.RetryOrder) and trial.status != Trial.ERROR:
        raise OrderError(f"{trial.name} has not failed: {outcome(trial)}")
