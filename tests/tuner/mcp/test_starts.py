"""What an agent may start, with what, and that it is started once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

import tuner as tune
from tests.tuner.mcp.agent import Agent, Refused
from tests.tuner.mcp.conftest import Workplace
from tuner.cli import main
from tuner.clock import SystemClock
from tuner.error import ToolError
from tuner.mcp.budget import AgentBudget
from tuner.mcp.ledger import Ledger, Limits
from tuner.mcp.starts import Request, Starts, trials_in_all

pytestmark = pytest.mark.timeout(400)  # servers and drivers take long to begin on a machine that is busy


def _finished(agent: Agent, name: str) -> dict[str, Any]:
    told = agent.waited(experiment=name)
    assert told["state"] == "finished", told
    return told


def drivers(storage: Path) -> list[psutil.Process]:
    """The processes that run what was started there."""
    found = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
        except psutil.Error:
            continue
        if "tuner.mcp.started_run" in words and str(storage) in words:
            found.append(process)
    return found


def test_a_start_takes_values_inside_the_space_and_trains_with_them(workplace: Workplace) -> None:
    config = workplace.config()
    with workplace.agent("--allow-start", config) as agent:
        (may,) = agent.tool("experiments")["may"]["start"]
        assert may["config"] == "night.yaml" and may["num_samples"] == 2
        space = {"lr": 0.5, "model/layers": {"grid_search": [1, 3]}}
        told = agent.tool("start", config="night.yaml", id="one", num_samples=1, space=space)

        assert told["new"] and told["experiment"] == "night-one" and told["trials_planned"] == 2
        _finished(agent, "night-one")
        rows = agent.tool("trials", experiment="night-one", sort="oldest")["trials"]
        assert [row["config"] for row in rows] == [{"lr": 0.5, "model/layers": layers} for layers in (1, 3)]
        assert "step 4" in agent.tool("logs", experiment="night-one", trial=0)["text"]
        again = agent.tool("start", config="night.yaml", id="one", num_samples=1, space=space)
        assert not again["new"] and again["state"] == "finished"
        with pytest.raises(Refused, match="only reads"):
            agent.tool("order", experiment="night-one", id="n1", order={"order": "note", "trial": "0", "text": "x"})
    trials = tune.open_experiment(workplace.results / "night-one").trials
    assert len(trials) == 2 and all(trial.config["data"] == "/data" for trial in trials)


def _starts(workplace: Workplace) -> Callable[..., Any]:
    """Asks for a start, of which nothing is ever run."""
    starts = Starts([str(workplace.config())], SystemClock())
    budget = AgentBudget(Limits(), starts.ledgers(), lambda root: pytest.fail("there is none"), SystemClock())
    return lambda **asked: starts.start(Request("night.yaml", "one", **asked), budget, None)


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("lr", 2.0, "lr=2.0 is not a value of"),
        ("lr", "high", "lr='high' is not a value of"),
        ("lr", {"choice": [0.5, 7]}, "lr=7 is not a value of"),
        ("lr", {"choice": []}, "accepted is a list of values"),
        ("lr", {"choice": 0.5}, "accepted is a list of values"),
        ("lr", {"uniform": [0.2, 0.3]}, "lr={'uniform'"),
        ("model/layers", 4, "model/layers=4 is not a value of"),
        ("model", {"layers": 5}, "model=5 is not a value of"),
        ("model", {}, "model has 0 values here"),
        ("layers", 2, "'layers' is not in the search space"),
        ("data", "/etc", "data is '/data' in the search space, and not searched"),
        ("trainable", "os:system", "'trainable' is not in the search space"),
        ("__class__", 1, "'__class__' is not in the search space"),
    ],
)
def test_what_is_not_inside_the_space_is_refused_and_nothing_is_made(
    workplace: Workplace, key: str, value: object, why: str
) -> None:
    with pytest.raises(ToolError) as caught:
        _starts(workplace)(space={key: value})

    assert why in str(caught.value)
    assert not Ledger(workplace.results).records() and not drivers(workplace.results)


def test_a_start_takes_nothing_else(workplace: Workplace) -> None:
    one = {"config": "night.yaml", "id": "one"}
    with workplace.agent("--allow-start", workplace.config()) as agent:
        for arguments, why in (
            (one | {"config": "other.yaml"}, "config='other.yaml' is not accepted; accepted: night.yaml"),
            (one | {"config": "../night.yaml"}, "is not accepted"),
            (one | {"id": "../one"}, "id"),
            (one | {"id": ""}, "id"),
            ({"config": "night.yaml"}, "id"),
            (one | {"num_samples": -1}, "num_samples"),
            (one | {"num_samples": 1.5}, "num_samples"),
            (one | {"command": "rm -rf /"}, "command"),
            (one | {"metric": "x"}, "metric"),
        ):
            with pytest.raises(Refused, match=why):
                agent.tool("start", **arguments)
    assert not drivers(workplace.results)


def test_an_id_of_another_request_or_of_somebody_elses_experiment_is_refused(workplace: Workplace) -> None:
    config = workplace.config()
    (workplace.results / "night-mine").mkdir()
    with workplace.agent("--allow-start", config) as agent:
        agent.tool("start", config="night.yaml", id="one", num_samples=1)
        with pytest.raises(Refused, match="the id of another request"):
            agent.tool("start", config="night.yaml", id="one", num_samples=2)
        with pytest.raises(Refused, match="something else has that name"):
            agent.tool("start", config="night.yaml", id="mine")
        _finished(agent, "night-one")


def test_a_config_is_what_it_was_when_the_server_began(workplace: Workplace) -> None:
    config = workplace.config()
    with workplace.agent("--allow-start", config) as agent:
        agent.tool("experiments")
        config.write_text(config.read_text().replace("work.py:train", "work.py:waits"))
        agent.tool("start", config="night.yaml", id="one", num_samples=1)
        _finished(agent, "night-one")


def test_of_many_who_start_the_same_at_once_one_does(workplace: Workplace) -> None:
    config = workplace.config()
    told: list[dict[str, Any]] = []
    with workplace.agent("--allow-start", config) as one, workplace.agent("--allow-start", config) as two:

        def starts(agent: Agent) -> None:
            told.append(agent.tool("start", config="night.yaml", id="one"))

        threads = [threading.Thread(target=starts, args=[agent]) for agent in (one, two, one, two)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [each["new"] for each in told].count(True) == 1
        _finished(one, "night-one")
    assert len(tune.open_experiment(workplace.results / "night-one").trials) == 2


def test_what_was_started_outlives_its_server_and_a_killed_driver_is_continued(workplace: Workplace) -> None:
    config = workplace.config(trainable="work.py:waits", num_samples=1)
    request = {"config": "night.yaml", "id": "one"}
    with workplace.agent("--allow-start", config) as agent:
        agent.tool("start", **request)
        agent.kill()
    (driver,) = drivers(workplace.results)
    with workplace.agent("--allow-start", config, "--allow-orders") as agent:
        assert not agent.tool("start", **request)["new"]
        assert drivers(workplace.results) == [driver]
        while "best" not in agent.tool("wait", experiment="night-one", timeout_s=0.5):
            pass
        os.kill(driver.pid, signal.SIGKILL)
        told = agent.waited(experiment="night-one")
        assert told["done"] and "killed" in told["state"]
        agent.tool("start", **request)
        while agent.tool("trial", experiment="night-one", trial=0)["attempts"] < 2:
            agent.tool("wait", experiment="night-one", timeout_s=0.5)
        stop = {"order": "stop", "trial": "all"}
        agent.tool("order", experiment="night-one", id="enough", order=stop)
        assert agent.waited(experiment="night-one", until="ordered", order="enough")["done"]
        _finished(agent, "night-one")
        attempts = agent.tool("trial", experiment="night-one", trial=0, section="attempts")["attempts"]
        assert [row["number"] for row in attempts] == [2, 1]
        assert attempts[0]["from"].startswith("checkpoint_")
    assert len(tune.open_experiment(workplace.results / "night-one").trials) == 1


def test_a_run_that_cannot_begin_says_so_and_can_be_tried_again(workplace: Workplace) -> None:
    config = workplace.config(trainable="missing.py:train")
    with workplace.agent("--allow-start", config) as agent:
        agent.tool("start", config="night.yaml", id="one")
        told = agent.waited(experiment="night-one")
        assert told["done"] and told["state"] == "not started" and "missing.py" in told["printed"]
        (workplace.root / "missing.py").write_text((workplace.root / "work.py").read_text())
        assert not agent.tool("start", config="night.yaml", id="one")["new"]
        _finished(agent, "night-one")


def test_a_config_that_cannot_be_read_is_said_before_anything_is_served(
    workplace: Workplace, capsys: pytest.CaptureFixture[str]
) -> None:
    config = workplace.config(metrik="loss")
    assert main(["mcp", str(workplace.results), "--allow-start", str(config)]) == 2
    assert "did you mean 'metric'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("said", "trials"),
    [
        ({}, 1),
        ({"num_samples": 5}, 5),
        ({"num_samples": 3, "param_space": {"a": {"grid_search": [1, 2]}, "b": {"grid_search": [1, 2]}}}, 12),
        ({"num_samples": -1}, None),
    ],
)
def test_how_many_trials_a_config_makes(said: dict[str, Any], trials: int | None) -> None:
    assert trials_in_all(yaml.safe_load(yaml.safe_dump(said))) == trials
