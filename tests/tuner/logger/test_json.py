"""result.json and params.json: every result is read back exactly."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest

from tests.tuner.logger.reading import iterations, json_rows
from trainables import tagged
from trainables.result_history import read_history
from tuner.experiment.standing import StandingResult
from tuner.logger import CSVLoggerCallback, JsonLoggerCallback


def test_every_result_is_read_back_exactly(lab: Any) -> None:
    run = lab(JsonLoggerCallback())
    trial = run.trial(lr=0.1)
    odd = {"nan": math.nan, "inf": -math.inf, "text": 'a "b"\nc', "none": None, "list": [1, (2, 3)], "n": {"a": 1}}
    run.report(trial, **odd)
    run.report(trial, loss=0.5)

    first, second = json_rows(trial)

    assert math.isnan(first.pop("nan"))
    odd.pop("nan")
    assert {key: first[key] for key in odd} == odd
    assert second["loss"] == 0.5


def test_params_json_holds_the_config_and_opens_no_blob(lab: Any) -> None:
    run = lab(JsonLoggerCallback())
    trial = run.trial(lr=0.1, layers=[1, 2], window=(3, 4), np=np.float32(0.5))

    stored = json.loads((trial.directory / "params.json").read_text())

    assert stored["lr"] == 0.1
    assert stored["layers"] == [1, 2]
    assert stored["window"] == {"$": "tuple", "v": [3, 4]}


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
