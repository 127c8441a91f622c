"""Running the server of `tuner ui` until it is told to end."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import uvicorn

from tuner.error import SettingError, require
from tuner.ui.app import application
from tuner.ui.guard import Access, host_name, is_loopback
from tuner.ui.patience import PatientProtocol
from tuner.ui.served import Served
from tuner.ui.served_places import Places
from tuner.ui.token_file import user_token

NEEDS_TOKEN = (
    "with --no-token, accepted are localhost, 127.0.0.0/8 and ::1, which only this machine reaches. Leave out "
    "--no-token, and open the whole address that is printed. Or leave out --host, and on the other machine call "
    "ssh -L PORT:localhost:PORT HOST"
)
GRACE_S = 2
"""So long answers that are being sent may take once the server is to end."""


@dataclass(frozen=True, slots=True)
class UiOptions:
    """How a server is reached.

    Args:
        host: what it is bound to.
        port: 0: the system chooses one.
        allow_hosts: further names by which it may be called.
        read_only: no orders.
        token: False: everybody on this machine may read, and nobody may order; only with a `host` of loopback.
    """

    host: str = "127.0.0.1"
    port: int = 0
    allow_hosts: Sequence[str] = ()
    read_only: bool = False
    token: bool = True

    @property
    def proxies(self) -> frozenset[str]:
        """The further names, as requests have them. Raises SettingError for one that no request ever has."""
        return frozenset(map(_name, self.allow_hosts))

    @property
    def names(self) -> frozenset[str]:
        """All by which it is called besides those of loopback; also 0.0.0.0 if that is what it prints."""
        return self.proxies | {self.host.lower().strip("[]")}


class _Uvicorn(uvicorn.Server):
    """Ends in order: streams first, which would never end by themselves."""

    def __init__(self, config: uvicorn.Config, closing: asyncio.Event, told: Callable[[], None]) -> None:
        super().__init__(config)
        self._closing, self._told = closing, told

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._told()

    def handle_exit(self, sig: int, frame: Any) -> None:
        self.should_exit = True  # not kept to be raised again: this is an end in order

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._closing.set()
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            connection.transport.abort()  # the client did not read its answer within GRACE_S
        await asyncio.sleep(0)  # in which they are closed


class UiServer:
    """A server that listens already, and answers from `run` on.

    Args:
        places: what it serves; closed with it.
        how: where it listens. Raises SettingError where it cannot.
    """

    def __init__(self, places: Places, how: UiOptions) -> None:
        self._places = places
        names, proxies = how.names, how.proxies
        token = user_token() if how.token else None
        self._bound = _bound(how)
        port = self._bound.getsockname()[1]
        self.access = Access(token, port, names, proxies, read_only=how.read_only or not how.token)
        host = f"[{how.host.strip('[]')}]" if ":" in how.host else how.host
        self.address = f"http://{host}:{port}/" + (f"?token={token}" if token else "")
        self._server: _Uvicorn | None = None

    def run(self, told: Callable[[str], None]) -> None:
        """Serve until SIGTERM or SIGINT, or `stop`.

        Args:
            told: is called once with the address, token and all, when it answers.
        """
        try:
            asyncio.run(self._serve(lambda: told(self.address)))
        finally:
            self._bound.close()
            self._places.close()

    def stop(self) -> None:
        """Have `run` return, from another thread."""
        if self._server is not None:
            self._server.should_exit = True

    async def _serve(self, told: Callable[[], None]) -> None:
        served = Served(self._places, self.access)
        config = uvicorn.Config(
            application(served),
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            ws="none",
            loop="asyncio",
            http=PatientProtocol,
            log_level="error",  # what is no request is answered, and nothing for a person
            proxy_headers=False,
            timeout_graceful_shutdown=GRACE_S,
        )
        self._server = _Uvicorn(config, served.closing, told)
        await self._server.serve(sockets=[self._bound])


def _name(given: str) -> str:
    """A host as requests name it. Raises SettingError for what no request ever does."""
    name = given.strip("[]").rstrip(".").lower()
    plain = re.fullmatch(r"[\w-]+(\.[\w-]+)*", name) or (":" in name and host_name(f"[{name}]"))
    require(plain, "allow_host", given, "accepted is a host's name or address, without http:// and without a port")
    return name


def _bound(how: UiOptions) -> socket.socket:
    require(0 <= how.port < 65536, "port", how.port, "accepted are 1 to 65535, and 0: the system chooses one")
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            how.host.strip("[]"), how.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        require(how.token or is_loopback(str(place[0])), "host", how.host, NEEDS_TOKEN)
        with ExitStack() as stack:
            made = stack.enter_context(socket.socket(family, kind, protocol))
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(place)
            stack.pop_all()
            return made
    except (OSError, OverflowError) as error:
        raise SettingError(f"{how.host}:{how.port} cannot be listened on: {error}") from None
