"""What all orders have on the command line: their options, how they are given, and how their answer is printed."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.cli import output, place
from tuner.clock import SystemClock
from tuner.error import SettingError
from tuner.experiment.liveness import Liveness, last_driver
from tuner.experiment.paths import ExperimentPaths, is_elsewhere
from tuner.experiment.reader import load_state
from tuner.experiment.trial import Trial
from tuner.orders.giving import IF_DEAD, give
from tuner.orders.mailbox import OrderAnswer, OrderState
from tuner.orders.order import OrderBody
from tuner.orders.standstill import how_to_start

USUAL_S = 3.0
"""So long an answer is waited for: an order is taken up within a second, or refused."""
WAIT = f"until it is done, at most so long; exit status 1 if it is not (without it {USUAL_S:g} s)"


def add_options(verb: argparse.ArgumentParser) -> None:
    """What every order takes."""
    verb.add_argument("--id", dest="order_id", metavar="ID", help="the same id again is the same order")
    verb.add_argument("--if-dead", choices=IF_DEAD, default="refuse", help="when no driver runs (refuse)")
    verb.add_argument("--wait", nargs="?", type=seconds, const=math.inf, default=None, metavar="SECONDS", help=WAIT)
    verb.add_argument("--json", action="store_true", help="print the answer for programs")


def place_of(arguments: argparse.Namespace) -> str:
    """The experiment's directory, or the URI of a copy."""
    given: str = arguments.experiment
    return given if is_elsewhere(given) else str(place.experiment(given))


def trials_of(at: str) -> Sequence[Trial]:
    """As the journal has them now."""
    with place.fact_log(at) as (paths, _):
        return load_state(paths).trials


def carry(order: OrderBody, at: str, arguments: argparse.Namespace) -> int:
    """Give an order and print its answer; returns the exit status."""
    given = give(at, order, order_id=arguments.order_id, if_dead=arguments.if_dead)
    given.wait(USUAL_S if arguments.wait is None else None if math.isinf(arguments.wait) else arguments.wait)
    return _say(given.answer, arguments, late=arguments.wait is not None)


def _say(answer: OrderAnswer, arguments: argparse.Namespace, *, late: bool) -> int:
    """Print an answer; returns the exit status.

    Args:
        late: it was to be done by now.
    """
    if arguments.json:
        output.say(output.as_json({"id": answer.id, "state": answer.state.value, "why": answer.why}))
    else:
        output.say(f"{answer.state.value}{f': {answer.why}' if answer.why else ''}  (order {answer.id})")
    return 1 if answer.state is OrderState.REFUSED or (late and answer.state is not OrderState.DONE) else 0


def add_run(verb: argparse.ArgumentParser) -> None:
    """What orders take that give a driver something to do."""
    verb.add_argument("--run", action="store_true", dest="runs", help="where no driver runs, start one here for it")
    verb.add_argument("--trainable", metavar="FILE.py:NAME", help="with --run, of one that a Python script started")


def carry_and_run(order: OrderBody, at: str, arguments: argparse.Namespace) -> int:
    """The same; where no driver runs, continue the experiment in this process, which begins with the order."""
    from tuner.cli import resume

    if arguments.trainable is not None and not arguments.runs:
        raise SettingError("--trainable goes with --run")
    if not arguments.runs or is_elsewhere(at) or drives(at):
        return carry(order, at, arguments)
    life = resume.plain_life(at, arguments.trainable)
    given = give(at, order, order_id=arguments.order_id, if_dead="wait")
    with contextlib.redirect_stdout(sys.stderr) if arguments.json else contextlib.nullcontext():
        status = life()  # what it says is not for the program that reads the answer
    return max(status, _say(given.answer, arguments, late=True))


def fork_and_run(at: str, config: Mapping[str, Any], arguments: argparse.Namespace) -> int:
    """Make an experiment of a fork's own, and run it, or say how."""
    from tuner.cli import resume
    from tuner.opening import forking

    root = forking.place_of(at, arguments.into)
    given = forking.fork_into(at, arguments.checkpoint, config, root, arguments.order_id)
    if arguments.runs:
        with contextlib.redirect_stdout(sys.stderr) if arguments.json else contextlib.nullcontext():
            status = resume.plain_life(str(root), arguments.trainable)()
        return max(status, _say(given.answer, arguments, late=True))
    status = _say(given.answer, arguments, late=arguments.wait is not None)
    if not arguments.json:
        output.say(f"{root} is made; {how_to_start(ExperimentPaths(root))}")
    return status


def drives(at: str) -> bool:
    """Whether a driver is seen to run an experiment here, or may."""
    last = last_driver(ExperimentPaths(Path(at)), SystemClock().time())
    brief = last.record is not None and last.record.brief
    return last.liveness in (Liveness.RUNNING, Liveness.UNKNOWN) and not brief


_WORDS = {"True": True, "False": False, "None": None}


def key_value(text: str) -> tuple[str, Any]:
    """One `key=value`: the value is JSON, or else text."""
    key, equals, said = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f"{text!r} is not accepted; accepted is key=value, as lr=0.01")
    try:
        return key, _WORDS[said] if said in _WORDS else json.loads(said)
    except (ValueError, RecursionError):
        pass
    try:
        return key, float(said)  # as .5 or 1e-4
    except ValueError:
        return key, said


def seconds(text: str) -> float:
    value = float(text)
    if not value >= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not accepted; accepted are seconds from 0")
    return value
