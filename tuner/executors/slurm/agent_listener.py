"""Where agents come to: a port of the driver's, open to who has the key."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Callable

from trainables.net.listener import Listener
from tuner.executors.host_agent.line import AgentLine
from tuner.executors.slurm.meeting import AgentHello


def listen_for_agents(ip: str, met: Callable[[AgentHello, str, AgentLine], None]) -> Listener:
    """Wait for agents at an interface of this machine.

    Args:
        met: called, from any thread, with what an agent says first, its address, and the line to it.
    """

    def came(sock: socket.socket, ip: str) -> None:
        line = AgentLine(sock)
        batches = line.receive()  # an agent says one thing, and waits
        if not batches:
            line.dispose()
            return
        sock.settimeout(None)
        met(pickle.loads(batches[0]), ip, line)

    return Listener(ip, came)


def routing_to(host: str) -> str:
    """The address of this machine from which a host is reached. Raises OSError for one that is unknown."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))  # sends nothing
        return str(probe.getsockname()[0])


def address_of(listen: str) -> str:
    """The IPv4 address of an interface of this machine, or of what has one. Raises OSError."""
    if listen in {name for _, name in socket.if_nameindex()}:
        import fcntl
        import struct

        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            found = fcntl.ioctl(probe.fileno(), 0x8915, struct.pack("256s", listen.encode()[:15]))  # SIOCGIFADDR
        return socket.inet_ntoa(found[20:24])
    return socket.gethostbyname(listen)
