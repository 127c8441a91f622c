"""The driver's end of the connection to an agent that came to it."""

from __future__ import annotations

import itertools
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from trainables.starting import start_thread
from tuner.executors.host_agent.line import AgentLine
from tuner.executors.remote.handle import AgentDiedError
from tuner.executors.slurm.meeting import LEAVING, STAY


class SocketHandle:
    """`AgentHandle` of the driver.

    Args:
        leaving: called, from any thread, with the signal by which Slurm has told the agent that its job is to end.
    """

    def __init__(self, line: AgentLine, leaving: Callable[[int], None]) -> None:
        self._line, self._leaving = line, leaving
        self._lock = threading.Lock()
        self._numbers = itertools.count(LEAVING + 1)
        self._waiting: dict[int, Future[Any]] = {}
        self._gone = False
        start_thread(self._read, name="tuner-agent-answers")

    def call(self, what: str, *arguments: Any) -> Future[Any]:
        answer: Future[Any] = Future()
        with self._lock:
            number = next(self._numbers)
            gone = self._gone
            if not gone:
                self._waiting[number] = answer
        if gone:
            answer.set_exception(AgentDiedError("the agent is gone"))
            return answer
        try:
            self._line.send(pickle.dumps((number, what, arguments), pickle.HIGHEST_PROTOCOL))
        except OSError:
            pass  # told by the thread that reads
        if what == "alive":
            with self._lock:
                self._waiting.pop(number, None)  # it is not answered
            answer.cancel()
        return answer

    def stay(self, until: float) -> Future[Any]:
        """Have it wait until then, in seconds since the epoch, for another driver."""
        return self.call(STAY, until)

    def kill(self) -> None:
        self._line.close()  # it ends when it hears nothing more

    def _read(self) -> None:
        while (batches := self._line.receive()) is not None:
            for batch in batches:
                number, well, result = pickle.loads(batch)
                if number == LEAVING:
                    self._leaving(int(result))
                    continue
                with self._lock:
                    answer = self._waiting.pop(number, None)
                if answer is not None:
                    answer.set_result(result) if well else answer.set_exception(result)
        self._line.dispose()
        with self._lock:
            self._gone, waiting = True, list(self._waiting.values())
            self._waiting.clear()
        for answer in waiting:
            answer.set_exception(AgentDiedError("its connection has ended"))
