"""An agent: the real client of the protocol, and the real server as a process of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import anyio.from_thread
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp_types import CallToolResult, Tool

TIMEOUT_S = 250.0
_SERVE = 'echo $$ > "$0"; exec "$@"'


class Refused(Exception):
    """The server's answer is an error."""


class Agent:
    """A client with its server; `tool(...)` calls one.

    Args:
        beside: a directory for what is written down of the server.
        words: of the command line, after `tuner mcp`.
    """

    def __init__(self, beside: Path, *words: object, env: dict[str, str] | None = None) -> None:
        self._pid_file = beside / f"pid-{os.urandom(4).hex()}"
        self.errors = (beside / "stderr").open("a+", encoding="utf-8")
        command = [sys.executable, "-m", "tuner.cli", "mcp", *map(str, words)]
        self._server = StdioServerParameters(
            command="sh",
            args=["-c", _SERVE, str(self._pid_file), *command],
            env={"PYTHONPATH": str(Path(__file__).parents[3]), **(env or {})},
            cwd=beside,
        )

    def __enter__(self) -> Agent:
        self._stack = contextlib.ExitStack()
        self._portal = self._stack.enter_context(anyio.from_thread.start_blocking_portal())
        self._client = self._stack.enter_context(self._portal.wrap_async_context_manager(self._made()))
        return self

    def _made(self) -> Any:
        from mcp.client.stdio import stdio_client

        return Client(stdio_client(self._server, errlog=self.errors), read_timeout_seconds=TIMEOUT_S)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(Exception):  # of a server that was killed
            self._stack.close()
        self.errors.close()

    @property
    def pid(self) -> int:
        """Of the server."""
        return int(self._pid_file.read_text())

    def kill(self) -> None:
        """kill -9 of the server."""
        os.kill(self.pid, signal.SIGKILL)

    def answer(self, tool: str, **arguments: Any) -> CallToolResult:
        """All of an answer."""
        return self._portal.call(self._client.call_tool, tool, arguments)

    def tool(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The data of an answer. Raises Refused."""
        found = self.answer(tool, **arguments)
        if found.is_error:
            raise Refused(found.structured_content["error"])
        data: dict[str, Any] = found.structured_content
        return data

    def waited(self, **arguments: Any) -> dict[str, Any]:
        """The answer of `wait` that says that it is done."""
        while True:
            told = self.tool("wait", timeout_s=30, **arguments)
            if told["done"]:
                return told

    def tools(self) -> dict[str, Tool]:
        return {tool.name: tool for tool in self._portal.call(self._client.list_tools).tools}

    @property
    def instructions(self) -> str:
        return self._client.instructions or ""


@contextlib.contextmanager
def agent(beside: Path, *words: object, **how: Any) -> Iterator[Agent]:
    with Agent(beside, *words, **how) as made:
        yield made
