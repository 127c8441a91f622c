"""How long the server waits for somebody who has connected and asks nothing: strangers reach a loopback, too."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

ASK_S = 15.0
"""So long a request's head may take."""
WAITING = 200
"""Connections that may be without a request at once; of more the oldest is closed."""


class PatientProtocol(H11Protocol):
    """HTTP as uvicorn speaks it; a connection over which no request comes is closed."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._waits()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._served()
        else:
            self._waits()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._served()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle is None or self.cycle.response_complete:
            self._waits()

    @property
    def _waiting(self) -> dict[PatientProtocol, asyncio.TimerHandle]:
        """Those of this server."""
        found: dict[Any, asyncio.TimerHandle] = self.server_state.__dict__.setdefault("waiting", {})
        return found

    def _waits(self) -> None:
        if self in self._waiting or self.transport.is_closing():
            return
        self._waiting[self] = self.loop.call_later(ASK_S, self._too_late)
        if len(self._waiting) > WAITING:
            next(iter(self._waiting))._too_late()

    def _too_late(self) -> None:
        self._served()
        self.transport.close()

    def _served(self) -> None:
        if (timer := self._waiting.pop(self, None)) is not None:
            timer.cancel()
