"""What tests of more than one package use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import hypothesis
import pytest

from tests.servers.cluster import Cluster, ray_cluster

# A machine that is busy with other tests is slow once, and that is no failure.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: Any, call: Any) -> Any:
    """Names that are not UTF-8 in what a test printed or logged are written out: workers of xdist send UTF-8 only."""
    report = yield
    report.sections = [(name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections]
    return report


@pytest.fixture(scope="module")
def whole_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Cluster]]:
    """whole_cluster(): the module's cluster of two hosts; another one when a test has harmed it."""
    with ExitStack() as stack:
        kept: list[Cluster] = []

        def get() -> Cluster:
            if not kept or any(host.harmed for host in kept[-1].hosts):
                stack.close()
                kept.append(stack.enter_context(ray_cluster(tmp_path_factory.mktemp("cluster"))))
            return kept[-1]

        yield get


@pytest.fixture
def cluster(whole_cluster: Callable[[], Cluster]) -> Iterator[Cluster]:
    """Ray on host1 (its head) and host2, two CPUs each; what a test starts or adds there ends with the test."""
    cluster = whole_cluster()
    yield cluster
    print(cluster.logs())  # pytest shows it when the test has failed
    cluster.tidy(2)
