"""`tuner stop|pause|go|save|add|fork|pin|unpin|tag|retry|note EXPERIMENT ...`: say something to its driver."""

from __future__ import annotations

import argparse
import json
import math
from functools import partial
from pathlib import Path
from typing import Any

from tuner.addresses import ordered
from tuner.cli import output, place
from tuner.error import OrderError
from tuner.experiment.paths import ExperimentPaths, is_elsewhere
from tuner.experiment.reader import load_state
from tuner.orders.giving import IF_DEAD, give
from tuner.orders.mailbox import OrderState
from tuner.orders.order import ALL, WORDS, OrderBody, made

USUAL_S = 3.0
"""So long an answer is waited for: an order is taken up within a second, or refused."""
WAIT = f"until it is done, at most so long; exit status 1 if it is not (without it {USUAL_S:g} s)"
_HELP = {
    "stop": f"end a trial, or '{ALL}', as if a stopper had said so",
    "pause": "save a trial, free its slot, and let it wait for `go`",
    "go": "let a paused trial go on",
    "save": "have a trial save a checkpoint now",
    "add": "make a trial with this config; what it lacks is drawn",
    "fork": "make a trial that starts from another one's checkpoint, with some values changed",
    "pin": "keep a checkpoint, whatever the settings say",
    "unpin": "leave a checkpoint to the settings again; its tags go",
    "tag": "give a checkpoint a name, and keep it",
    "retry": "try a failed trial again, from its newest checkpoint",
    "note": "keep a text with a trial",
}


def add(verbs: Any) -> None:
    for word, kind in WORDS.items():
        verb: argparse.ArgumentParser = verbs.add_parser(word, help=_HELP[word])
        verb.add_argument("experiment", metavar="EXPERIMENT", help="a path, or a name under ~/tuner_results")
        if "iteration" in kind.__struct_fields__:
            verb.add_argument("checkpoint", metavar="CHECKPOINT", help="TRIAL@ITERATION, as 3@40, or its tag")
        elif "trial" in kind.__struct_fields__:
            verb.add_argument("trial", metavar="TRIAL", help="a trial's id, name or number")
        if word == "tag":
            verb.add_argument("tag", metavar="TAG")
        if "config" in kind.__struct_fields__:
            verb.add_argument(
                "config", metavar="KEY=VALUE", nargs="*", type=_value, help="as lr=0.01 or model/width=64"
            )
        if word == "save":
            verb.add_argument("--pin", action="store_true", help="and keep it, whatever the settings say")
        if word == "note":
            verb.add_argument("text", metavar="TEXT", nargs="+")
        verb.add_argument("--id", dest="order_id", metavar="ID", help="the same id again is the same order")
        verb.add_argument("--if-dead", choices=IF_DEAD, default="refuse", help="when no driver runs (refuse)")
        verb.add_argument("--wait", nargs="?", type=seconds, const=math.inf, default=None, metavar="SECONDS", help=WAIT)
        verb.add_argument("--json", action="store_true", help="print the answer for programs")
        verb.set_defaults(run=partial(run, kind))


def run(kind: type[OrderBody], arguments: argparse.Namespace) -> int:
    if is_elsewhere(arguments.experiment):
        raise OrderError(
            f"{arguments.experiment} is a copy: orders are given in the directory where its driver runs, "
            "on its machine or a disk that it shares"
        )
    root = place.experiment(arguments.experiment)
    order = made(kind, **_fields(arguments, root))
    given = give(root, order, order_id=arguments.order_id, if_dead=arguments.if_dead)
    given.wait(USUAL_S if arguments.wait is None else None if math.isinf(arguments.wait) else arguments.wait)
    answer = given.answer
    if arguments.json:
        output.say(output.as_json({"id": answer.id, "state": answer.state.value, "why": answer.why}))
    else:
        output.say(f"{answer.state.value}{f': {answer.why}' if answer.why else ''}  (order {answer.id})")
    late = arguments.wait is not None and answer.state is not OrderState.DONE
    return 1 if late or answer.state is OrderState.REFUSED else 0


def _fields(arguments: argparse.Namespace, root: Path) -> dict[str, Any]:
    given = vars(arguments)
    fields: dict[str, Any] = {name: given[name] for name in ("trial", "pin", "tag") if name in given}
    if "config" in given:
        fields["config"] = dict(arguments.config)
    if "checkpoint" in given:
        trial, iteration = ordered(arguments.checkpoint, lambda: load_state(ExperimentPaths(root)).trials)
        fields |= {"trial": trial, "iteration": iteration}
    return fields | ({"text": " ".join(arguments.text)} if "text" in given else {})


_WORDS = {"True": True, "False": False, "None": None}


def _value(text: str) -> tuple[str, Any]:
    """One `key=value`: the value is JSON, or else text."""
    key, equals, said = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f"{text!r} is not accepted; accepted is key=value, as lr=0.01")
    try:
        return key, _WORDS[said] if said in _WORDS else json.loads(said)
    except ValueError:
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
