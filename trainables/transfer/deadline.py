"""Deadlines shared by several steps, and calls with a time limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from trainables.errors import TransferError
from trainables.starting import start_thread

T = TypeVar("T")


class Deadline:
    """A moment after which nothing is waited for; of no seconds there is none."""

    def __init__(self, seconds: float | None) -> None:
        self._end = None if seconds is None else time.monotonic() + seconds

    @property
    def left(self) -> float | None:
        """Seconds until then; None: as long as it takes."""
        return None if self._end is None else max(0.1, self._end - time.monotonic())


NEVER = Deadline(None)


def within(seconds: float | None, call: Callable[[], T], uri: str) -> T:
    """What `call` returns or raises; TransferError when it has not ended after so many seconds (None: no limit).

    The thread that it runs in is left to itself then: nothing can end what waits inside a library.
    """
    if seconds is None:
        return call()
    returned: list[T] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            returned.append(call())
        except BaseException as error:  # raised where it was called from
            raised.append(error)

    start_thread(run, name="transfer-limited").join(seconds)
    if raised:
        raise raised[0]
    if not returned:
        raise TransferError(
            f"{uri} did not answer within {seconds:g} s: look at the address, the network and the proxy", transient=True
        )
    return returned[0]
