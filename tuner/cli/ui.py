"""`tuner ui [EXPERIMENT | DIRECTORY | URI ...]`: the live page of experiments."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

from trainables.errors import MissingExtraError
from trainables.extras import how_to_install
from trainables.starting import start_thread
from tuner.cli import output

DESCRIPTION = """\
Serves a page of experiments, live: running, dead and finished ones, here, on a shared disk, or in a bucket. It only
reads, but for orders that are given on the page. It prints its address, whose token is the key, and ends on Ctrl-C or
SIGTERM. On another machine: ssh -L PORT:localhost:PORT HOST, and the same address."""


def add(verbs: Any) -> None:
    verb: argparse.ArgumentParser = verbs.add_parser(
        "ui", help="a live page of experiments in the browser", description=DESCRIPTION
    )
    verb.add_argument(
        "places",
        nargs="*",
        metavar="PLACE",
        help="an experiment, or a directory or URI with experiments; none: ~/tuner_results",
    )
    verb.add_argument("--host", default="127.0.0.1", help="what to listen on; the default is this machine alone")
    verb.add_argument("--port", type=int, default=0, help="0, the default: the system chooses one")
    verb.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME", help="a name by which a proxy calls it; repeatable"
    )
    verb.add_argument("--read-only", action="store_true", help="take no orders")
    verb.add_argument("--no-token", action="store_true", help="let everybody on this machine read; implies --read-only")
    verb.add_argument("--until-stdin-ends", action="store_true", help=argparse.SUPPRESS)  # whoever started it is gone
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    try:
        from tuner.freed_memory import keep_little
        from tuner.ui.app import STATIC
        from tuner.ui.served_places import Places
        from tuner.ui.ui_server import UiOptions, UiServer
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn"):
            raise
        raise MissingExtraError(f"tuner ui needs {error.name}: {how_to_install('ui')}") from error
    if not (STATIC / "vendor").is_dir():
        output.say(
            "tuner ui: the page's libraries are missing: make web brings them; data (.json) is served", sys.stderr
        )
    keep_little()
    how = UiOptions(
        arguments.host, arguments.port, arguments.allow_host, arguments.read_only, token=not arguments.no_token
    )
    server = UiServer(Places(arguments.places, tell=lambda line: output.say(f"tuner ui: {line}", sys.stderr)), how)
    if arguments.until_stdin_ends:
        start_thread(_wait_for_end, name="ui-stdin", args=[server.stop])
    server.run(_told)
    return 0


def _wait_for_end(stop: Callable[[], None]) -> None:
    """Whoever started this has the other end of stdin, and is gone when that is."""
    while sys.stdin.buffer.read(4096):
        pass
    stop()


def _told(address: str) -> None:
    output.say(address)
    if sys.stdout is not None:  # it was started without one
        sys.stdout.flush()
