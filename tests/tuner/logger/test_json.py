"""result.json and params.json: plain JSON, whole and readable whatever a trial writes."""

from __future__ import annotations

import datetime
import json
import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest

from tests.tuner.logger.reading import iterations, json_rows
from trainables import Result, tagged
from trainables.result_history import read_history
from trainables.tagged import BlobRef
from tuner.experiment.standing import StandingResult
from tuner.logger import CSVLoggerCallback, JsonLoggerCallback


def test_every_result_is_read_back(lab: Any) -> None:
    run = lab(JsonLoggerCallback())
    trial = run.trial(lr=0.1)
    odd = {"nan": math.nan, "inf": -math.inf, "text": 'a "b"\nc', "none": None, "list": [1, (2, 3)], "n": {"a": 1}}
    run.report(trial, **odd)
    run.report(trial, loss=0.5)

    first, second = json_rows(trial)

    assert math.isnan(first.pop("nan"))
    odd.pop("nan")
    assert {key: first[key] for key in odd} == {**odd, "list": [1, [2, 3]]}
    assert second["loss"] == 0.5


ODD = {
    "curve": np.arange(3.0),
    "shape": (2, (3, 4)),
    "when": datetime.datetime(2026, 1, 2),
    "at": np.datetime64("2026-01-02"),
    "small": np.float32(0.5),
    "count": np.int64(7),
    "flag": np.bool_(True),
    "names": {"b", "a"},
    "mixed": {1, "a"},
    "path": Path("/x"),
    "bytes": b"ab",
    "z": 1 + 2j,
    "keys": {3: "x", "3": "y", (1, 2): None},
    "lone": "a\ud800",
    "$": "float",
    "v": "nan",
    "tag": {"$": "tuple", "w": 1},
    "big": 2**80,
    "bad": [math.nan, math.inf, -math.inf],
}
PLAIN = {
    "curve": [0.0, 1.0, 2.0],
    "shape": [2, [3, 4]],
    "when": "2026-01-02T00:00:00",
    "at": "2026-01-02",
    "small": 0.5,
    "count": 7,
    "flag": True,
    "names": ["a", "b"],
    "mixed": ["a", 1],
    "path": "/x",
    "bytes": "b'ab'",
    "z": "(1+2j)",
    "keys": {"3": "x", "3 (str)": "y", "(1, 2)": None},
    "lone": "a\\ud800",
    "$": "float",
    "v": "nan",
    "tag": {"$": "tuple", "w": 1},
    "big": 2**80,
}


def test_what_json_has_not_is_plain_json_in_a_result(lab: Any) -> None:
    run = lab(JsonLoggerCallback())
    trial = run.trial()
    run.report(trial, **ODD)
    run.report(trial, loss=0.5)

    first, second = (json.loads(line) for line in (trial.directory / "result.json").read_text().splitlines())

    assert {key: first[key] for key in PLAIN} == PLAIN
    assert math.isnan(first["bad"][0]) and first["bad"][1:] == [math.inf, -math.inf]
    assert second["loss"] == 0.5 and [row["training_iteration"] for row in json_rows(trial)] == [1, 2]
    assert trial.last_result["loss"] == 0.5


def test_what_json_has_not_is_plain_json_in_params_and_the_config_stays_exact(lab: Any) -> None:
    run = lab(JsonLoggerCallback())
    trial = run.trial(lr=0.1, layers=[1, 2], thing=BlobRef("0" * 64, "app.Thing"), **ODD)

    stored = json.loads((trial.directory / "params.json").read_text())

    assert {key: stored[key] for key in PLAIN} == PLAIN
    assert stored["lr"] == 0.1 and stored["layers"] == [1, 2]
    assert stored["thing"] == "<app.Thing 00000000>"
    exact = Result.from_path(trial.directory).config
    assert exact["shape"] == (2, (3, 4)) and exact["path"] == Path("/x") and exact["keys"] == ODD["keys"]
    assert list(exact["curve"]) == [0.0, 1.0, 2.0] and exact["names"] == {"a", "b"}


