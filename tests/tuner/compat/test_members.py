"""Every public member of Ray's classes that users hold: it works here, or says what to use instead."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.listings import SCRIPTS
from tests.tuner.lab import Lab
from trainables import Checkpoint, Result, Trainable
from tuner.analysis import ExperimentAnalysis, ResultGrid
from tuner.compat.missing import NotHere
from tuner.compat.stand_in import counterpart
from tuner.logger import LegacyLoggerCallback, LoggerCallback, NoopLogger

MEMBERS = json.loads((Path(__file__).parents[3] / "docs" / "ray_members.json").read_text())
CLASSES = sorted({path.partition(".")[0] for path in (name.rpartition(":")[2] for name in MEMBERS)})


@pytest.fixture
def held(tmp_path: Path) -> dict[type, Any]:
    """An object of each of our classes, as users get it."""
    lab = Lab(tmp_path / "experiment")
    lab.report(lab.trial(lr=1), loss=1)
    analysis = lab.analysis()
    grid = ResultGrid(analysis)
    some = (
        Checkpoint(tmp_path),
        Trainable(),
        NoopLogger({}, str(tmp_path)),
        LegacyLoggerCallback([]),
        LoggerCallback(),
    )
    made: dict[type, Any] = {type(each): each for each in (*some, analysis, grid, grid[0])}
    made[type(NoopLogger).__mro__[0]] = made[NoopLogger]
    return made


def said_of(thing: Any, member: str) -> str | None:
    """None where it is there; else what the error says."""
    try:
        inside = getattr(thing, member)
    except AttributeError as error:
        return str(error)
    except Exception as error:  # the member is there, and has something to say of this very object
        return None if str(error) else repr(error)
    assert not isinstance(inside, NotHere)
    return None


@pytest.mark.parametrize("name", CLASSES)
def test_every_member_works_or_says_what_to_use(name: str, held: dict[type, Any]) -> None:
    silent = []
    for path in (path for path in MEMBERS if f":{name}." in path):
        module, _, rest = path.partition(":")
        kind = getattr(importlib.import_module(counterpart(module) or ""), name)
        if isinstance(kind, NotHere):
            continue
        thing = next((thing for own, thing in held.items() if issubclass(own, kind)), kind)
        said = said_of(thing, rest.partition(".")[2])
        if said is not None and "; instead: " not in said:
            silent.append(f"{path}: {said}")
    assert silent == []


def test_what_users_hold_is_what_is_walked() -> None:
    assert {"Checkpoint", "ExperimentAnalysis", "Logger", "Result", "ResultGrid", "Trainable"} <= set(CLASSES)
    assert len(MEMBERS) > 200
    kinds: list[type] = [Checkpoint, Result, Trainable, ExperimentAnalysis, ResultGrid]
    assert [kind.__name__ for kind in kinds if kind.__name__ not in CLASSES] == []


def test_programs_of_three_versions_use_what_they_hold(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tuner.compat", str(SCRIPTS / "held_by_users.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr
