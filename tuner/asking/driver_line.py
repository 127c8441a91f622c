"""A caller's door to a driver: what it asks for there, and the driver's last word."""

from __future__ import annotations

import pickle
import socket
import threading

from tuner.asking.caller_door import CallerDoor
from tuner.error import TuneError
from tuner.executors.callers.caller_words import (
    FromCaller,
    Leaving,
    MayGo,
    RunOver,
)


class DriverLine:
    """An open door of one driver's life. Used by all threads of the caller."""

    def __init__(self, door: CallerDoor) -> None:
        self._door = door
        self._sending, self._hearing = threading.Lock(), threading.Lock()
        self._heard: RunOver | MayGo | None = None
        self._gone = False

    def ask(self, message: FromCaller) -> tuple[socket.socket, socket.socket]:
        """Ask for something; returns main and side. Raises ConnectionError when nobody is there."""
        try:
            with self._sending:
                return self._door.ask(message)
        except OSError as error:
            raise ConnectionError("the driver is gone") from error

    def last_word(self) -> RunOver | MayGo | None:
        """Wait for the end of the driver; None: it was killed."""
        with self._hearing:
            while self._heard is None and not self._gone:
                word = self._door.hear()
                self._gone = word is None
                if isinstance(word, RunOver | MayGo):
                    self._heard = word
            return self._heard

    def leave(self) -> None:
        """The session is closed here. The last to close it waits for the end of the run. Raises what has ended that."""
        try:
            with self._sending:
                self._door.say(Leaving())
        except OSError:
            pass  # it has ended: its last word is there, or it was killed
        word = self.last_word()
        if isinstance(word, RunOver):
            raise_error(word)

    def close(self) -> None:
        self._door.close()


def raise_error(last: RunOver) -> None:
    """Raise what has ended the driver, if anything did that is to be raised."""
    if last.error:
        error: BaseException = pickle.loads(last.error)  # of a process of the same user
        raise error
    if last.text:
        raise TuneError(last.text)