def test_params_that_json_holds_have_no_second_file(lab: Any) -> None:
    run = lab(JsonLoggerCallback())
    trial = run.trial(lr=0.1, deep={"layers": [1, 2]})
    (trial.directory / ".params.json").write_bytes(b'{"lr":{"$":"np","v":["<f8",0.3]}}')  # of an earlier config
    run.start(trial)

    assert not (trial.directory / ".params.json").exists()
    assert Result.from_path(trial.directory).config == {"lr": 0.1, "deep": {"layers": [1, 2]}}


def test_params_of_an_older_version_are_read(lab: Any) -> None:
    trial = lab(JsonLoggerCallback()).trial(lr=0.1)
    (trial.directory / "params.json").write_bytes(tagged.dumps({"window": (3, 4)}))

    assert Result.from_path(trial.directory).config == {"window": (3, 4)}


@pytest.mark.parametrize("torn", [b'{"loss": 3, "training_it', b'{"loss": 3}garbage\n', b"\n\n", b"\0\0\0"])
def test_t03_a_torn_last_line_is_cut(lab: Any, torn: bytes) -> None:
    first = lab(JsonLoggerCallback())
    trial = first.trial()
    for number in (1, 2):
        first.report(trial, loss=number)
    first.finish()
    with open(trial.directory / "result.json", "ab") as file:
        file.write(torn)

    second = lab(JsonLoggerCallback())
    second.state = first.state
    second.start(trial)
    second.report(trial, loss=3)

    lines = (trial.directory / "result.json").read_text().splitlines()
    assert [json.loads(line)["loss"] for line in lines] == [1, 2, 3]


def test_a_history_with_nan_and_infinities_is_read_by_pandas_and_json(lab: Any) -> None:
    run = lab(JsonLoggerCallback())
    trial = run.trial()
    run.report(trial, loss=math.nan, deep={"a": [math.inf, -math.inf]}, text='{"$":"float","v":"nan"}', u="ü\r\n")
    run.report(trial, loss=-math.inf)
    run.report(trial, loss=0.5)
    path = trial.directory / "result.json"

    first, second, third = (json.loads(line) for line in path.read_text().splitlines())
    assert math.isnan(first["loss"]) and second["loss"] == -math.inf and third["loss"] == 0.5
    assert first["deep"] == {"a": [math.inf, -math.inf]}
    assert first["text"] == '{"$":"float","v":"nan"}' and first["u"] == "ü\r\n"
    frame = pd.read_json(path, lines=True)
    assert math.isnan(frame["loss"][0]) and list(frame["loss"][1:]) == [-math.inf, 0.5]
    assert frame["training_iteration"].tolist() == [1, 2, 3]
    assert [row["training_iteration"] for row in json_rows(trial)] == [1, 2, 3]
    assert math.isnan(json_rows(trial)[0]["loss"])


def test_a_history_with_nan_is_cut_continued_and_completed_like_any_other(lab: Any) -> None:
    run = lab(JsonLoggerCallback(), CSVLoggerCallback())
    trial = run.trial()
    for _ in range(4):
        run.report(trial, loss=math.nan)
    run.rollback(trial, 2)
    run.start(trial)
    run.report(trial, loss=math.inf, then="stop")
    run.end(trial)
    assert iterations(trial) == ([1, 2, 3],) * 2
    rows = json_rows(trial)
    assert rows[-1]["done"] is True and rows[-1]["loss"] == math.inf

    lost = tagged.dumps({"loss": math.nan, "training_iteration": 2})
    lines = (trial.directory / "result.json").read_bytes().splitlines(keepends=True)
    (trial.directory / "result.json").write_bytes(lines[0] + lines[2])
    JsonLoggerCallback().complete(trial, StandingResult({2: msgspec.Raw(lost)}))
    assert iterations(trial)[0] == [1, 2, 3]
    assert b"$" not in (trial.directory / "result.json").read_bytes()


def test_a_history_of_tagged_numbers_is_still_read(tmp_path: Any) -> None:
    (tmp_path / "result.json").write_bytes(tagged.dumps({"loss": math.inf, "training_iteration": 1}) + b"\n")
    assert read_history(tmp_path / "result.json") == [{"loss": math.inf, "training_iteration": 1}]
