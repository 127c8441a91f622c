"""How a caller starts the driver of a session: the settings on their way to it, and its first word."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import select
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from tuner.asking.caller_door import CallerDoor, LocalCallerDoor
from tuner.asking.driver_line import raise_error
from tuner.error import SettingError, TuneError
from tuner.executors.base import Executor
from tuner.executors.callers.caller_words import LetIn, RunOver
from tuner.executors.local.pickled import pickle_job
from tuner.spec import Spec

log = logging.getLogger(__name__)

_LOOK_S = 2.0
"""How often it is looked whether another driver is there, while one starts."""
_TAIL = 2000
"""Bytes of what a driver has written that died before its first word."""


def trial(config: dict[str, Any]) -> None:
    """What the experiment of a session is said to run: its trials run in processes of callers."""
    raise SettingError("the trials of this experiment run in processes of callers: go on with tune.open_session")


def spec_of(values: Mapping[str, Any], executor: Executor | None = None) -> Spec:
    """The settings of a session as those of a run. Raises SettingError."""
    return Spec(
        **values,
        trainable=trial,
        executor=executor,
        verbose=0,
        raise_on_failed_trial=False,
    )


def start_driver(values: Mapping[str, Any], *, listen: str, look: Callable[[], CallerDoor | None]) -> CallerDoor | None:
    """Start a driver with these settings, and return a door to it; None: it was killed before its first word.

    Raises what it raises at its start.

    Args:
        listen: the IP address at which it lets callers of other hosts in; "": it does not.
        look: called now and then while it waits for a sign of life of the one before it; finds another that is there
            by then, which is returned instead. This one ends by itself, then.
    """
    packed = pickle_job(dict(values), "the settings of the session")
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ExitStack() as unless_open, theirs, tempfile.TemporaryFile() as written:
        unless_open.callback(ours.close)
        with subprocess.Popen(
            [sys.executable, "-m", "tuner.asking.driver_process", str(theirs.fileno())],
            stdin=subprocess.PIPE,
            stdout=written,
            stderr=written,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        ) as process:
            theirs.close()
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # it has died: what it wrote says why
                pickle.dump((sys.path, packed, listen), process.stdin)
                process.stdin.close()
        door = LocalCallerDoor(ours)
        said = select.poll()
        said.register(ours, select.POLLIN)
        while not said.poll(_LOOK_S * 1000):
            if (another := look()) is not None:
                return another
        word = door.hear()
        if word is None:
            written.seek(max(0, written.seek(0, os.SEEK_END) - _TAIL))
            text = written.read().decode(errors="replace").strip()
            if not text:
                return None
            raise TuneError(f"the driver of the session has died at its start:\n{text}")
        if isinstance(word, RunOver):
            raise_error(word)
        for line in word.notes if isinstance(word, LetIn) else ():
            log.info("%s", line)
        unless_open.pop_all()
        return door
