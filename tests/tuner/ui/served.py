"""A server of `tuner ui` in a thread of this process, on loopback, and a client of it."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import httpx

from tuner.ui.served_places import Places
from tuner.ui.ui_server import UiOptions, UiServer

TIMEOUT_S = 60.0


@contextlib.contextmanager
def serving(places: Sequence[object], *, tell: Callable[[str], object] = print, **how: Any) -> Iterator[UiServer]:
    """A server that answers."""
    server = UiServer(Places([str(place) for place in places], tell=tell), UiOptions(**how))
    answers = threading.Event()
    thread = threading.Thread(target=server.run, args=(lambda address: answers.set(),))
    thread.start()
    try:
        assert answers.wait(TIMEOUT_S)
        yield server
    finally:
        server.stop()
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()


def client(server: UiServer, *, token: bool = True, **headers: str) -> httpx.Client:
    """One that carries the token, or none."""
    if token:
        headers = {"Authorization": f"Bearer {server.access.token}", **headers}
    return httpx.Client(base_url=server.address.partition("?")[0], headers=headers, timeout=TIMEOUT_S, trust_env=False)


def data(pages: httpx.Client, address: str) -> Any:
    """The JSON at an address, which is there."""
    answer = pages.get(address)
    assert answer.status_code == 200, answer.text
    return answer.json()


def lengths(columns: dict[str, Any]) -> set[int]:
    """Of its lists, and of those one level down."""
    found = {len(value) for value in columns.values() if isinstance(value, list)}
    inner = (value for value in columns.values() if isinstance(value, dict))
    return found | {len(value) for part in inner for value in part.values() if isinstance(value, list)}


class Event:
    """One of a stream."""

    def __init__(self, lines: list[str]) -> None:
        fields = [line.partition(": ") for line in lines if not line.startswith(":")]
        told = {name: value for name, _, value in fields}
        self.kind, self.id = told.get("event", ""), int(told.get("id", -1))
        self.data = json.loads(told["data"]) if "data" in told else {}


@contextlib.contextmanager
def stream(pages: httpx.Client, address: str, **headers: str) -> Iterator[Iterator[Event]]:
    """The events of a stream as they come."""
    with pages.stream("GET", address, headers=headers) as answer:
        assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/event-stream")
        yield _events(answer.iter_lines())


def _events(lines: Iterator[str]) -> Iterator[Event]:
    gathered: list[str] = []
    for line in lines:
        if line:
            gathered.append(line)
        elif gathered:
            event = Event(gathered)
            gathered = []
            if event.kind:
                yield event
