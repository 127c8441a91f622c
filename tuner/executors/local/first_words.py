"""What the driver and the process of an attempt say before anything of the trial's."""

from __future__ import annotations

import marshal
import os
import socket
import struct
from typing import Any

HELLO = struct.Struct("<I")
"""First bytes of the main line: the trial's pid."""
BLOCKS = struct.Struct("<IQ")
"""First bytes to the trial: sizes of its setup (marshal) and its job (pickle), which follow."""


def receive(main: socket.socket) -> tuple[dict[str, Any], bytes]:
    """The setup of the process, and the job, pickled."""
    setup, job = BLOCKS.unpack(_exactly(main, BLOCKS.size))
    return marshal.loads(_exactly(main, setup)), _exactly(main, job)


def _exactly(main: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        count = main.recv_into(view)
        if not count:
            os._exit(1)  # the driver is gone
        view = view[count:]
    return bytes(data)
