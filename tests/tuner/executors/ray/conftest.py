from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.tuner.executors.ray.harness import Groups
from tuner.executors.ray import connection
from tuner.executors.ray.leases import Leases


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> Groups:
    found = Groups()
    monkeypatch.setattr(connection, "load", lambda: SimpleNamespace(util=found))
    monkeypatch.setattr(connection, "nodes", lambda: [connection.Node(id, "10.0.0.1", {"cpu": 8.0}) for id in "ab"])
    return found


@pytest.fixture
def leases() -> Leases:
    return Leases(lambda lease, answer: None, lambda: 0.0)
