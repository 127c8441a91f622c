"""Every tool of a server that only reads: what it is, and what it says to wrong input."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tuner.mcp.agent import Agent, Refused
from tuner.mcp.marked import WHAT_IT_MEANS

AT: dict[str, Any] = {"experiment": "first"}


def test_agents_are_told_what_is_data_and_which_tools_change_something(reader: Agent) -> None:
    tools = reader.tools()

    assert WHAT_IT_MEANS in reader.instructions.replace("\n", " ")
    assert [name for name, tool in tools.items() if not tool.annotations.read_only_hint] == ["order", "start"]


@pytest.mark.parametrize(
    ("tool", "arguments", "why"),
    [
        ("nothing", {}, "there is no tool 'nothing'; there are experiments, overview"),
        ("experiments", {"cursor": "x"}, "cursor='x' is not accepted"),
        ("overview", {}, "experiment"),
        ("trials", AT | {"metric": "auc"}, "metric='auc' is not accepted; there are loss"),
        ("trials", AT | {"limit": -1}, "limit"),
        ("trial", AT | {"trial": 0, "section": "results", "metric": "auc"}, "metric='auc' is not accepted"),
        ("why", AT, "trial"),
        ("logs", AT | {"file": "stdout"}, "is of a trial: say which"),
        ("logs", AT | {"file": "driver"}, "is known of experiments that were started here"),
        ("diff", AT | {"a": 0}, "`b`"),
        ("diff", AT | {"a": 0, "b": 99}, "there is no trial '99'"),
        ("wait", AT | {"until": "trial_ended"}, "needs `trial`"),
        ("wait", AT | {"until": "ordered"}, "needs `order`"),
        ("wait", AT | {"until": "ordered", "order": "x"}, "no order 'x' was given here"),
        ("order", AT | {"id": "x", "order": {"order": "stop", "trial": "0"}}, "only reads: tuner mcp --allow-orders"),
        ("start", {"config": "x.yaml", "id": "x"}, "accepted: none: tuner mcp --allow-start CONFIG.yaml allows one"),
    ],
)
def test_what_is_not_accepted_is_named(reader: Agent, tool: str, arguments: dict[str, Any], why: str) -> None:
    with pytest.raises(Refused) as caught:
        reader.tool(tool, **arguments)
    assert why in str(caught.value)


def test_waiting_for_what_has_ended_ends_at_once_and_for_the_next_trial_with_the_run(reader: Agent) -> None:
    assert reader.tool("wait", experiment="first")["done"]
    told = reader.tool("wait", experiment="first", until="trial_ended", trial=2)
    assert told["done"] and told["trial"]["trial"] == 2
    assert reader.tool("wait", experiment="first", until="next")["done"]
    assert reader.tool("wait", experiment="first")["best"] == {"trial": 0, "value": 0.25}


def test_the_logs_of_an_experiment_are_what_its_driver_warned_of(reader: Agent) -> None:
    told = reader.tool("logs", experiment="first")

    assert told["in_all"] == len(told["warnings"])
