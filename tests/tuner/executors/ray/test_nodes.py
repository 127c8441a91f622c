"""The nodes of a Ray cluster: a slot is handed out once the agents of its nodes are ready."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.tuner.executors.ray.harness import ONE, Groups, asked
from tuner.error import SettingError
from tuner.executors.ray import connection
from tuner.executors.ray.leases import Leases
from tuner.executors.ray.nodes import RayNodes
from tuner.executors.reactor import Reactor
from tuner.executors.remote import hosts
from tuner.executors.remote.hosts import HostAgents


class Unwritable:
    """A host whose disk does not take the experiment's directory."""

    ready = False

    def __init__(self, node: str, *_: Any, **settings: Any) -> None:
        self.node = node
        self.waiting: list[Callable[[Any], None]] = []

    def when_looked(self, then: Callable[[Any], None]) -> None:
        self.waiting.append(then)

    def survey(self) -> Any:
        raise SettingError("/results cannot be written there")

    def release(self) -> None:
        pass


def test_no_slot_on_a_node_that_was_given_up_is_waited_for(
    groups: Groups, leases: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "RemoteHost", Unwritable)
    reactor = Reactor()
    unused: Any = None
    always: Any = lambda *_: None  # noqa: E731
    mine = HostAgents(reactor, always, is_alive=connection.is_alive, heard=always, lost=always, busy=frozenset)
    cluster = RayNodes(mine, reactor, leases, unused, leaves=unused, keeps=lambda dirname, ref: True)
    mine._place = object()  # type: ignore[assignment]
    cluster._begin = lambda host: None
    cluster._greet(connection.Node("a", "10.0.0.1", {"cpu": 8.0}), [])
    assert not leases.has_room(ONE, ())
    for lease in asked(leases):  # granted before its agent has looked around
        assert leases.on_granted(lease, None)
        cluster.use(lease)
    while mine.by_node:
        (host,) = mine.by_node.values()
        assert isinstance(host, Unwritable)
        for then in host.waiting:
            then(None)
        reactor.wait(0.0, [])
    assert asked(leases) == []
    assert not leases.has_room(ONE, ())
    assert len(asked(leases)) == 1
