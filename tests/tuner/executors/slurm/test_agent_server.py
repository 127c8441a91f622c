"""The connection between a driver and the agent of a job, both ends of it: calls, signals, the end."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from tests.tuner.executors.slurm.harness import hello
from tuner.executors.host_agent.line import AgentLine
from tuner.executors.host_agent.protocol import HostSurvey, pack_orders
from tuner.executors.remote.handle import AgentDiedError
from tuner.executors.remote_hosts import ExperimentPlace
from tuner.executors.slurm import agent_server
from tuner.executors.slurm.agent_handle import SocketHandle
from tuner.executors.slurm.agent_server import AgentServer

PATIENCE_S = 30.0


class Ends:
    """Agent and driver in one process."""

    def __init__(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        there = socket.create_connection(listener.getsockname())
        here, _ = listener.accept()
        listener.close()
        self.server = AgentServer(there, hello("7"))
        self.result: Future[float | None] = Future()
        result, server = self.result, self.server
        self.thread = threading.Thread(target=lambda: result.set_result(server.serve()))
        self.thread.start()
        self.line = AgentLine(here)
        assert self.line.receive()  # hello
        self.signals: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.handle = SocketHandle(self.line, self.signals.put)

    def ask(self, what: str, *arguments: Any) -> Any:
        return self.handle.call(what, *arguments).result(PATIENCE_S)


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ends]:
    monkeypatch.setattr(agent_server.HostAgent, "leave", lambda self: None)  # it would end this process
    monkeypatch.setattr(agent_server.HostAgent, "_watch_driver", lambda self: None)  # later, too
    ends = Ends()
    yield ends
    ends.handle.kill()
    ends.thread.join(PATIENCE_S)
    ends.server._line.dispose()  # as the end of its process does
    vars(ends).clear()


def test_calls_are_answered_and_what_they_raise_is_raised_here(ends: Ends, tmp_path: Path) -> None:
    place = ExperimentPlace(tmp_path / "e", tmp_path / "record", "id", "experiment")
    survey = ends.ask("look", place, "mark", frozenset())
    assert isinstance(survey, HostSurvey)
    assert survey.problem == ""
    with pytest.raises(AttributeError, match="nothing"):
        ends.ask("nothing")
    with pytest.raises(FileNotFoundError):
        ends.ask("files", "read", [("none", 0, 1)])
    ends.handle.kill()
    assert ends.result.result(PATIENCE_S) is None


def test_a_call_that_hangs_holds_up_no_other(ends: Ends) -> None:
    waiting = ends.handle.call("events")
    early = ends.handle.call("orders", 1, pack_orders([]))  # it has not begun: they are kept
    assert early.result(PATIENCE_S) is None
    assert ends.ask("check", Path("/nowhere"), "") == ""
    assert not waiting.done()
    ends.handle.kill()
    with pytest.raises(AgentDiedError):
        waiting.result(PATIENCE_S)
    with pytest.raises(AgentDiedError):
        ends.ask("check", Path("/nowhere"), "")


def test_the_driver_hears_of_signals(ends: Ends) -> None:
    ends.server.leaving(15)
    assert ends.signals.get(timeout=PATIENCE_S) == 15


def test_a_driver_that_is_followed_by_another_says_until_when(ends: Ends) -> None:
    assert ends.handle.stay(1234.5).result(PATIENCE_S) is None
    assert ends.result.result(PATIENCE_S) == 1234.5
