"""`ui=True`: the live page of a run, served by a process of its own, so that no page ever costs the driver anything."""

from __future__ import annotations

import contextlib
import importlib.util
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from trainables.errors import MissingExtraError
from trainables.extras import how_to_install
from trainables.starting import start_process
from tuner import knobs
from tuner.spec import Spec

START_S = 15.0
"""So long the address is waited for."""
END_S = 5.0
_COMMAND = (
    "import importlib.metadata as installed, sys; "
    "(command,) = installed.entry_points(group='console_scripts', name='tuner'); "
    "sys.exit(command.load()(sys.argv[1:]))"
)
"""The command that comes with this package, by the interpreter that runs."""


def wants_page(spec: Spec) -> bool:
    """Whether the run has a live page. Raises MissingExtraError where it cannot."""
    wanted = knobs.ui() if spec.ui is None else spec.ui
    for name in ("starlette", "uvicorn") if wanted else ():
        if importlib.util.find_spec(name) is None:
            raise MissingExtraError(f"ui=True needs {name}: {how_to_install('ui')}")
    return wanted


@contextlib.contextmanager
def live_page(root: Path, say: Callable[[str], None], *, wanted: bool) -> Iterator[None]:
    """Serve the page of an experiment as long as this lasts; killed with this process.

    Args:
        root: its directory.
        say: gets one line, with the address.
    """
    if not wanted:
        yield
        return
    command = [sys.executable, "-c", _COMMAND, "ui", str(root), "--until-stdin-ends"]
    try:
        process = start_process(
            command,
            what="the live page",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the run, whose last results are still to be seen
        )
    except OSError as error:
        say(f"no live page: {error}")
        yield
        return
    try:
        say(_address(process))
        yield
    finally:
        _end(process)


def _address(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None  # it is a pipe
    ready, _, _ = select.select([process.stdout], [], [], START_S)
    line = process.stdout.readline().decode("utf-8", "replace").strip() if ready else ""
    return f"live page: {line}" if line else "no live page: its server did not start; `tuner ui` says why"


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
