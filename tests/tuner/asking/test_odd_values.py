"""Odd values through a session: what comes back is what `tune.run` gives, or the same early error that names them."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tuner as tune
from tests.tuner.asking.callers import kill_driver
from tests.tuner.mcp.agent import agent
from tests.tuner.odd_values import RESULTS, VALUES, reported, said
from tuner.asking import AskSession
from tuner.executors import InlineExecutor
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.reader import load_state

_numbers = itertools.count()
FEW = settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
NAMES = ["_.-9"] + [
    "ü ñ",
    "a b",
    "x'y\"z",
    "名",
    "-x",
    "a/b",
    "..",
    ".",
    "a\nb",
    "a\x1b[31mb",
    "a\x00b",
    "\ud800",
    "",
    "x" * 300,
    "$(a)",
]


@pytest.fixture(autouse=True)
def without_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("odd")


@pytest.fixture(scope="module")
def session(storage: Path) -> Iterator[AskSession]:
    with tune.open_session("s", storage_path=storage, num_samples=-1) as opened:
        yield opened


def run(storage: Path, function: Callable[[dict[str, Any]], object], config: dict[str, Any] | None = None) -> str:
    """The name of a run of one trial."""
    name = f"run{next(_numbers)}"
    tune.run(
        function, config=config or {}, name=name, storage_path=storage, executor=InlineExecutor(), verbose=0,
        raise_on_failed_trial=False,
    )  # fmt: skip
    return name


@FEW
@given(RESULTS)
def test_metrics_are_those_of_a_run(storage: Path, session: AskSession, results: list[Any]) -> None:
    trial, theirs = session.ask(), list[str]()
    assert trial is not None
    mine = said(trial.report, results)
    trial.finish()
    name = run(storage, lambda config: theirs.extend(said(tune.report, results)))
    assert mine == theirs
    assert reported(storage, "s", trial.trial_id) == reported(storage, name)


@pytest.mark.parametrize("killed", [False, True])
def test_odd_results_are_read_by_the_next_life_and_by_agents(tmp_path: Path, killed: bool) -> None:
    result = {
        "nan": math.nan,
        "huge": 2**80,
        "deep": {"a": [1, (2, {"b": -math.inf})]},
        "text": "\x1b[31m\u202e⟧",
        "": 1,
    }
    with tune.open_session("s", storage_path=tmp_path, metric="nan", mode="min", num_samples=2) as session:
        trial = session.ask()
        assert trial is not None
        trial.report(result)
        if killed:
            kill_driver(tmp_path)
        trial.report(result)
        trial.fail("⟧ \x1b[31m\u202e\x00 " + "x" * 100_000)
        last = session.ask()
        assert last is not None
        last.report({"nan": np.float32(1.5)})
        last.finish()
    one, two = load_state(ExperimentPaths(tmp_path / "s")).trials
    assert (one.status, two.status, two.last_result["nan"]) == ("ERROR", "TERMINATED", 1.5)
    back = {key: one.last_result[key] for key in result}
    assert repr(back) == repr(result)
    with agent(tmp_path, tmp_path) as reader:
        assert reader.tool("trials", experiment="s")["matching"] == 2
        told = reader.tool("trial", experiment="s", trial=one.trial_id)
        why = reader.tool("why", experiment="s", trial=one.trial_id)
    for answer in (told, why):
        text = json.dumps(answer, ensure_ascii=False)
        assert len(text) < 20_000 and not set("\x1b\u202e\x00") & set(text)


@FEW
@given(st.dictionaries(st.text(max_size=4), VALUES, max_size=3))
def test_configs_are_those_of_a_run(storage: Path, config: dict[str, Any]) -> None:
    found: list[Any] = []

    def shown(config: dict[str, Any]) -> str:
        return re.sub(r" at 0x\w+", "", repr(config))  # the address of an object()

    def train(config: dict[str, Any]) -> None:
        found.append(shown(config))
        tune.report({"a": 1})

    try:
        run(storage, train, config)
    except (ValueError, TypeError) as error:
        with pytest.raises(type(error)):
            tune.open_session(f"config{next(_numbers)}", config=config, storage_path=storage)
        return
    name = f"config{next(_numbers)}"
    with tune.open_session(name, config=config, storage_path=storage) as session:
        trial = session.ask()
        assert trial is not None
        assert [shown(trial.config)] == found


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_names_are_taken_or_refused_as_by_a_run(tmp_path: Path, name: str) -> None:
    for place in ("one", "two"):
        (tmp_path / place).mkdir()
    try:
        tune.run(
            lambda config: tune.report({"a": 1}), name=name, storage_path=tmp_path / "one", verbose=0,
            executor=InlineExecutor(),
        )  # fmt: skip
    except ValueError as error:
        with pytest.raises(type(error)) as raised:
            tune.open_session(name, storage_path=tmp_path / "two")
        assert str(raised.value).replace("two", "one") == str(error)
        return
    with tune.open_session(name, storage_path=tmp_path / "two") as session:
        trial = session.ask()
        assert trial is not None
        trial.report({"a": 1})
        trial.finish()
    assert Path(session.path).parent == tmp_path / "two"
    with agent(tmp_path, tmp_path / "two") as reader:
        (row,) = reader.tool("experiments")["experiments"]
        assert reader.tool("overview", experiment=row["experiment"])["by_state"] == {"done": 1}
