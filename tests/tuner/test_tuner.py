"""`Tuner`: a run as an object, and going on with what another one left."""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from pathlib import Path

import pytest

import tuner as tune
from tests.tuner.stepper import Stepper
from tuner.cli import main as cli
from tuner.error import ExperimentExistsError, ExperimentNotFoundError, OrderError, ResumeError, SettingError, TuneError


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


def trains(config):
    tune.report({"a": config.get("x", 0)})
    if config.get("fails"):
        raise KeyError("as told")


def settings(tmp_path, **more):
    return tune.RunConfig(name="e", storage_path=str(tmp_path), verbose=0, executor="inline", **more)


def ran(tmp_path, **space):
    tuner = tune.Tuner(trains, param_space=space, run_config=settings(tmp_path))
    return tuner, tuner.fit()


def test_results_are_kept_and_a_second_run_is_refused(tmp_path):
    tuner = tune.Tuner(trains, param_space={"x": tune.grid_search([1, 2])}, run_config=settings(tmp_path))
    with pytest.raises(TuneError, match=r"there are no results yet: call fit\(\) first"):
        tuner.get_results()
    grid = tuner.fit()
    assert tuner.get_results() is grid
    assert [result.metrics["a"] for result in grid] == [1, 2]
    with pytest.raises(TuneError, match="this Tuner has run already; Tuner.restore"):
        tuner.fit()


class Raises(tune.Callback):
    """Ends a run once, as a bug in a callback does."""

    def on_trial_complete(self, iteration, trials, trial, **info):
        raise KeyError("a bug")


def test_a_run_of_a_tuner_that_did_not_finish_names_the_restore_that_continues_it(tmp_path, capsys):
    words = f"Tuner.restore({str(tmp_path / 'e')!r}, trainable)"

    with pytest.raises(KeyError, match="a bug") as raised:
        tune.Tuner(trains, run_config=settings(tmp_path, callbacks=[Raises()])).fit()
    assert raised.value.__notes__ == [
        "raised by Raises.on_trial_complete, a callback of this run", f"to continue: {words}"
    ]  # fmt: skip
    with pytest.raises(ExperimentExistsError, match=f"{re.escape(words)} continues it, overwrite=True replaces it"):
        tune.Tuner(trains, run_config=settings(tmp_path, overwrite=False, callbacks=[])).fit()
    assert cli(["show", str(tmp_path / "e")]) == 0
    assert f"to continue: {words}\n" in (shown := capsys.readouterr().out) and "resume=" not in shown
    with pytest.raises(OrderError, match=re.escape(words)):
        tune.open_experiment(tmp_path / "e").stop("all")

    (result,) = tune.Tuner.restore(tmp_path / "e", trains, run_config=settings(tmp_path)).fit()
    assert result.error is None


def test_the_newest_start_decides_which_call_is_named(tmp_path, capsys):
    with pytest.raises(KeyError):
        tune.run(
            trains,
            name="e",
            storage_path=tmp_path,
            num_samples=2,
            verbose=0,
            executor="inline",
            callbacks=[Raises()],
        )  # fmt: skip
    cli(["show", str(tmp_path / "e")])
    assert "to continue: the same call with name='e' and resume=\"AUTO\"\n" in capsys.readouterr().out

    with pytest.raises(KeyError) as raised:
        tune.Tuner.restore(tmp_path / "e", trains, run_config=settings(tmp_path, callbacks=[Raises()])).fit()
    assert f"to continue: Tuner.restore({str(tmp_path / 'e')!r}, trainable)" in raised.value.__notes__


def test_an_error_before_the_first_trial_names_nothing_to_continue(tmp_path):
    class Early(tune.Callback):
        def setup(self, **info):
            raise KeyError("a bug")

    with pytest.raises(KeyError) as raised:
        tune.Tuner(trains, run_config=settings(tmp_path, callbacks=[Early()])).fit()
    assert raised.value.__notes__ == ["raised by test_an_error_before_the_first_trial_names_nothing_to_continue."
                                      "<locals>.Early.setup, a callback of this run"]  # fmt: skip
    assert not tune.Tuner.can_restore(tmp_path / "e")


def test_a_restore_that_has_nothing_to_run_names_the_one_that_continues_failed_trials(tmp_path, capsys):
    ran(tmp_path, fails=True)
    tune.Tuner.restore(tmp_path / "e", trains, run_config=replace(settings(tmp_path), verbose=1)).fit()
    words = f"Tuner.restore({str(tmp_path / 'e')!r}, trainable, resume_errored=True)"
    assert f"(1 failed: {words} continues it)" in capsys.readouterr().out


