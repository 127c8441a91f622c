"""The importance of parameters is told by a process of its own, which leaves nothing behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.tuner.ui.served import data
from tuner.analysis.plot_source import PlotSource
from tuner.analysis.searched import importances
from tuner.analysis.study import study_of
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.reader import load_state
from tuner.ui.weighing import encoded, weighed_beside

ALONE = """
import json, sys
from tuner.ui.weighing import weighed_beside
told = weighed_beside(sys.stdin.buffer.read())
print(json.dumps([told, [name for name in ("optuna", "sklearn", "scipy") if name in sys.modules]]))
"""


@pytest.mark.filterwarnings("ignore:PedAnova:UserWarning")
def test_it_is_what_optuna_says_and_nothing_of_optuna_stays(experiment: Path, pages: httpx.Client) -> None:
    trials = [trial for trial in load_state(ExperimentPaths(experiment)).trials if trial.status == "TERMINATED"]
    space = json.loads((experiment / "experiment.json").read_text())["space"]
    study = study_of(trials, ["loss"], ["min"], space=space, name="whole")
    whole = importances(PlotSource(trials, ["loss"], ["min"], lambda: study), 0, ["x", "deep/rate"])
    given = encoded(trials, "loss", "min", space, ["x", "deep/rate"])
    done = subprocess.run([sys.executable, "-c", ALONE], input=given, capture_output=True, check=True)
    assert json.loads(done.stdout) == [whole, []]
    told = data(pages, "e/first/parameters.json")["importance"]
    assert told == {"parameter": list(whole), "importance": list(whole.values())}


def test_what_cannot_be_weighed_has_no_importance(experiment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trials = load_state(ExperimentPaths(experiment)).trials
    assert weighed_beside(encoded(trials, "loss", "min", {}, ["no such key"])) is None
    assert weighed_beside(b"[") is None
    monkeypatch.setattr(sys, "executable", "/no/such/interpreter")
    assert weighed_beside(encoded(trials, "loss", "min", {}, ["x"])) is None
