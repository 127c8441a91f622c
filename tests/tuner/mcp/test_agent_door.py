"""What an agent may order: within its budget, once each, and never beyond."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tests.tuner.mcp.agent import Agent, Refused
from tests.tuner.mcp.agent import agent as served
from tests.tuner.mcp.conftest import Workplace, own_run

pytestmark = pytest.mark.timeout(400)  # servers and drivers take long to begin on a machine that is busy

FORK = {"order": "fork", "trial": "0", "iteration": 2, "config": {"lr": 0.3}}


def _done(agent: Agent, name: str, order_id: str, order: dict[str, Any]) -> dict[str, Any]:
    agent.tool("order", experiment=name, id=order_id, order=order)
    told = agent.waited(experiment=name, until="ordered", order=order_id)
    assert told["done"], told
    return told["order"]


def _used(agent: Agent) -> int:
    used: int = agent.tool("experiments")["may"]["budget"]["trials"]["used"]
    return used


@contextmanager
def _running(workplace: Workplace, *words: object) -> Iterator[Agent]:
    """An agent, and an experiment of two trials that it has started and that trains until somebody says so."""
    config = workplace.config(trainable="work.py:waits")
    with workplace.agent("--allow-orders", "--allow-start", config, *words) as agent:
        agent.tool("start", config="night.yaml", id="one")
        while agent.tool("wait", experiment="night-one", timeout_s=0.3).get("by_state") != {"running": 2}:
            pass
        yield agent
        agent.tool("order", experiment="night-one", id="the-end", order={"order": "stop", "trial": "all"})
        assert agent.waited(experiment="night-one")["done"]


def test_orders_are_done_once_whatever_is_repeated(workplace: Workplace) -> None:
    with _running(workplace, "--max-trials", 4) as agent:
        name = "night-one"
        _done(agent, name, "save", {"order": "save", "trial": "0", "pin": True})
        at = int(
            agent.tool("trial", experiment=name, trial=0, section="checkpoints")["checkpoints"][0]["checkpoint"][2:]
        )
        tag = {"order": "tag", "trial": "0", "iteration": at, "tag": "good"}
        assert _done(agent, name, "tag", tag)["state"] == "done"
        _done(agent, name, "pause", {"order": "pause", "trial": "1"})
        assert "paused by you" in agent.tool("why", experiment=name, trial=1)["why"]
        _done(agent, name, "note", {"order": "note", "trial": "1", "text": "looks flat"})
        fork = {"order": "fork", "tag": "good", "config": {"lr": 0.3}}
        for _ in range(3):
            assert _done(agent, name, "fork", fork)["state"] == "done"
        told = agent.tool("order", experiment=name, id="fork", order=fork)
        assert told["trial"] == 2 and _used(agent) == 3
        forked = agent.tool("trial", experiment=name, trial=2)
        assert forked["began_from"]["checkpoint"] == f"0@{at}" and "lr" in forked["began_from"]["changed"]
        with pytest.raises(Refused, match="the id is that of another order"):
            agent.tool("order", experiment=name, id="fork", order={**fork, "config": {"lr": 0.9}})
        _done(agent, name, "stop", {"order": "stop", "trial": "2"})
        assert "stopped by you" in agent.tool("why", experiment=name, trial=2)["why"]

        for order_id, order, why in (
            ("b1", {"order": "stop"}, "stop"),
            ("b2", {"order": "delete", "trial": "0"}, "there is no order 'delete'"),
            ("b3", {"order": "set", "name": "num_samples", "value": 4}, "the budget has 4 trials, of which 3 are used"),
            ("b4", {"order": "set", "name": "num_samples", "value": -1}, "without an end would be beyond"),
            ("b5", {"order": "note", "trial": "0", "text": ""}, "text must have"),
        ):
            with pytest.raises(Refused, match=why):
                agent.tool("order", experiment=name, id=order_id, order=order)
        assert _done(agent, name, "more", {"order": "set", "name": "num_samples", "value": 3})["state"] == "done"
        assert _used(agent) == 4
        for order_id, order in (("c1", fork), ("c2", {"order": "add", "config": {}})):
            with pytest.raises(Refused, match="1 more would be beyond it"):
                agent.tool("order", experiment=name, id=order_id, order=order)
        with pytest.raises(Refused, match="2 more would be beyond it"):
            agent.tool("start", config="night.yaml", id="two")
    assert len(tune.open_experiment(workplace.results / "night-one").trials) <= 4


def test_two_servers_at_once_and_those_after_them_have_one_budget(workplace: Workplace) -> None:
    config = workplace.config(num_samples=2)
    words = ("--allow-orders", "--allow-start", config, "--max-trials", 6)
    outcomes: list[str] = []
    with workplace.agent(*words) as one, workplace.agent(*words) as two:

        def starts(agent: Agent, order_id: str) -> None:
            try:
                agent.tool("start", config="night.yaml", id=order_id)
                outcomes.append("started")
            except Refused as refused:
                outcomes.append("beyond" if "would be beyond it" in str(refused) else str(refused))

        threads = [
            threading.Thread(target=starts, args=[agent, f"{which}{number}"])
            for which, agent in (("a", one), ("b", two))
            for number in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(outcomes) == ["beyond"] * 3 + ["started"] * 3
        assert _used(one) == _used(two) == 6
        two.kill()
        names = [row["experiment"] for row in one.tool("experiments")["experiments"]]
        for name in names:
            assert one.waited(experiment=name)["done"]
    with workplace.agent(*words) as third:
        assert _used(third) == 6
        with pytest.raises(Refused, match="would be beyond it"):
            third.tool("order", experiment=names[0], id="f", order=FORK)
    with workplace.agent(*words[:-1], 7) as fourth:  # whoever starts the server may raise it
        assert _done(fourth, names[0], "f", FORK)["state"] == "done"
        assert fourth.waited(experiment=names[0])["done"] and _used(fourth) == 7
        with pytest.raises(Refused, match="would be beyond it"):
            fourth.tool("order", experiment=names[1], id="f", order=FORK)
    experiments = [tune.open_experiment(workplace.results / name) for name in names]
    assert sum(len(each.trials) for each in experiments) == 7


def test_a_users_own_experiment_is_steered_within_the_budget_and_only_what_agents_add_counts(
    workplace: Workplace,
) -> None:
    with own_run(workplace, trials=2) as name, workplace.agent("--allow-orders", "--max-trials", 1) as agent:
        assert _used(agent) == 0
        assert _done(agent, name, "a", {"order": "add", "config": {"lr": 0.2}})["state"] == "done"
        assert _used(agent) == 1
        with pytest.raises(Refused, match="of which 1 are used: 1 more would be beyond it"):
            agent.tool("order", experiment=name, id="b", order={"order": "add", "config": {}})
        assert _done(agent, name, "c", {"order": "stop", "trial": "all"})["state"] == "done"
        assert agent.waited(experiment=name)["done"]
        with pytest.raises(Refused, match="has ended: stopped by you"):
            agent.tool("order", experiment=name, id="d", order={"order": "go", "trial": "0"})


def test_hours_and_bytes_end_what_was_started_also_without_a_server(workplace: Workplace) -> None:
    config = workplace.config(trainable="work.py:large", num_samples=2)
    with workplace.agent("--allow-start", config, "--max-bytes", 30_000) as agent:
        agent.tool("start", config="night.yaml", id="one")
        agent.kill()
    with workplace.agent("--allow-orders", "--allow-start", config, "--max-bytes", 30_000) as agent:
        told = agent.waited(experiment="night-one")
        assert told["done"] and told["state"] == "finished"
        assert "the budget has 30,000 bytes" in agent.tool("logs", experiment="night-one", file="driver")["text"]
        with pytest.raises(Refused, match="the budget has 30,000 bytes of checkpoints"):
            agent.tool("start", config="night.yaml", id="two")
    with workplace.agent("--allow-start", config, "--max-hours", "0.0001") as agent:
        assert agent.tool("experiments")["may"]["budget"]["hours"]["used"] > 0.0001
        with pytest.raises(Refused, match="hours of training"):
            agent.tool("start", config="night.yaml", id="three")


def test_what_is_counted_of_other_directories_is_not_seen(workplace: Workplace, tmp_path: Path) -> None:
    """An experiment is a place of its own: those beside it count for the budget, and are nobody's to read."""
    config = workplace.config()
    with workplace.agent("--allow-start", config, "--allow-orders") as agent:
        agent.tool("start", config="night.yaml", id="one", num_samples=1)
        assert agent.waited(experiment="night-one")["done"]
        agent.tool("start", config="night.yaml", id="two", num_samples=1)
        assert agent.waited(experiment="night-two")["done"]
    with served(workplace.root, workplace.results / "night-one", "--allow-orders", "--max-trials", 3) as agent:
        assert _used(agent) == 2
        assert [row["experiment"] for row in agent.tool("experiments")["experiments"]] == ["night-one"]
        with pytest.raises(Refused, match="there is no experiment"):
            agent.tool("overview", experiment="night-two")
