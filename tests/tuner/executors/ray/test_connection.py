"""Ray itself: how it is connected to, and what of its settings is refused before anything begins."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tuner as tune
from tests.servers.cluster import PATIENCE_S, Cluster
from trainables.user_frames import last_said
from tuner.error import SettingError
from tuner.executors import RayExecutor
from tuner.executors.ray import connection


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"runtime_env": {"pipp": []}}, "unknown key of RayExecutor(runtime_env=...) 'pipp'; did you mean 'pip'?"),
        (
            {"options": {"runtime_env": {"env_var": {}}}},
            "(options={'runtime_env': ...}) 'env_var'; did you mean 'env_vars'?",
        ),
        ({"runtime_env": {"env_vars": {"A": 1}}}, "the value 1 is of type"),
        (
            {"runtime_env": {"working_dir": "/srv"}},
            "RayExecutor(runtime_env={'working_dir': '/srv'}) is not accepted: ",
        ),
    ],
)
def test_a_runtime_env_that_ray_would_not_take_is_refused_before_anything_begins(
    given: Any, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_RUNTIME_ENV_PLUGINS", raising=False)
    nowhere = RayExecutor("127.0.0.1:1", **given)  # no cluster is asked
    with pytest.raises(SettingError) as caught:
        tune.run(print, executor=nowhere, storage_path=tmp_path, verbose=0)
    assert said in str(caught.value) and not list(tmp_path.iterdir())


def test_keys_of_rays_plugins_are_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_RUNTIME_ENV_PLUGINS", '[{"class": "mine.Plugin"}]')
    with pytest.raises(SettingError, match="there is no Ray cluster"):
        RayExecutor("127.0.0.1:1", runtime_env={"mine": 1, "nsight": "default"}).total()


@pytest.mark.root
@pytest.mark.timeout(400)
def test_an_option_that_ray_does_not_take_is_not_said_to_be_a_missing_cluster(cluster: Cluster) -> None:
    script = (
        "import sys, tuner as tune\n"
        "from tuner.executors import RayExecutor\n"
        "tune.run(print, executor=RayExecutor(sys.argv[1], options={'num_cpu': 3}))\n"
    )
    run = cluster.hosts[0].popen(script, cluster.address)
    assert run.wait(PATIENCE_S) == 1
    assert "Unknown keyword argument(s): num_cpu" in last_said(run.output)
    assert "no Ray cluster" not in last_said(run.output)


# --- names ------------------------------------------------------------------------------------------------------------


@given(st.dictionaries(st.sampled_from(["cpu", "gpu", "memory", "licences"]), st.floats(0.25, 64)))
def test_resources_are_the_same_under_rays_names_and_ours(resources: dict[str, float]) -> None:
    there = connection.to_ray(resources)
    assert not {"cpu", "gpu"} & set(there)
    assert connection.from_ray(there) == resources


def test_what_ray_adds_for_itself_is_no_resource_and_nothing_is_not_asked_for() -> None:
    there = {"CPU": 4.0, "node:10.0.0.1": 1.0, "object_store_memory": 1e9, "accelerator_type:A100": 1.0, "mine": 2}
    assert connection.from_ray(there) == {"cpu": 4.0, "mine": 2.0}
    assert connection.to_ray({"cpu": 1.0, "gpu": 0.0}) == {"CPU": 1.0}


def test_only_nodes_that_live_are_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        {"NodeID": "a", "NodeManagerAddress": "10.0.0.1", "Resources": {"CPU": 2.0}, "Alive": True},
        {"NodeID": "b", "NodeManagerAddress": "10.0.0.2", "Resources": {}, "Alive": False},
    ]
    monkeypatch.setattr(connection, "load", lambda: SimpleNamespace(nodes=lambda: found))
    assert connection.nodes() == [connection.Node("a", "10.0.0.1", {"cpu": 2.0})]
    assert connection.is_alive("a") and not connection.is_alive("b")


# --- connecting -------------------------------------------------------------------------------------------------------


class PlayedRay:
    """Ray before it is connected; `error` is what its `init` raises."""

    def __init__(self, error: Exception | None = None, *, connected: bool = False) -> None:
        self.error, self.connected, self.asked = error, connected, list[dict[str, Any]]()

    def is_initialized(self) -> bool:
        return self.connected

    def init(self, **settings: Any) -> None:
        self.asked.append(settings)
        if self.error is not None:
            raise self.error


@pytest.fixture
def listening() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_who_is_connected_stays_connected_and_is_not_to_be_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = PlayedRay(connected=True)
    monkeypatch.setattr(connection, "load", lambda: ray)
    assert not connection.connect("127.0.0.1:1", {}) and ray.asked == []


def test_options_of_the_user_come_before_ours(monkeypatch: pytest.MonkeyPatch, listening: str) -> None:
    ray = PlayedRay()
    monkeypatch.setattr(connection, "load", lambda: ray)
    assert connection.connect(listening, {"log_to_driver": True, "namespace": "mine"})
    (asked,) = ray.asked
    assert (asked["address"], asked["log_to_driver"], asked["namespace"]) == (listening, True, "mine")
    assert connection.connect(None, {})
    assert ray.asked[-1]["address"] == "auto"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ConnectionError("Could not find any running Ray instance.\nMore."), "there is no Ray cluster at"),
        (RuntimeError("Version mismatch: 2.1 and 2.2\nMore."), "Ray does not connect to the cluster at"),
        (ValueError("Unknown keyword argument"), "Ray does not connect to the cluster at"),
    ],
)
def test_what_ray_says_is_told_in_its_first_line(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch, listening: str
) -> None:
    monkeypatch.setattr(connection, "load", lambda: PlayedRay(error))
    with pytest.raises(SettingError, match=said) as caught:
        connection.connect(listening, {})
    assert str(error).splitlines()[0] in str(caught.value) and "More." not in str(caught.value)


def test_where_nobody_listens_ray_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    ray = PlayedRay()
    monkeypatch.setattr(connection, "load", lambda: ray)
    with pytest.raises(SettingError, match="there is no Ray cluster at"):
        connection.connect(f"127.0.0.1:{port}", {})
    assert ray.asked == [], "it would try for many minutes"
