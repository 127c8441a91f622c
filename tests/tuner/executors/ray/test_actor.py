"""The agent of a node as an actor: orders in their order, whichever way they come, and errors as ours."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from tuner.executors.base import Exited, Started
from tuner.executors.host_agent.protocol import KillTrial, pack_orders, unpack_heard
from tuner.executors.ray import actor, connection
from tuner.executors.ray.actor import AgentActor
from tuner.executors.remote.handle import AgentDiedError, AgentUnreachableError


class PlayedAgent:
    """`HostAgent`, of which only is noted what it is asked."""

    uploads = False

    def __init__(self, ip: str, tell: Callable[[Any], None]) -> None:
        self.ip, self.tell = ip, tell
        self.done: list[Any] = []

    def alive(self) -> None:
        self.done.append("alive")

    def begin(self, *arguments: Any) -> str:
        self.uploads = True
        self.done.append("begin")
        return "address"

    def order(self, orders: Any) -> None:
        self.done += [order.trial_id for order in orders]

    def upload(self, job: bytes) -> bytes:
        self.done.append("upload")
        return job

    def check(self, path: str, digest: str) -> str:
        return f"{path} {digest}"


def orders(*names: str) -> bytes:
    return pack_orders([KillTrial(name) for name in names])


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Any, PlayedAgent], Coroutine[Any, Any, None]]], None]:
    """Runs a coroutine with an actor and its agent."""
    monkeypatch.setattr(actor, "HostAgent", PlayedAgent)
    monkeypatch.setattr(connection, "own_address", lambda: "10.0.0.1")

    def run(script: Callable[[Any, PlayedAgent], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            made = AgentActor()
            agent: Any = made._agent
            await asyncio.wait_for(script(made, agent), 30)

        asyncio.run(main())

    return run


def test_orders_wait_until_it_has_begun_and_are_done_in_the_order_of_their_numbers(play: Any) -> None:
    async def script(actor: AgentActor, agent: PlayedAgent) -> None:
        early = [asyncio.create_task(actor.call("orders", number, orders(f"t{number}"))) for number in (3, 1, 2)]
        await asyncio.sleep(0)
        assert agent.done == []
        assert await actor.call("begin") == "address"
        await asyncio.gather(*early)
        assert agent.done == ["begin", "t1", "t2", "t3"]
        await actor.call("orders", 5, orders("t5"))
        assert agent.done[-1] == "t3", "the fourth is on its way"
        await actor.call("orders", 4, orders("t4a", "t4b"))
        assert agent.done[4:] == ["t4a", "t4b", "t5"]

    play(script)


def test_a_copy_waits_for_the_place_that_is_said_with_begin(play: Any) -> None:
    async def script(actor: AgentActor, agent: PlayedAgent) -> None:
        copying = asyncio.create_task(actor.call("upload", b"job"))
        await asyncio.sleep(0.01)
        assert agent.done == []
        await actor.call("begin")
        assert await copying == b"job" and agent.done == ["begin", "upload"]

    play(script)


def test_events_are_brought_in_batches_and_waited_for(play: Any) -> None:
    async def script(actor: AgentActor, agent: PlayedAgent) -> None:
        waiting = asyncio.create_task(actor.call("events"))
        await asyncio.sleep(0)
        assert not waiting.done()
        await asyncio.to_thread(agent.tell, [Started("e_0", 1, 7)])
        assert unpack_heard(await waiting) == [Started("e_0", 1, 7)]
        for status in (0, 1):
            agent.tell([Exited("e_0", 1, status)])
        await asyncio.sleep(0)
        assert unpack_heard(await actor.call("events")) == [Exited("e_0", 1, 0), Exited("e_0", 1, 1)]

    play(script)


def test_everything_else_is_what_the_agent_does(play: Any) -> None:
    async def script(actor: AgentActor, agent: PlayedAgent) -> None:
        assert await actor.call("check", "path", "digest") == "path digest"
        await actor.call("alive")
        assert agent.done == ["alive"] and agent.ip == "10.0.0.1"

    play(script)


# --- what is raised over there ------------------------------------------------------------------------------------


class RayError(Exception):
    pass


class RayTaskError(RayError):
    def __init__(self, cause: Any = None) -> None:
        super().__init__("a traceback of Ray")
        self.cause = cause


class ActorDiedError(RayError):
    pass


@pytest.mark.parametrize(
    ("raised", "ours"),
    [
        (RayTaskError(KeyError("x")), KeyError),
        (RayTaskError(), RayTaskError),
        (ActorDiedError("it died"), AgentDiedError),
        (RayError("no answer"), AgentUnreachableError),
        (ValueError("mine"), ValueError),
    ],
)
def test_an_error_is_the_one_over_there_or_says_what_became_of_the_agent(
    raised: Exception, ours: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError, ActorDiedError=ActorDiedError)
    monkeypatch.setattr(connection, "load", lambda: SimpleNamespace(exceptions=exceptions))
    error = actor._as_ours(raised)
    assert type(error) is ours
    if issubclass(ours, AgentUnreachableError):
        assert str(error) == str(raised) and error.__cause__ is raised
