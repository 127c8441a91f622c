"""`tuner mcp [PLACE ...]`: experiments for agents, over the Model Context Protocol on standard input and output."""

from __future__ import annotations

import argparse
import math
import sys
from typing import Any

from trainables.errors import MissingExtraError
from trainables.extras import how_to_install
from tuner.cli import output

DESCRIPTION = """\
Serves experiments to an agent as tools of the Model Context Protocol, over standard input and output. It only reads,
unless --allow-orders and --allow-start say more. What is used of the limits is counted in the experiments themselves:
they hold for all servers with the same places and configs, one after another or at once. See docs/agents.md."""


def add(verbs: Any) -> None:
    verb: argparse.ArgumentParser = verbs.add_parser(
        "mcp", help="experiments as tools of an agent (Model Context Protocol)", description=DESCRIPTION
    )
    verb.add_argument(
        "places",
        nargs="*",
        metavar="PLACE",
        help="an experiment, or a directory or URI with experiments; none: ~/tuner_results",
    )
    verb.add_argument("--allow-orders", action="store_true", help="agents may steer these experiments")
    verb.add_argument(
        "--allow-start",
        action="append",
        default=[],
        metavar="CONFIG.yaml",
        help="agents may start this, with values inside its search space; repeatable",
    )
    verb.add_argument("--max-trials", type=_count, metavar="N", help="trials that they may start, add, fork and retry")
    verb.add_argument("--max-hours", type=_hours, metavar="H", help="hours of training of these trials in all")
    verb.add_argument("--max-bytes", type=_count, metavar="B", help="bytes of kept checkpoints of these trials")
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    try:
        from tuner.mcp.agent_door import AgentDoor, DoorOptions
        from tuner.mcp.ledger import Limits
        from tuner.mcp.mcp_server import serve
    except ModuleNotFoundError as error:
        if error.name != "mcp":
            raise
        raise MissingExtraError(f"tuner mcp needs mcp: {how_to_install('mcp')}") from error
    limits = Limits(arguments.max_trials, arguments.max_hours, arguments.max_bytes)
    how = DoorOptions(arguments.places, arguments.allow_orders, arguments.allow_start, limits)
    serve(AgentDoor(how, tell=lambda line: output.say(f"tuner mcp: {line}", sys.stderr)))
    return 0


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not accepted; accepted are 0, 1, 2, ...")
    return int(text)


def _hours(text: str) -> float:
    try:
        hours = float(text)
    except ValueError:
        hours = math.nan
    if not 0 <= hours < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not accepted; accepted are hours, as 8 or 0.5")
    return hours
