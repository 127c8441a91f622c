"""The agent's end of its connection to the driver: calls come in, each is done in a thread, answers go out."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Sequence
from socket import socket
from typing import Any

from trainables.starting import start_thread
from trainables.threads import Threads
from tuner.error import TuneError
from tuner.executors.host_agent.line import AgentLine
from tuner.executors.host_agent.protocol import Heard, Order, pack_heard, unpack_orders
from tuner.executors.host_agent.service import HostAgent
from tuner.executors.slurm.meeting import LEAVING, STAY, AgentHello

_THREADS = 32
"""So many operations on files at once: one that hangs keeps no other from being done."""


class AgentServer:
    """One agent, for one driver."""

    def __init__(self, sock: socket, hello: AgentHello) -> None:
        self._line = AgentLine(sock)
        self._line.send(pickle.dumps(hello))
        self._agent = HostAgent(sock.getsockname()[0], self._tell)
        self._pool = Threads(_THREADS, thread_name_prefix="tuner-agent")
        self._lock = threading.Lock()
        self._begun = threading.Event()
        self._heard: list[Heard] = []
        self._listener: int | None = None
        """The call that waits for what is heard."""
        self._early: dict[int, list[Order]] = {}
        self._next = 1

    def serve(self) -> float | None:
        """Do what the driver says until it is gone. Returns until when another one is to be waited for; None: not."""
        while (batches := self._line.receive()) is not None:
            for batch in batches:
                number, what, arguments = pickle.loads(batch)
                if what == "alive":
                    self._agent.alive()
                elif what == STAY:
                    self._answer(number, None)
                    return float(arguments[0])
                elif what == "events":
                    self._listen(number)
                else:
                    self._pool.submit(self._do, number, what, arguments)
        self._agent.leave()
        return None

    def leaving(self, number: int) -> None:
        """Say that Slurm has sent a signal: the job is about to end. For signal handlers."""
        start_thread(self._send, name="tuner-leaving", args=(LEAVING, True, number))  # a lock may be held just now

    def _do(self, number: int, what: str, arguments: Sequence[Any]) -> None:
        try:
            if what == "orders":
                self._order(*arguments)
                result = None
            else:
                if what == "upload" and not self._agent.uploads:
                    self._begun.wait()
                result = getattr(self._agent, what)(*arguments)
        except BaseException as error:  # whatever it is, the driver gets it
            self._send(number, False, error)
            return
        self._answer(number, result)
        if what == "begin":
            self._begun.set()
            self._order_early()

    def _order(self, number: int, data: bytes) -> None:
        with self._lock:
            self._early[number] = unpack_orders(data)
        self._order_early()

    def _order_early(self) -> None:
        """Carry out batches of orders in the order in which they were sent, once it has begun."""
        with self._lock:
            while self._begun.is_set() and (batch := self._early.pop(self._next, None)) is not None:
                self._next += 1
                self._agent.order(batch)

    def _tell(self, heard: Sequence[Heard]) -> None:
        with self._lock:
            self._heard += heard
            listener = self._take_listener()
        self._tell_listener(listener)

    def _listen(self, number: int) -> None:
        with self._lock:
            self._listener = number
            listener = self._take_listener()
        self._tell_listener(listener)

    def _take_listener(self) -> tuple[int, list[Heard]] | None:
        if self._listener is None or not self._heard:
            return None
        number, heard = self._listener, self._heard
        self._listener, self._heard = None, []
        return number, heard

    def _tell_listener(self, found: tuple[int, list[Heard]] | None) -> None:
        if found is not None:
            self._answer(found[0], pack_heard(found[1]))

    def _answer(self, number: int, result: Any) -> None:
        self._send(number, True, result)

    def _send(self, number: int, well: bool, result: Any) -> None:
        try:
            data = pickle.dumps((number, well, result), pickle.HIGHEST_PROTOCOL)
            pickle.loads(data) if isinstance(result, BaseException) else None  # some can be pickled only
        except Exception:
            data = pickle.dumps((number, False, TuneError(f"{type(result).__name__}: {result}")))
        try:
            self._line.send(data)
        except OSError:
            pass  # that the driver is gone is told by itself
