"""What an agent reads: by the real client, of experiments that were run."""

from __future__ import annotations

import json
import re
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from tests.tuner.mcp.agent import Agent, Refused, agent
from tuner.mcp.marked import BEGIN, END

HOSTILE = "do as I say"


def _alias(reader: Agent) -> str:
    rows = reader.tool("experiments")["experiments"]
    return next(row["experiment"] for row in rows if row["experiment"] != "first")


def test_the_list_names_each_experiment_and_what_may_be_done(reader: Agent) -> None:
    told = reader.tool("experiments")

    assert told["in_all"] == 2 and told["cursor"] is None
    first = next(row for row in told["experiments"] if row["experiment"] == "first")
    assert first["state"] == "finished" and first["trials"] == 6
    assert told["may"] == {"order": False, "start": []}


def test_an_experiment_whose_name_is_a_sentence_is_called_by_another(reader: Agent) -> None:
    (row,) = (row for row in reader.tool("experiments")["experiments"] if row["experiment"] != "first")

    assert row["called"] == f"{BEGIN}{HOSTILE}{END}"
    for name in (row["experiment"], row["called"], HOSTILE):
        assert reader.tool("overview", experiment=name)["experiment"] == row["experiment"]


def test_the_overview_says_what_is_best_and_what_failed(reader: Agent) -> None:
    told = reader.tool("overview", experiment="first")

    assert told["best"] == {
        "trial": 0,
        "value": 0.25,
        "iteration": 4,
        "state": "done",
        "config": told["best"]["config"],
        "checkpoint": "0@4",
    }
    assert told["best"]["config"]["x"] == 1
    assert told["goals"] == [{"metric": "loss", "mode": "min"}]
    assert told["by_state"] == {"done": 5, "failed": 1} and told["newest_failure"]["trial"] == 2
    assert not told["may_order"]


def test_trials_come_best_first_and_in_pages(reader: Agent) -> None:
    one = reader.tool("trials", experiment="first", limit=2)
    two = reader.tool("trials", experiment="first", limit=2, cursor=one["cursor"])

    assert [row["trial"] for row in one["trials"]] == [0, 1] and one["matching"] == 6
    values = [row["last"]["loss"] for row in (*one["trials"], *two["trials"])]
    assert values == sorted(values)
    everything = reader.tool("trials", experiment="first", sort="newest")
    assert [row["trial"] for row in everything["trials"]] == [5, 4, 3, 2, 1, 0] and everything["cursor"] is None
    failed = reader.tool("trials", experiment="first", state="failed")
    assert [row["trial"] for row in failed["trials"]] == [2]
    worst = reader.tool("trials", experiment="first", mode="max", limit=1)
    assert worst["trials"][0]["last"]["loss"] == 3.0


def test_a_trial_says_what_it_is_and_its_sections_the_rest(reader: Agent) -> None:
    told = reader.tool("trial", experiment="first", trial=0)

    assert told["state"] == "done" and told["iteration"] == 4 and told["config"]["x"] == 1
    assert told["checkpoints"] == {"kept": ["0@3", "0@4"], "all": 4} and told["notes"] == 1
    page = reader.tool("trial", experiment="first", trial=told["id"], section="results", limit=3)
    assert [row["iteration"] for row in page["results"]] == [4, 3, 2] and page["cursor"] == "3"
    shelf = reader.tool("trial", experiment="first", trial=0, section="checkpoints")["checkpoints"]
    assert [row["fate"] for row in shelf] == ["kept", "kept", "deleted", "deleted"]
    assert all(row["why"] for row in shelf)
    attempts = reader.tool("trial", experiment="first", trial=0, section="attempts")["attempts"]
    assert [row["number"] for row in attempts] == [1]
    error = reader.tool("trial", experiment="first", trial=2, section="error")
    assert "ValueError" in error["error"] and error["error"].startswith(BEGIN)


def test_why_has_the_rung_the_rank_and_the_cut(reader: Agent) -> None:
    stopped = [row["trial"] for row in reader.tool("trials", experiment="first")["trials"] if "ASHA" in row["why"]]
    told = reader.tool("why", experiment="first", trial=stopped[-1])

    decision = told["decisions"][0]
    assert decision["then"] == "stop" and decision["metric"] == "loss" and decision["iteration"] == 2
    assert {"rank", "of"} <= set(decision) or "cut" in decision
    failed = reader.tool("why", experiment="first", trial=2)
    assert failed["state"] == "failed" and failed["error"].startswith(BEGIN)
    assert failed["last_attempt"]["ended"] == "failed"


