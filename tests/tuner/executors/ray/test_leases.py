"""Slots by themselves: what is asked of Ray, given back and kept, whatever comes between. Ray's part is played here."""

from __future__ import annotations

import pytest

from tests.tuner.executors.ray.harness import ONE, TWO, Groups, asked, grant, use
from tuner.executors.ray import connection
from tuner.executors.ray.leases import Leases


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
