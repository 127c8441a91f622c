"""Whether a driver that is started here lets callers of other hosts in, and at which of its addresses."""

from __future__ import annotations

import ipaddress
import logging
import socket
import sys

from trainables.net.listener import family_of
from tuner import knobs
from tuner.error import SettingError
from tuner.executors.ray import connection
from tuner.executors.slurm import commands
from tuner.executors.slurm.agent_listener import address_of, routing_to

log = logging.getLogger(__name__)

_PATIENCE_S = 10.0
HINT = (
    "callers of other hosts are let in where the session was opened in a Ray cluster (after ray.init), in a Slurm job, "
    "or with TUNE_SESSION_ADDRESS=<an address of that host>"
)


def listen_address() -> str:
    """The address to listen at: of this node of a Ray cluster, or of a Slurm job; "": other hosts are not let in.

    TUNE_SESSION_ADDRESS comes first: an IP address, a name that has one, or a network interface; "none" for none.
    Raises SettingError where that is none of this host.
    """
    given = knobs.session_address()
    if given:
        if given == "none":
            return ""
        try:
            return _checked(given if _is_ipv6(given) else address_of(given))
        except (OSError, UnicodeError) as error:  # the latter of a name that is too long for one
            raise SettingError(
                f"TUNE_SESSION_ADDRESS={given[:100]!r}: there is no such address on this machine ({error}); accepted "
                "are an IP address of this host, a name that has one, the name of a network interface, and none"
            ) from error
    try:
        if "ray._raylet" in sys.modules and connection.load().is_initialized():
            return _checked(connection.own_address())
        if "SLURM_JOB_ID" in knobs.slurm_job():
            return _checked(routing_to(commands.controller_address(patience_s=_PATIENCE_S)))
    except (OSError, SettingError) as error:
        log.warning("callers of other hosts are not let in: %s; TUNE_SESSION_ADDRESS=<an address of this host>", error)
    return ""


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def _checked(ip: str) -> str:
    """The address, if it is one of this host. Raises OSError."""
    socket.create_server((ip, 0), family=family_of(ip)).close()
    return ip
