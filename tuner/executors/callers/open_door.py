"""One caller that has a session open, as its driver sees it."""

from __future__ import annotations

import contextlib
import os
import socket
from dataclasses import dataclass

import msgspec


@dataclass(eq=False, slots=True)
class Door:
    """One caller that has the session open."""

    sock: socket.socket
    pid: int
    process: int = -1
    """A descriptor of its process; -1: it cannot be seen from here."""

    def tell(self, message: msgspec.Struct) -> None:
        """Send it; one that is gone, or does not listen, is no error."""
        with contextlib.suppress(OSError):
            self.sock.send(msgspec.json.encode(message))

    def close(self) -> None:
        self.sock.close()
        if self.process >= 0:
            os.close(self.process)