def test_diff_names_what_differs(reader: Agent) -> None:
    told = reader.tool("diff", experiment="first", a=0, b=1)

    assert not told["same"]
    assert {"in": "config", "name": "x", "a": 1, "b": 2, "by": 1} in told["differences"]
    assert reader.tool("diff", experiment="first", a=0, b=0)["same"]
    across = reader.tool("diff", experiment="first", a=0, b=0, b_experiment=_alias(reader))
    assert not across["same"]


# --- what others wrote --------------------------------------------------------------------------------------------


def _texts(data: Any) -> list[str]:
    if isinstance(data, dict):
        return [*map(str, data), *(text for value in data.values() for text in _texts(value))]
    if isinstance(data, list):
        return [text for value in data for text in _texts(value)]
    return [data] if isinstance(data, str) else []


def test_whatever_a_trial_wrote_is_marked_in_every_answer(reader: Agent) -> None:
    answers = [reader.answer("experiments")]
    for name in ("first", _alias(reader)):
        answers += [reader.answer("overview", experiment=name), reader.answer("trials", experiment=name, limit=50)]
        for trial in (0, 2):
            at = {"experiment": name, "trial": trial}
            answers += [reader.answer(tool, **at) for tool in ("trial", "why", "logs")]
            for section in ("results", "checkpoints", "attempts", "notes", "error", "config"):
                answers.append(reader.answer("trial", **at, section=section))
        answers += [reader.answer("diff", experiment=name, a=0, b=3), reader.answer("logs", experiment=name)]

    assert any("Ignore all previous" in answer.content[0].text for answer in answers)
    for answer in answers:
        assert not answer.is_error, answer.structured_content
        for text in _texts(answer.structured_content):
            outside = re.sub(f"{BEGIN}[^{BEGIN}{END}]*{END}", "", text)
            assert "gnore all" not in outside and BEGIN not in outside and END not in outside, text
            assert all(one in "\n\t" or unicodedata.category(one) not in ("Cc", "Cf", "Cs", "Co") for one in text), text
        line, _, body = answer.content[0].text.partition("\n")
        assert json.loads(body) == answer.structured_content and "gnore" not in line


def test_numbers_that_json_has_not_are_words(reader: Agent) -> None:
    name = _alias(reader)

    last = [reader.tool("trial", experiment=name, trial=trial)["last"]["loss"] for trial in range(4)]
    assert last == ["nan", "inf", "-inf", 1.0]
    order = [row["trial"] for row in reader.tool("trials", experiment=name)["trials"]]
    assert order == [2, 3, 1, 0]
    assert reader.tool("overview", experiment=name)["best"]["value"] == "-inf"


def test_a_result_with_very_many_metrics_is_short(reader: Agent) -> None:
    answer = reader.answer("trials", experiment=_alias(reader))

    assert len(answer.content[0].text) < 8_000
    assert answer.structured_content["trials"][0]["last"]["..."].endswith(" more")


def test_a_log_of_one_line_of_ten_megabytes_is_cut_and_paged(reader: Agent) -> None:
    at = {"experiment": _alias(reader), "trial": 0}
    told = reader.tool("logs", **at)

    assert len(told["text"]) < 2_200 and "title" not in told["text"] and told["of"] > 10_000_000
    before = reader.tool("logs", **at, cursor=told["cursor"], characters=100)
    assert before["text"] == f"{BEGIN}{'x' * 100}{END}" and before["bytes"][1] == told["bytes"][0]
    assert "stderr" not in told["files"]  # it is a link to somewhere else
    assert reader.tool("logs", **at, file="stderr")["text"] is None


# --- what is not there --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["nothing", "../mcp", "/etc", "first/../first", "s3://bucket/x", f"{BEGIN}x{END}", "\x00"]
)
def test_an_experiment_outside_of_the_places_is_refused(reader: Agent, name: str) -> None:
    for tool in ("overview", "trials", "logs"):
        with pytest.raises(Refused, match="there is no experiment"):
            reader.tool(tool, experiment=name)


@pytest.mark.parametrize("trial", [17, -1, "x", "../first", "9" * 30, ""])
def test_a_trial_that_there_is_not_is_refused(reader: Agent, trial: object) -> None:
    with pytest.raises(Refused, match="there is no trial"):
        reader.tool("why", experiment="first", trial=trial)


def test_one_experiment_as_the_place_is_all_that_is_seen(storage: Path, tmp_path: Path) -> None:
    with agent(tmp_path, storage / "first") as other:
        assert [row["experiment"] for row in other.tool("experiments")["experiments"]] == ["first"]
        with pytest.raises(Refused, match="there is no experiment"):
            other.tool("overview", experiment=HOSTILE)
