"""The process of a session's driver: `python -m tuner.asking.driver_process DESCRIPTOR`.

Whoever opens a session first, or finds its driver dead, starts it, gives it the settings on its standard input, and
has DESCRIPTOR, its door, as the first of all callers. It belongs to no caller: it is the child of none,
hears no Ctrl-C of their terminals, and ends when the last of them has closed the session, or is gone.
"""

from __future__ import annotations

import logging
import os
import pickle
import select
import socket
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tuner.experiment.paths import ExperimentPaths

_LOOK_MS = 500


def main(descriptor: int) -> None:
    """Leave whoever has started this process, then run the experiment to its end."""
    if os.fork():
        os._exit(0)  # the process that stays is nobody's child
    search_path, packed, listen = pickle.load(sys.stdin.buffer)
    sys.path[:] = search_path
    os.set_inheritable(descriptor, False)  # it is to end with this process
    _drive(packed, listen, socket.socket(fileno=descriptor))


def _drive(packed: bytes, listen: str, opener: socket.socket) -> None:
    from trainables.pickling import pickled  # after the fork
    from trainables.starting import start_thread
    from tuner.asking.driver_address import write_address
    from tuner.asking.driver_order import spec_of
    from tuner.driver.build import execute
    from tuner.executors.callers import CallerExecutor
    from tuner.executors.callers.caller_words import MESSAGE, LetIn, RunOver
    from tuner.executors.callers.doors import Doors
    from tuner.experiment.generations import read_records
    from tuner.experiment.paths import ExperimentPaths

    said, begun = _Said(), threading.Event()

    def ready(doors: Doors) -> LetIn:
        begun.set()
        write_address(paths, doors)
        said.end()
        quiet = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(quiet, stream)  # the terminal is the callers'
        os.close(quiet)
        return LetIn(read_records(paths)[-1].generation, said.lines)

    executor = CallerExecutor(ready, opener, listen=listen)
    last = RunOver()
    try:
        spec = spec_of(pickle.loads(packed), executor)
        paths = ExperimentPaths(spec.storage / str(spec.name))
        start_thread(lambda: _leave_with(opener, paths, begun), name="tuner-opener")
        execute(spec)
    except SystemExit as leaving:
        last = RunOver(text=f"the driver was told to leave (exit status {leaving.code})")
    except BaseException as error:
        packed_error = pickled(error, limit=MESSAGE // 2, kind=BaseException) or b""
        last = RunOver(packed_error, f"{type(error).__name__}: {error}")
    finally:
        executor.say_over(last)


def _leave_with(opener: socket.socket, paths: ExperimentPaths, begun: threading.Event) -> None:
    """End this process if its opener is gone, or has joined another driver, while it waits to become the owner."""
    from tuner.asking.driver_address import owner_of
    from tuner.experiment.processes import Processes

    ends = select.poll()
    ends.register(opener, 0)  # the end of it is told without being asked for
    while not begun.is_set():
        if ends.poll(_LOOK_MS):
            owner = owner_of(paths)
            if owner is None or owner.owner != Processes().me():
                os._exit(0)  # else it has begun, and ends in order
            return


class _Said(logging.Handler):
    """Takes the lines that a run says when it starts: the caller that has started the driver logs them."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []
        self._logger = logging.getLogger("tuner.progress.announcer")
        self._before = self._logger.level
        self._logger.addHandler(self)
        self._logger.setLevel(logging.INFO)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage()[:2000])

    def end(self) -> None:
        """It has started."""
        self._logger.removeHandler(self)
        self._logger.setLevel(self._before)
        del self.lines[8:]  # one message has room for them


if __name__ == "__main__":
    main(int(sys.argv[1]))
