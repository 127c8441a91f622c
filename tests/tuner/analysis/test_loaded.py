"""An experiment that is loaded from a directory, and its results as tables."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.tuner.analysis.harness import run_trials
from tuner.analysis import ExperimentAnalysis, ResultGrid
from tuner.error import ExperimentNotFoundError
from tuner.experiment import events as ev


def test_frames_hold_every_result_flat(lab: Any) -> None:
    trial = lab.trial(model={"lr": 0.1})
    lab.report(trial, eval={"auc": 0.5})
    lab.report(trial, eval={"auc": 0.7})
    lab.report(trial, eval={"auc": 0.6})
    analysis = lab.analysis()

    assert list(analysis.trial_dataframes[trial.path]["eval/auc"]) == [0.5, 0.7, 0.6]
    (last,) = analysis.dataframe().to_dict("records")
    (best,) = analysis.dataframe("eval/auc", "max").to_dict("records")
    assert (last["eval/auc"], last["config/model/lr"], last["logdir"]) == (0.6, 0.1, trial.path)
    assert (best["eval/auc"], best["training_iteration"]) == (0.7, 2)


def test_t03_frames_have_one_row_per_iteration_after_a_rollback(lab: Any) -> None:
    (trial,) = run_trials(lab, [float(n) for n in range(45)], ended=False)
    lab.rollback(trial, 40)
    lab.start(trial)
    for number in range(40, 50):
        lab.report(trial, loss=-float(number))
    frame = lab.analysis().trial_dataframes[trial.path]

    assert list(frame["training_iteration"]) == list(range(1, 51))
    assert frame["loss"].iloc[40] == -40.0


def test_a_path_without_an_experiment_says_so(tmp_path: Path) -> None:
    with pytest.raises(ExperimentNotFoundError, match="nothing"):
        ExperimentAnalysis(tmp_path / "nothing")
    with pytest.raises(ExperimentNotFoundError, match="nothing"):
        ResultGrid(tmp_path / "nothing")


def test_pandas_comes_only_with_a_frame() -> None:
    code = "import sys; import tuner.analysis, tuner.progress, tuner.logger; sys.exit('pandas' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_state_is_loaded_from_a_path(lab: Any) -> None:
    """With a journal on disk, as a later process finds it."""
    journal = pytest.importorskip("tuner.experiment.journal", reason="being written")
    from tuner.clock import VirtualClock
    from tuner.experiment.paths import ExperimentPaths

    run_trials(lab, [0.5, 0.2], [0.4])
    paths = ExperimentPaths(lab.state.root)
    paths.experiment_json.write_text('{"format": 1, "metric": "loss", "mode": "min", "num_to_keep": 1}')
    paths.generations.mkdir()
    paths.journal.mkdir()
    paths.generation(1).write_text('{"generation": 1, "id": "a"}')
    writer = journal.JournalWriter(paths, 1, next_seq=1, clock=VirtualClock(), sync="inline")
    writer.append(ev.encode(ev.GenerationStarted(1)))
    for trial in lab.state.trials:
        raw = trial.raw_config
        facts: list[Any] = [
            ev.TrialCreated(trial.trial_id, trial.index, raw, raw, "", trial.name, trial.dirname),
            ev.ResultReported(trial.trial_id, 1, 1, trial.raw_result),
            ev.TrialEnded(trial.trial_id, "TERMINATED", 0.0),
        ]
        for fact in facts:
            writer.append(ev.encode(fact))
    writer.flush()
    writer.close()

    moved = lab.state.root.rename(lab.state.root.with_name("moved"))
    for where in (moved, str(moved), moved.as_uri(), moved / "experiment.json"):
        analysis = ExperimentAnalysis(where)
        assert analysis.best_config == {"lr": 0.1}
        assert analysis.best_result["loss"] == 0.2
        assert list(analysis.best_dataframe["loss"]) == [0.5, 0.2]
        assert analysis.best_logdir.startswith(str(moved))
        assert ResultGrid(analysis).get_best_result().metrics["loss"] == 0.2
