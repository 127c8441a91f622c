"""`Tuner`: a run as an object, and going on with what another one left."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import tuner as tune
from tests.tuner.stepper import Stepper
from tuner.error import (
    ResumeError,
)


def test_restore_without_the_space_goes_on_with_the_stored_one(tmp_path):
    def half(config):
        if config["x"] == 2 and not Path(config["flag"]).exists():
            Path(config["flag"]).write_text("x")
            raise KeyError("the third is not even created")
        return {"a": config["x"]}

    space = {"x": tune.grid_search([1, 2, 3]), "flag": str(tmp_path / "flag")}
    grid = tune.Tuner(
        half,
        param_space=space,
        tune_config=tune.TuneConfig(max_concurrent_trials=1),
        run_config=tune.RunConfig(
            name="e", storage_path=str(tmp_path), verbose=0, failure_config=tune.FailureConfig(fail_fast=True)
        ),
    ).fit()
    assert len(grid) == 2 and grid.num_errors == 1
    assert tune.Tuner.can_restore(tmp_path / "e")
    (tmp_path / "e").rename(tmp_path / "moved")
    again = tune.Tuner.restore(tmp_path / "moved", half, resume_errored=True).fit()
    assert [result.metrics["a"] for result in again] == [1, 2, 3]


class Noting(tune.Callback):
    """Writes what it hears into a file."""

    def __init__(self, path):
        self.path = path

    def on_trial_complete(self, iteration, trials, trial, **info):
        with open(self.path, "a") as file:
            file.write(f"{trial.trial_id}\n")


def test_restore_without_a_run_config_takes_callbacks_and_verbose_over(tmp_path, capsys):
    run_config = tune.RunConfig(
        name="e", storage_path=str(tmp_path), verbose=0, callbacks=[Noting(tmp_path / "heard")], stop={"count": 1}
    )
    tune.Tuner(Stepper, run_config=run_config).fit()
    tune.Tuner.restore(
        tmp_path / "e", Stepper, tune_config=tune.TuneConfig(num_samples=3, trial_name_creator=None)
    ).fit()
    assert len((tmp_path / "heard").read_text().splitlines()) == 3
    assert capsys.readouterr().out == ""


def test_restore_says_which_callbacks_have_to_be_given_again(tmp_path):
    class Locked(Noting):
        def __init__(self, path):
            super().__init__(path)
            self.lock = threading.Lock()

    def config():
        return tune.RunConfig(
            name="e", storage_path=str(tmp_path), verbose=0, callbacks=[Locked(tmp_path / "heard")], stop={"count": 1}
        )

    tune.Tuner(Stepper, run_config=config()).fit()
    with pytest.raises(ResumeError, match="callbacks of .* could not be stored"):
        tune.Tuner.restore(tmp_path / "e", Stepper).fit()
    tune.Tuner.restore(tmp_path / "e", Stepper, tune_config=tune.TuneConfig(num_samples=2), run_config=config()).fit()
    assert len((tmp_path / "heard").read_text().splitlines()) == 2
