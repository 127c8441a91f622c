"""What tests of more than one package use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests.servers.cluster import Cluster, ray_cluster
from trainables import warned

pytest_plugins = ("tests.running_tests", "tests.tiers")

# Without a deadline: a machine that is busy with other tests is slow at times, and that is no failure. The examples are
# the same in each run, so that it tests a change and not luck; `make test-wide` draws others, and prints its seed.
hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=25)
hypothesis.settings.register_profile("random", deadline=None, derandomize=False)
hypothesis.settings.load_profile("repeatable")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: Any, call: Any) -> Any:
    """Names that are not UTF-8 in what a test printed or logged are written out: workers of xdist send UTF-8 only."""
    report = yield
    report.sections = [(name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections]
    return report


@pytest.fixture(autouse=True)
def own_warnings() -> None:
    """What other tests warned of, outside of a run, is in no log of this test's."""
    warned.take()


class KeptCluster:
    """The cluster that consecutive modules share, and one after it when a test has lost its head."""

    def __init__(self, directories: pytest.TempPathFactory) -> None:
        self._directories, self._stack = directories, ExitStack()
        self._cluster: Cluster | None = None

    def get(self) -> Cluster:
        """Two hosts, both sound."""
        if self._cluster is not None and self._cluster.lost:
            self.close()
        if self._cluster is None:
            self._cluster = self._stack.enter_context(ray_cluster(self._directories.mktemp("cluster")))
        self._cluster.mend()
        return self._cluster

    def empty(self) -> None:
        """Let the next module find nothing of those before it."""
        if self._cluster is not None and not self._cluster.lost:
            self._cluster.mend()
            self._cluster.empty()

    def close(self) -> None:
        self._cluster = None
        self._stack.close()


_KEPT = pytest.StashKey[KeptCluster]()
_ON_CLUSTERS = pytest.StashKey[frozenset[Path]]()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End the cluster once the next test is in a module that uses none: it would only take memory and time."""
    kept = item.session.stash.get(_KEPT, None)
    if kept is None:
        return
    if _ON_CLUSTERS not in item.session.stash:
        uses = frozenset(each.path for each in item.session.items if "cluster" in getattr(each, "fixturenames", ()))
        item.session.stash[_ON_CLUSTERS] = uses
    if nextitem is None or nextitem.path not in item.session.stash[_ON_CLUSTERS]:
        kept.close()
        del item.session.stash[_KEPT]


def pytest_sessionfinish(session: pytest.Session) -> None:
    if (kept := session.stash.get(_KEPT, None)) is not None:  # it was interrupted
        kept.close()


@pytest.fixture(scope="module")
def whole_cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Cluster]:
    """whole_cluster(): two hosts, the same as of the modules beside this one; harmed hosts are replaced."""
    kept = request.session.stash.setdefault(_KEPT, KeptCluster(tmp_path_factory))
    kept.empty()
    return kept.get


@pytest.fixture
def cluster(whole_cluster: Callable[[], Cluster]) -> Iterator[Cluster]:
    """Ray on host1 (its head) and host2, two CPUs each; what a test starts or adds there ends with the test."""
    cluster = whole_cluster()
    yield cluster
    print(cluster.logs())  # pytest shows it when the test has failed
    cluster.tidy(2)
