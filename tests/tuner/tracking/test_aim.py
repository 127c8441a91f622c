"""Aim: a local repository, read back with its own package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.peer_library import PeerLibrary
from tests.tuner.tracking.running import killed_and_resumed
from tuner.error import SettingError
from tuner.tracking.aim import AimLoggerCallback

aim: Any = PeerLibrary("aim")
pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore")]


def runs(repo: Path) -> dict[str, Any]:
    """Trial's id -> its run; the index is made anew first, as Aim's own web page has it done in the background."""
    command = [str(Path(sys.executable).with_name("aim")), "storage", "--repo", str(repo), "reindex"]
    subprocess.run(command, input=b"y\n", capture_output=True, timeout=60, check=True)
    place = aim.Repo(str(repo))
    found = [aim.Run(run_hash=each, repo=place, read_only=True) for each in place.list_all_runs()]
    return {run["trial_id"]: run for run in found}


def history(run: Any, metric: str) -> list[tuple[int, float]]:
    (found,) = [each for each in run.metrics() if each.name == metric]
    table = found.dataframe()
    return sorted(zip(table["step"], table["value"], strict=True))


@pytest.mark.parametrize("hold_back", [True, False])
def test_a_killed_and_resumed_trial_is_one_run_with_each_step_once(tmp_path: Path, hold_back: bool) -> None:
    """Also at once: the value that stands takes the place of the one that was void."""
    given = {} if hold_back else {"given": 5}
    ids = killed_and_resumed("aim", tmp_path, callback={"hold_back": hold_back, "metrics": ["loss"]}, **given)
    found = runs(tmp_path / "tracked")
    assert sorted(found) == ids
    for number, trial_id in enumerate(ids):
        run = found[trial_id]
        assert history(run, "ray/tune/loss") == [(step, (1, 10)[number] * step) for step in range(1, 8)]
        assert [each.name for each in run.metrics()] == ["ray/tune/loss"]
        assert run["hparams"] == {"lr": (1, 10)[number]}
        assert (run.experiment, run.name, run["ended"]) == ("tracked", f"train_function_{trial_id}", "finished")


def test_an_empty_choice_of_metrics_is_refused() -> None:
    with pytest.raises(SettingError, match="metrics"):
        AimLoggerCallback(metrics=[])
