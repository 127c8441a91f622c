"""The data of a page in one file: that of the server, or so much of it as has room."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.tuner.ui.served import data, lengths
from tuner.cli import main
from tuner.error import ExperimentDamagedError, ExperimentNotFoundError, SettingError
from tuner.ui.embedded import Extent, reading, views
from tuner.ui.seen import as_json

REPEATED = {"id", "index", "state", "config", "last", "value", "checkpoint"}
"""What the data of parameters have from the table of trials."""


def plain(place: object, extent: Extent | None = None, **goals: Any) -> dict[str, Any]:
    with reading(str(place), **goals) as live:
        made: dict[str, Any] = json.loads(as_json(views(live, extent)))
    return made


@pytest.fixture(scope="module")
def whole(experiment: Path) -> dict[str, Any]:
    return plain(experiment)


def test_it_is_what_the_server_says(whole: dict[str, Any], pages: httpx.Client) -> None:
    views = {"overview", "trials", "curves", "parameters", "lineage", "machines", "orders"}
    named = {address.removeprefix("e/first/").removesuffix(".json") for address in whole}
    assert named >= views and sum(name.startswith("trial/") for name in named) == 6
    assert next(iter(whole)) == "e/first/overview.json"
    for address, told in whole.items():
        served = data(pages, address)
        missing = set(REPEATED) if address.endswith("parameters.json") else set()
        missing |= {"metrics"} if "/curves" in address else set()  # here those that have numbers
        differ = {key for key in served.keys() - missing if served[key] != told[key]}
        assert differ <= {"time", "orders", "order_words", "read_only", "checkpoints", "disk"}, address
    assert whole["e/first/overview.json"]["left_out"] == []


def test_each_metric_has_curves_under_the_address_that_the_page_asks_for(whole: dict[str, Any]) -> None:
    first, other = whole["e/first/curves.json"], whole["e/first/curves.json?metric=nested%2Fauc"]
    assert (first["metric"], other["metric"]) == ("loss", "nested/auc")
    assert first["metrics"] == other["metrics"] == ["loss", "nested/auc"]


def test_another_metric_is_best_where_that_is_asked(experiment: Path, whole: dict[str, Any]) -> None:
    other = plain(experiment, metrics=["nested/auc"], modes=["max"])
    told = other["e/first/overview.json"]
    assert (told["metric"], told["mode"], told["best"]["value"]) == ("nested/auc", "max", 0.4)
    worst = plain(experiment, modes=["max"])["e/first/overview.json"]
    assert worst["metric"] == "loss" and worst["best"]["value"] > whole["e/first/overview.json"]["best"]["value"]


@pytest.mark.parametrize(
    ("goals", "said"),
    [
        ({"metrics": ["los"], "modes": ["min"]}, "no trial has reported a metric 'los'; reported, nearest first: loss"),
        ({"metrics": ["loss"], "modes": ["best"]}, "mode"),
    ],
)
def test_a_goal_that_cannot_be_is_refused(experiment: Path, goals: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        plain(experiment, **goals)


def test_what_has_no_room_is_left_out_and_said(experiment: Path, whole: dict[str, Any]) -> None:
    few = plain(experiment, Extent(rows=3, trials=1, results=2, metrics=1))
    table = few["e/first/trials.json"]
    best, failed = whole["e/first/trials.json"]["best"], whole["e/first/trials.json"]["id"][2]
    assert len(table["id"]) == 3 and {best, failed} <= set(table["id"]) and lengths(table) == {3}
    assert table["index"] == sorted(table["index"])
    assert few["e/first/curves.json"]["trials"]["id"] == [best]
    assert {address for address in few if "/trial/" in address} == {
        f"e/first/trial/{trial}.json" for trial in (best, failed)
    }
    curve = few["e/first/curves.json"]["points"]
    assert curve["iteration"][0] == 1 and curve["iteration"][-1] == 4 and min(curve["value"]) == 0.25
    assert few["e/first/overview.json"]["left_out"] == [
        "The table and the plots have 3 of 6 trials: those that go on, the newest failures, and the best.",
        "2 of 6 trials have their curve and their page: those that run, the best, failures.",
        "Of a trial's results, about 2 stand here, the best and the last of each metric among them; of what became of "
        "checkpoints, and of decisions, the newest 200.",
        "1 of 2 metrics have curves.",
    ]
    assert few["e/first/overview.json"]["counts"] == whole["e/first/overview.json"]["counts"]


def test_smaller_and_smaller_comes_to_an_end() -> None:
    extents = [Extent()]
    while (following := extents[-1].smaller()) is not None:
        extents.append(following)
    assert len(extents) < 20 and extents[-1].rows <= 50 and extents[-1].trials >= 1


def test_an_experiment_elsewhere_is_brought_here(experiment: Path, whole: dict[str, Any]) -> None:
    assert main(["cp", str(experiment), "memory://embedded/first"]) == 0
    found = plain("memory://embedded/first")
    assert found.keys() == whole.keys() and found["e/first/trials.json"] == whole["e/first/trials.json"]


def test_what_is_no_experiment_says_so(experiment: Path, tmp_path: Path) -> None:
    for place in (experiment.parent.parent, tmp_path):
        with pytest.raises(ExperimentNotFoundError, match="is no experiment"):
            plain(place)
    with pytest.raises(ExperimentNotFoundError):
        plain(tmp_path / "none")
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "experiment.json").write_text("{")
    with pytest.raises((ExperimentDamagedError, ExperimentNotFoundError)):
        plain(tmp_path / "torn")
