"""`tuner stop|pause|go|save|add|fork|pin|unpin|tag|retry|note EXPERIMENT ...`: say something to its driver."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from tuner.addresses import ordered
from tuner.cli import given_order
from tuner.experiment.paths import is_elsewhere
from tuner.orders.order import ALL, RUNNABLE, WORDS, ForkOrder, OrderBody, made

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
APART = ("set",)
"""Words with a module of their own."""


def add(verbs: Any) -> None:
    for word, kind in WORDS.items():
        if word in APART:
            continue
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
                "config",
                metavar="KEY=VALUE",
                nargs="*",
                type=given_order.key_value,
                help="as lr=0.01 or model/width=64",
            )
        if word == "save":
            verb.add_argument("--pin", action="store_true", help="and keep it, whatever the settings say")
        if word == "note":
            verb.add_argument("text", metavar="TEXT", nargs="+")
        if word == "fork":
            verb.add_argument(
                "--into", metavar="NAME", help="make an experiment of its own; of a URI always: NAME-fork"
            )
        if kind in RUNNABLE:
            given_order.add_run(verb)
        given_order.add_options(verb)
        verb.set_defaults(run=partial(run, kind))


def run(kind: type[OrderBody], arguments: argparse.Namespace) -> int:
    at = given_order.place_of(arguments)
    if kind is ForkOrder and (arguments.into is not None or is_elsewhere(at)):
        return given_order.fork_and_run(at, dict(arguments.config), arguments)
    order = made(kind, **_fields(arguments, at))
    return (given_order.carry_and_run if kind in RUNNABLE else given_order.carry)(order, at, arguments)


def _fields(arguments: argparse.Namespace, at: str) -> dict[str, Any]:
    given = vars(arguments)
    fields: dict[str, Any] = {name: given[name] for name in ("trial", "pin", "tag") if name in given}
    if "config" in given:
        fields["config"] = dict(arguments.config)
    if "checkpoint" in given:
        trial, iteration = ordered(arguments.checkpoint, lambda: given_order.trials_of(at))
        fields |= {"trial": trial, "iteration": iteration}
    return fields | ({"text": " ".join(arguments.text)} if "text" in given else {})
