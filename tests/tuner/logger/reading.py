"""The rows that are in the files of a trial."""

from __future__ import annotations

import csv
import json
from typing import Any

from trainables.result_history import read_history


def csv_rows(trial: Any) -> list[dict[str, str]]:
    with open(trial.directory / "progress.csv", newline="") as file:
        return list(csv.DictReader(file))


def json_rows(trial: Any) -> list[dict[str, Any]]:
    return read_history(trial.directory / "result.json")


def iterations(trial: Any) -> tuple[list[int], list[int]]:
    raw = [json.loads(line) for line in (trial.directory / "result.json").read_text().splitlines()]
    return [row["training_iteration"] for row in raw], [int(row["training_iteration"]) for row in csv_rows(trial)]


def iterations_of(trial: Any) -> list[int]:
    return [row["training_iteration"] for row in json_rows(trial)]
