"""`tuner set EXPERIMENT NAME=VALUE`: change a setting of an experiment that runs, or what one of its trials gets."""

from __future__ import annotations

import argparse
from typing import Any

from tuner.cli import given_order
from tuner.error import OrderError
from tuner.orders.order import SetOrder, made
from tuner.orders.settable import OF_RUN, RESOURCES

DESCRIPTION = """\
num_samples=20         more trials, also where all were made; fewer: those that
                       are there stay; -1: without end
max_concurrent=4       trials at once: nobody is ended, and none begins before
                       there are fewer; none: what fits
time_budget_s=3600     the run ends in order so many seconds after its driver
                       began; none: it does not
--trial 3 cpu=2 gpu=1  trial 3 is saved, and goes on with these when they are
                       free; what is not named stays, 0 takes it away

It holds from now on and over resumes, until the script says something else
than it does now: a changed script is the newer word."""


def add(verbs: Any) -> None:
    verb: argparse.ArgumentParser = verbs.add_parser(
        "set",
        help=f"change {', '.join(OF_RUN)}, or the resources of a trial",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verb.add_argument("experiment", metavar="EXPERIMENT", help="a path, or a name under ~/tuner_results")
    verb.add_argument("settings", metavar="NAME=VALUE", nargs="+", type=_pair, help="several are several orders")
    verb.add_argument("--trial", metavar="TRIAL", help="whose resources: its id, name or number")
    given_order.add_options(verb)
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    pairs: dict[str, Any] = dict(arguments.settings)
    if len(pairs) < len(arguments.settings):
        raise OrderError("each NAME is accepted once")
    if arguments.trial is not None:
        of_trial = made(SetOrder, name=RESOURCES, value=pairs, trial=arguments.trial)
        return given_order.carry(of_trial, given_order.place_of(arguments), arguments)
    orders = [made(SetOrder, name=name, value=value) for name, value in pairs.items()]  # all, before one is given
    if arguments.order_id is not None and len(orders) > 1:
        raise OrderError("--id names one order: give one NAME=VALUE with it")
    root = given_order.place_of(arguments)
    return max(given_order.carry(each, root, arguments) for each in orders)


def _pair(text: str) -> tuple[str, Any]:
    name, value = given_order.key_value(text)
    return name, None if value == "none" else value
