"""What tools take: as agents are told it, and as it is checked."""

from __future__ import annotations

import json

import pytest

from tuner.error import ToolError
from tuner.mcp import asked
from tuner.mcp.tool_table import TOOLS


def test_there_are_ten_tools_and_each_is_described_shortly() -> None:
    assert [tool.called for tool in TOOLS] == [
        *("experiments", "overview", "trials", "trial", "why", "logs", "diff", "order", "wait", "start"),
    ]
    schemas = json.dumps([asked.schema_of(tool.takes) for tool in TOOLS])
    assert "$ref" not in schemas and len(schemas) + sum(len(tool.says) for tool in TOOLS) < 10_000
    for tool in TOOLS:
        schema = asked.schema_of(tool.takes)
        assert schema["type"] == "object" and schema["additionalProperties"] is False
    assert [tool.called for tool in TOOLS if tool.changes] == ["order", "start"]


def test_what_is_given_is_checked() -> None:
    given = asked.read(asked.AskedTrials, {"experiment": "x", "limit": 3})

    assert (given.experiment, given.limit, given.sort) == ("x", 3, "best")
    assert asked.read(asked.AskedExperiments, None).limit == 10


@pytest.mark.parametrize(
    ("kind", "given", "why"),
    [
        (asked.AskedTrials, {}, "experiment"),
        (asked.AskedTrials, {"experiment": ""}, "experiment"),
        (asked.AskedTrials, {"experiment": "x" * 2000}, "experiment"),
        (asked.AskedTrials, {"experiment": "x", "limit": 0}, "limit"),
        (asked.AskedTrials, {"experiment": "x", "limit": 51}, "limit"),
        (asked.AskedTrials, {"experiment": "x", "sort": "worst"}, "sort"),
        (asked.AskedTrials, {"experiment": "x", "state": "ERROR"}, "state"),
        (asked.AskedTrials, {"experiment": ["x"]}, "experiment"),
        (asked.AskedTrials, {"experiment": "x", "limt": 3}, "limt"),
        (asked.AskedOneTrial, {"experiment": "x", "trial": 1.5}, "trial"),
        (asked.AskedOneTrial, {"experiment": "x", "trial": None}, "trial"),
        (asked.AskedOneTrial, {"experiment": "x", "trial": 1, "section": "all"}, "section"),
        (asked.AskedLogs, {"experiment": "x", "file": "../../etc/passwd"}, "file"),
        (asked.AskedLogs, {"experiment": "x", "characters": 10**9}, "characters"),
        (asked.AskedOrder, {"experiment": "x", "order": "stop", "id": "1"}, "order"),
        (asked.AskedOrder, {"experiment": "x", "order": {}}, "id"),
        (asked.AskedWait, {"experiment": "x", "timeout_s": 3600}, "timeout_s"),
        (asked.AskedWait, {"experiment": "x", "until": "never"}, "until"),
    ],
)
def test_what_does_not_fit_is_named(kind: type[asked.Asked], given: dict[str, object], why: str) -> None:
    with pytest.raises(ToolError, match=why):
        asked.read(kind, given)
