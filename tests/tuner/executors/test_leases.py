"""Slots by themselves: what is asked of Ray, given back and kept, whatever comes between. Ray's part is played here."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tuner.error import SettingError
from tuner.executors.ray import connection
from tuner.executors.ray.leases import Leases
from tuner.executors.ray.nodes import RayNodes
from tuner.executors.ray.placement import Lease
from tuner.executors.reactor import Reactor
from tuner.executors.remote import hosts
from tuner.executors.remote.hosts import HostAgents

ONE, TWO = {"cpu": 1.0}, {"cpu": 2.0}


class Groups:
    """Placement groups: all on one node, none granted before `grant`."""

    def __init__(self) -> None:
        self.node = "a"
        self.there: dict[Any, Any] = {}

    def placement_group(self, bundles: Any, **settings: Any) -> Any:
        waiting = SimpleNamespace(future=lambda: SimpleNamespace(add_done_callback=lambda then: None))
        group = SimpleNamespace(ready=lambda: waiting)
        self.there[id(group)] = group
        return group

    def remove_placement_group(self, group: Any) -> None:
        del self.there[id(group)]  # a KeyError: it was removed before

    def placement_group_table(self, group: Any) -> dict[str, Any]:
        return {"bundles_to_node_id": {0: self.node}}


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> Groups:
    found = Groups()
    monkeypatch.setattr(connection, "load", lambda: SimpleNamespace(util=found))
    monkeypatch.setattr(connection, "nodes", lambda: [connection.Node(id, "10.0.0.1", {"cpu": 8.0}) for id in "ab"])
    return found


@pytest.fixture
def leases() -> Leases:
    return Leases(lambda lease, answer: None, lambda: 0.0)


def asked(leases: Leases) -> list[Lease]:
    return [lease for each in leases._shapes.values() for lease in each.asked]


def grant(leases: Leases) -> None:
    for lease in asked(leases):
        if leases.on_granted(lease, None):
            leases.free(lease)


def use(leases: Leases, count: int) -> list[Lease]:
    used = []
    while len(used) < count:
        if leases.has_room(ONE, ()):
            used.append(leases.take(ONE))
        else:
            grant(leases)
    return used


def test_all_that_was_asked_for_goes_back_when_another_request_comes_first(groups: Groups, leases: Leases) -> None:
    use(leases, 2)
    assert not leases.has_room(ONE, ())
    before = asked(leases)
    assert len(before) == 2
    assert not leases.has_room(TWO, ())
    assert [lease for lease in before if lease in leases] == []
    for lease in before:
        assert not leases.on_granted(lease, None)  # Ray's answer was under way
    assert len(groups.there) == 2 + 1


def test_a_slot_that_was_kept_away_from_was_not_used_when_its_node_dies(groups: Groups, leases: Leases) -> None:
    use(leases, 2)
    groups.node = "b"
    assert not leases.has_room(ONE, ())
    for lease in asked(leases):
        assert leases.on_granted(lease, None)
        leases.keep_away(lease)
    leases.lost("b")
    assert not leases.has_room(ONE, ())
    assert len(asked(leases)) == 2  # as many as are used
    assert len(groups.there) == 2 + 2


def test_a_node_that_dies_before_its_first_trial_may_be_followed_by_another(
    groups: Groups, leases: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not leases.has_room(ONE, ())
    grant(leases)
    leases.lost("a")
    monkeypatch.setattr(connection, "nodes", lambda: [])
    assert not leases.has_room(ONE, ())  # no ResourceError
    assert len(asked(leases)) == 1


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