def test_results_of_a_restored_run_are_there_before_it_goes_on(tmp_path):
    ran(tmp_path, x=3)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "e").rglob("*")}
    restored = tune.Tuner.restore(tmp_path / "e", trains)
    assert [result.metrics["a"] for result in restored.get_results()] == [3]
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "e").rglob("*")} == before, "nothing was run"


def test_a_failed_trial_is_an_error_of_the_results_and_raises_nothing(tmp_path):
    _, grid = ran(tmp_path, x=tune.grid_search([1, 2]), fails=True)
    assert grid.num_errors == 2 and all("as told" in str(error) for error in grid.errors)


def test_a_restore_may_be_continued_again_and_again(tmp_path):
    ran(tmp_path, x=1)
    restored = tune.Tuner.restore(tmp_path / "e", trains, tune_config=tune.TuneConfig(num_samples=2))
    assert len(restored.fit()) == 2
    assert len(restored.fit()) == 2


def fails_once(config):
    """Fails in its first attempt; a restart has another one's flag."""
    flag = Path(config["flag"])
    checkpoint = tune.get_checkpoint()
    first = not flag.exists()
    flag.touch()
    start = checkpoint.to_dict()["n"] if checkpoint else 0
    tune.report({"n": start + 1}, checkpoint=tune.Checkpoint.from_dict({"n": start + 1}))
    if first:
        raise KeyError("the first time")


@pytest.mark.parametrize(
    ("how", "n"),
    [({}, 1), ({"resume_errored": True}, 2), ({"restart_errored": True}, 1), ({"resume_unfinished": False}, 1)],
    ids=str,
)
def test_what_becomes_of_a_failed_trial_is_said_at_the_restore(tmp_path, how, n):
    space = {"flag": str(tmp_path / "flag")}
    tune.Tuner(fails_once, param_space=space, run_config=settings(tmp_path)).fit()
    grid = tune.Tuner.restore(tmp_path / "e", fails_once, run_config=settings(tmp_path), **how).fit()
    again = "resume_errored" in how or "restart_errored" in how
    assert (grid.num_errors, grid[0].metrics["n"]) == (0 if again else 1, n)


def test_where_there_is_no_experiment_there_is_nothing_to_restore(tmp_path):
    for path in (tmp_path / "nothing", tmp_path, str(tmp_path), tmp_path.as_uri()):
        assert tune.Tuner.can_restore(path) is False
        with pytest.raises(ExperimentNotFoundError, match="there is no experiment at"):
            tune.Tuner.restore(path, trains)


@pytest.mark.parametrize("path", [None, "", 3, ["a"]], ids=str)
def test_what_is_no_path_is_named(path):
    for method in ("can_restore", "restore"):
        with pytest.raises(SettingError, match=rf"Tuner.{method}: path=.* is not accepted"):
            getattr(tune.Tuner, method)(path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"trainable": None}, "needs the trainable again: experiments do not store code"),
        ({"resume_errored": True, "restart_errored": True}, "exclude each other"),
        ({"resume_errored": "yes"}, "resume_errored='yes' is not accepted; accepted are True and False"),
        ({"resume_unfinished": 1}, "resume_unfinished=1 is not accepted"),
        ({"restart_error": True}, "did you mean 'restart_errored'"),
    ],
    ids=str,
)
def test_what_a_restore_does_not_accept_is_named(tmp_path, arguments, message):
    ran(tmp_path)
    with pytest.raises(ValueError, match=message):
        tune.Tuner.restore(tmp_path / "e", **{"trainable": trains, **arguments})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tune_config": {"num_samples": 3}}, "tune_config=.* is not accepted; accepted is a TuneConfig"),
        ({"run_config": "e"}, "run_config='e' is not accepted; accepted is a RunConfig"),
        ({"run_config": tune.TuneConfig()}, "run_config=.* accepted is a RunConfig"),
        ({"param_spce": {}}, "did you mean 'param_space'"),
    ],
    ids=str,
)
def test_what_a_tuner_does_not_accept_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        tune.Tuner(trains, **arguments)
    with pytest.raises(ValueError, match="did you mean 'num_samples'"):
        tune.TuneConfig(num_sample=3)


def test_the_copy_of_an_experiment_goes_on_where_it_is(tmp_path):
    """It is restored at the very place to which its copies went: nothing is copied on from there."""
    run_config = settings(tmp_path / "here", sync_config=tune.SyncConfig(upload_dir=str(tmp_path / "there")))
    tune.Tuner(trains, param_space={"x": 1}, run_config=run_config).fit()
    restored = tune.Tuner.restore(tmp_path / "there" / "e", trains, tune_config=tune.TuneConfig(num_samples=2))
    assert len(restored.fit()) == 2
    assert len(tune.ExperimentAnalysis(tmp_path / "here" / "e").trials) == 1
    assert len(tune.ExperimentAnalysis(tmp_path / "there" / "e").trials) == 2
