"""The way to one agent, as whoever started that offers it to the driver."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, Protocol

from tuner.error import TuneError


class AgentUnreachableError(TuneError):
    """No answer comes of an agent; what it was asked to do may have been done."""


class AgentDiedError(AgentUnreachableError):
    """An agent is gone for good."""


class AgentHandle(Protocol):
    """From any thread; nothing here waits."""

    def call(self, what: str, *arguments: Any) -> Future[Any]:
        """Have a method of `HostAgent` called. The future raises what that raises, or `AgentUnreachableError`.

        Where there is no line, two more bring messages: `orders`, with the number of a batch, from 1, and the batch;
        and `events`, which waits until there is a batch. Whoever starts the agent offers them.
        """

    def kill(self) -> None:
        """End the agent at once, and with it whatever trials it has."""


def died(error: BaseException | None) -> bool:
    """Whether something went wrong because an agent is gone for good, which is told by itself too."""
    while error is not None and not isinstance(error, AgentDiedError):
        error = error.__cause__ or error.__context__
    return error is not None
