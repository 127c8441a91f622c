"""The tests' own proxy: what it must not do to the runs that it stands before."""

from __future__ import annotations

import socket

from tests.servers.forward import Forwarder
from tests.servers.s3 import s3_server


def test_what_a_client_did_not_send_whole_is_not_passed_on():
    """A killed client's half of a body would keep the server waiting for the rest, and with it who comes next."""
    with s3_server() as port, Forwarder(port) as proxy:
        with socket.create_connection(("127.0.0.1", proxy.server_port), timeout=60) as dying:
            dying.sendall(b"PUT /bucket/key HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nhalf")
            dying.shutdown(socket.SHUT_WR)
            assert dying.recv(1) == b""
