"""The agent of a node as an actor of Ray, and the driver's way to it."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from trainables.threads import Threads
from tuner.executors.host_agent.protocol import Heard, Order, pack_heard, unpack_orders
from tuner.executors.host_agent.service import HostAgent
from tuner.executors.ray import connection
from tuner.executors.remote.handle import AgentDiedError, AgentUnreachableError

_THREADS = 32
"""So many operations on files at once: one that hangs keeps no other from being done."""


class AgentActor:
    """What the driver calls, in threads beside the actor's own loop; orders and events too, where there is no line."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_default_executor(Threads(_THREADS, thread_name_prefix="tuner-agent"))
        self._heard: list[Heard] = []
        self._something = asyncio.Event()
        self._begun = asyncio.Event()
        self._next = 1
        self._early: dict[int, list[Order]] = {}
        self._agent = HostAgent(connection.own_address(), self._tell)

    async def call(self, what: str, *arguments: Any) -> Any:
        """Call a method of this, or else one of `HostAgent`."""
        own = getattr(self, what, None)
        return await (self._in_thread(what, *arguments) if own is None else own(*arguments))

    async def alive(self) -> None:
        """The driver lives. No thread: all may hang."""
        self._agent.alive()

    async def begin(self, *arguments: Any) -> Any:
        """`HostAgent.begin`: orders wait for it."""
        address = await self._in_thread("begin", *arguments)
        self._begun.set()
        return address

    async def upload(self, job: bytes) -> Any:
        """`HostAgent.upload`: where the replica is may be said with `begin` only."""
        if not self._agent.uploads:
            await self._begun.wait()
        return await self._in_thread("upload", job)

    async def orders(self, number: int, data: bytes) -> None:
        """Take a batch of orders; numbers say in which order they were sent."""
        await self._begun.wait()
        self._early[number] = unpack_orders(data)
        while (batch := self._early.pop(self._next, None)) is not None:
            self._next += 1
            self._agent.order(batch)

    async def events(self) -> bytes:
        """What happened since the last call; waits until something has."""
        await self._something.wait()
        heard, self._heard = self._heard, []
        self._something.clear()
        return pack_heard(heard)

    async def _in_thread(self, what: str, *arguments: Any) -> Any:
        return await asyncio.to_thread(getattr(self._agent, what), *arguments)

    def _tell(self, heard: Sequence[Heard]) -> None:
        self._loop.call_soon_threadsafe(self._hear, list(heard))

    def _hear(self, heard: list[Heard]) -> None:
        self._heard += heard
        self._something.set()


class ActorHandle:
    """Starts the agent of a node. `AgentHandle` of the driver.

    Args:
        node: Ray's id of it.
        runtime_env: for the agent and its trials.
    """

    def __init__(self, node: str, runtime_env: Mapping[str, Any] | None) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        environment = {"runtime_env": dict(runtime_env)} if runtime_env else {}
        there = NodeAffinitySchedulingStrategy(node, soft=False)
        self._actor = _actor_class().options(num_cpus=0, scheduling_strategy=there, **environment).remote()
        self._refs: set[Any] = set()

    def call(self, what: str, *arguments: Any) -> Future[Any]:
        ref = self._actor.call.remote(what, *arguments)
        self._refs.add(ref)  # an answer that nobody refers to is thrown away
        answer: Future[Any] = Future()

        def done(future: Any) -> None:
            self._refs.discard(ref)
            if (error := future.exception()) is None:
                answer.set_result(future.result())
            else:
                answer.set_exception(_as_ours(error))

        ref.future().add_done_callback(done)
        return answer

    def kill(self) -> None:
        connection.load().kill(self._actor)


@functools.cache
def _actor_class() -> Any:
    """What Ray makes of the class, once: for each new one it looks through all of the code, which takes 30 ms."""
    return connection.load().remote(AgentActor)


def _as_ours(error: BaseException) -> BaseException:
    """What was raised over there, or what Ray says of the agent itself."""
    exceptions = connection.load().exceptions
    if isinstance(error, exceptions.RayTaskError):
        cause = getattr(error, "cause", None)
        return cause if isinstance(cause, Exception) else error
    if not isinstance(error, exceptions.RayError):
        return error
    kind = AgentDiedError if isinstance(error, exceptions.ActorDiedError) else AgentUnreachableError
    ours = kind(str(error) or repr(error))
    ours.__cause__ = error
    return ours
