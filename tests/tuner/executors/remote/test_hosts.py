"""The hosts of a run: their agents are started, listened to, and missed when they are gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from tests.tuner.executors.remote.harness import REF, PlayedAgent
from tuner.error import SettingError, TuneError
from tuner.executors.base import Exited, Started
from tuner.executors.host_agent.protocol import HostBroken, HostSurvey, Setup, pack_heard
from tuner.executors.reactor import Reactor
from tuner.executors.remote import host as hosts
from tuner.executors.remote.handle import AgentUnreachableError
from tuner.executors.remote.host import AgentError, RemoteHost
from tuner.executors.remote.hosts import HostAgents
from tuner.executors.remote_hosts import ExperimentPlace, Uploading

SETUP = Setup({}, "owner", Path("/tmp/nowhere"), Path("/"))


class Run:
    """The hosts of a run, whose agents are played."""

    def __init__(self, tmp_path: Path, *agents: PlayedAgent) -> None:
        self.agents = {f"node-{number}": agent for number, agent in enumerate(agents)}
        self.alive = set(self.agents)
        self.heard: list[Any] = []
        self.lost: list[str] = []
        self.reactor = Reactor()
        self.hosts = HostAgents(
            self.reactor,
            lambda node: self.agents[node],
            is_alive=lambda node: node in self.alive,
            heard=lambda host, heard, events: self.heard.append((host.node, heard)),
            lost=lambda host, events: self.lost.append(host.node),
            busy=frozenset,
        )
        self._place = ExperimentPlace(tmp_path, tmp_path / "record", "owner", "e")

    def survey(self) -> Any:
        return self.hosts.survey(self._place, [(node, f"10.0.0.{node[-1]}") for node in self.agents])

    def begin(self) -> RemoteHost:
        """The first host is surveyed and has begun."""
        self.survey()
        host = self.hosts.by_node["node-0"]
        self.hosts.begin(host, SETUP, b"", b"")
        self.until(lambda: "events" in self.agents["node-0"].calls or self.lost)
        return host

    def until(self, done: Callable[[], Any]) -> None:
        for _ in range(200):
            if done():
                return
            self.reactor.wait(0.1, [])
        raise AssertionError("nothing came of it")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Run]]:
    monkeypatch.setattr(hosts, "connect", lambda address: None)  # events come through the engine
    made: list[Run] = []

    def start(*agents: PlayedAgent) -> Run:
        made.append(Run(tmp_path, *agents))
        return made[-1]

    yield start
    for each in made:
        each.hosts.release()


def gone(text: str = "the node died") -> AgentUnreachableError:
    return AgentUnreachableError(text)


# --- the survey -----------------------------------------------------------------------------------------------------


def test_what_lies_on_every_host_is_told_with_its_node(run: Any) -> None:
    found = ("t", REF, "digest")
    here = run(PlayedAgent(look=HostSurvey("a", False, [found])), PlayedAgent(look=HostSurvey("b", True)))
    assert here.survey() == [("node-0", *found)]
    first, second = here.hosts.by_node.values()
    assert (first.name, first.shared, second.shared) == ("a (10.0.0.0)", False, True)
    assert first.store.holds(Path("anywhere/t") / REF.name) and first in here.hosts


def test_a_host_that_cannot_write_is_an_error_that_names_it(run: Any) -> None:
    here = run(PlayedAgent(look=HostSurvey("a", False, problem="/results cannot be written there")))
    with pytest.raises(SettingError, match=r"node 10\.0\.0\.0 \(a\): /results cannot be written there; choose"):
        here.survey()


def test_a_node_that_died_just_now_is_left_out_and_one_that_lives_is_an_error(run: Any) -> None:
    here = run(PlayedAgent(look=gone()), PlayedAgent("b"))
    here.alive.discard("node-0")
    here.survey()
    assert list(here.hosts.by_node) == ["node-1"]
    here = run(PlayedAgent(look=gone("no module named tuner")))
    with pytest.raises(AgentError, match="its agent does not start: no module named tuner"):
        here.survey()


# --- copies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shared", "answer", "needed", "said"),
    [
        (False, None, True, None),
        (False, OSError("no credentials"), False, "cannot copy its checkpoints itself"),
        (False, OSError("no credentials"), True, TuneError),
        (True, OSError("no credentials"), True, None),  # it has nothing of its own to copy
    ],
)
def test_every_host_with_a_disk_of_its_own_looks_whether_it_can_copy(
    shared: bool, answer: Any, needed: bool, said: Any, run: Any
) -> None:
    here = run(PlayedAgent(look=HostSurvey("a", shared), open_uploads=answer))
    here.survey()
    uploading = Uploading({"place": "s3://bucket"}, 1.0, needed=needed)
    if said is TuneError:
        with pytest.raises(TuneError, match=r"node a \(10.0.0.0\) cannot copy its checkpoints: no credentials"):
            here.hosts.open_uploads(uploading)
        return
    problem = here.hosts.open_uploads(uploading)
    assert problem is None if said is None else said in problem


# --- its life -------------------------------------------------------------------------------------------------------


def test_what_an_agent_says_is_heard_in_the_thread_that_waits(run: Any) -> None:
    agent = PlayedAgent(events=Future())
    here = run(agent)
    here.begin()
    said = [Started("e_0", 1, 7), Exited("e_0", 1, 0)]
    answer, agent.answers["events"] = agent.answers["events"], Future()
    answer.set_result(pack_heard(said))
    here.until(lambda: len(here.heard) == 2)
    assert here.heard == [("node-0", each) for each in said]


@pytest.mark.parametrize("when", ["before it began", "after"])
def test_a_host_that_is_gone_is_told_once_and_given_up(when: str, run: Any, caplog: pytest.LogCaptureFixture) -> None:
    agent = PlayedAgent(events=Future()) if when == "after" else PlayedAgent(begin=gone())
    here = run(agent)
    host = here.begin()
    if when == "after":
        agent.answers["events"].set_exception(gone())
        here.until(lambda: here.lost)
    assert here.lost == ["node-0"] and host.lost and host not in here.hosts and agent.killed
    assert "node a (10.0.0.0) is lost: the node died" in caplog.text


def test_a_node_that_lives_and_cannot_run_trials_ends_the_run(run: Any) -> None:
    agent = PlayedAgent(begin=ModuleNotFoundError("No module named 'mine'"))
    here = run(agent)
    here.survey()
    here.hosts.begin(here.hosts.by_node["node-0"], SETUP, b"", b"")
    with pytest.raises(TuneError, match=r"a \(10.0.0.0\) cannot run trials: .*No module named 'mine'"):
        here.until(lambda: False)


def test_a_host_whose_runner_broke_ends_the_run(run: Any) -> None:
    agent = PlayedAgent(events=Future())
    here = run(agent)
    here.begin()
    answer, agent.answers["events"] = agent.answers["events"], Future()
    answer.set_result(pack_heard([HostBroken("OSError: no room")]))
    with pytest.raises(TuneError, match="cannot run trials: OSError: no room"):
        here.until(lambda: False)


@pytest.mark.parametrize(("useful", "tries"), [(False, 3), (True, None)])
def test_an_agent_that_ends_again_and_again_before_a_trial_has_begun_ends_the_run(
    useful: bool, tries: int | None, run: Any
) -> None:
    here = run(PlayedAgent(events=Future()))
    here.survey()
    for attempt in range(1, 6):
        host = here.hosts.by_node.get("node-0") or here.hosts.add("node-0", "10.0.0.0")
        host.useful = useful
        if attempt == tries:
            with pytest.raises(TuneError, match="its agent ends before a trial has begun"):
                here.hosts._lost(host, gone(), [])
            return
        here.hosts._lost(host, gone(), [])
    assert tries is None


def test_at_the_end_trials_are_ended_on_all_hosts_before_one_is_waited_for(run: Any) -> None:
    order: list[str] = []

    class Noting(PlayedAgent):
        def call(self, what: str, *arguments: Any) -> Future[Any]:
            order.append(what)
            return super().call(what, *arguments)

    here = run(Noting(), Noting())
    here.survey()
    order.clear()
    here.hosts.end_trials()
    assert order == ["end", "end"]
    here.hosts.release()
    assert all(agent.killed for agent in here.agents.values()) and not here.hosts.by_node
    here.hosts.release()  # once more is no error
