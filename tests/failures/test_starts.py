"""A start that fails before its first trial leaves everything as it was (T09)."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from checkpoint_faults import in_child, wait_for_its_processes

import tuner as tune
from tuner.driver.driver import Run
from tuner.executors import LocalExecutor
from tuner.experiment import replacing
from tuner.experiment.paths import ExperimentPaths


def train(config):
    with tune.checkpoint_dir() as directory:
        Path(directory, "model").write_text("weights")
    tune.report(loss=1.0)


def run(storage, **more):
    return tune.run(train, **{"name": "e", "storage_path": storage, "verbose": 0, **more})


def contents(root):
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and path.parent.name != "generations"
    }


class Odd(tune.Callback):
    """Fails, or does something else, before the first trial."""

    def __init__(self, hook, what):
        def call(*_, **__):
            what()

        setattr(self, hook, call)


def boom():
    raise RuntimeError("boom")


class Unfit(LocalExecutor):
    def start(self, trainable, **more):
        boom()


def unpicklable():
    return threading.Lock()


STARTS = {
    "a callback's setup": lambda: {"callbacks": [Odd("setup", boom)]},
    "a callback's first step": lambda: {"callbacks": [Odd("on_step_begin", boom)]},
    "the executor": lambda: {"executor": Unfit()},
    "a value that cannot be pickled": lambda: {"config": {"x": tune.sample_from(lambda spec: unpicklable())}},
    "a searcher": lambda: {"config": {"x": tune.sample_from(lambda spec: boom())}},
    "a name creator": lambda: {"trial_name_creator": lambda trial: boom()},
}


@pytest.mark.parametrize("why", STARTS)
def test_t09_overwrite_loses_nothing_when_the_new_one_cannot_start(tmp_path, why):
    first = run(tmp_path, num_samples=2)
    before = contents(tmp_path)
    with pytest.raises(Exception) as raised:
        run(tmp_path, overwrite=True, **STARTS[why]())
    assert "before is back" in "".join(getattr(raised.value, "__notes__", ())), raised.value
    assert contents(tmp_path) == before
    again = run(tmp_path, resume="AUTO", num_samples=2)
    assert [trial.trial_id for trial in again.trials] == [trial.trial_id for trial in first.trials]
    assert len(run(tmp_path, overwrite=True).trials) == 1
    assert not [name for name in os.listdir(tmp_path / "e") if name.startswith(".")]


@pytest.mark.parametrize("why", STARTS)
def test_t09_a_start_that_fails_leaves_no_experiment(tmp_path, why):
    with pytest.raises(Exception, match="boom|pickle"):
        run(tmp_path, **STARTS[why]())
    assert os.listdir(tmp_path) == []
    assert run(tmp_path).trials[0].status == "TERMINATED"


def test_t09_a_first_trial_that_fails_has_started(tmp_path):
    run(tmp_path, num_samples=2)
    analysis = run(tmp_path, overwrite=True, config={"x": 1}, raise_on_failed_trial=False, trial_timeout_s=1e-6)
    assert len(analysis.trials) == 1
    assert len(tune.ExperimentAnalysis(tmp_path / "e").trials) == 1


def test_t09_ctrl_c_before_the_first_trial_brings_the_old_one_back(tmp_path, capsys):
    run(tmp_path)
    before = contents(tmp_path)
    keys = [signal.SIGINT]
    press = Odd("on_step_begin", lambda: keys and signal.raise_signal(keys.pop()))
    with pytest.raises(tune.Interrupted) as stopped:
        run(tmp_path, overwrite=True, callbacks=[press], verbose=1)
    assert contents(tmp_path) == before
    assert {trial.status for trial in stopped.value.analysis.trials} <= {"PENDING"}
    assert "to continue" not in str(stopped.value)
    assert "before is back" in capsys.readouterr().out


def test_t09_a_run_without_any_trial_is_one(tmp_path):
    class Nothing(tune.search.Searcher):
        def suggest(self, trial_id):
            return self.FINISHED

    run(tmp_path)
    assert len(run(tmp_path, overwrite=True, search_alg=Nothing()).trials) == 0
    assert len(tune.ExperimentAnalysis(tmp_path / "e").trials) == 0


@pytest.mark.parametrize("settings", [{"resume": "AUTO"}, {"resume": True}, {"overwrite": True}])
@pytest.mark.parametrize("hook", ["setup", "on_step_begin"])
def test_t09_killed_before_the_first_trial_the_old_one_is_back_at_the_next_start(tmp_path, hook, settings):
    first = run(tmp_path)
    die = Odd(hook, lambda: os.kill(os.getpid(), 9))
    in_child(lambda: run(tmp_path, overwrite=True, callbacks=[die]))
    wait_for_its_processes(tmp_path / "e")
    assert replacing.interrupted(ExperimentPaths(tmp_path / "e"))
    (seen,) = tune.ExperimentAnalysis(tmp_path / "e").trials
    assert seen.trial_id == first.trials[0].trial_id
    assert tune.Tuner.can_restore(tmp_path / "e")
    (trial,) = run(tmp_path, **settings).trials
    assert (trial.trial_id == first.trials[0].trial_id) == ("resume" in settings)
    assert not [name for name in os.listdir(tmp_path / "e") if name.startswith(".")]


def test_t09_killed_after_the_first_trial_has_started_the_new_one_goes_on(tmp_path):
    first = run(tmp_path)
    die = Odd("on_trial_start", lambda: os.kill(os.getpid(), 9))
    in_child(lambda: run(tmp_path, overwrite=True, callbacks=[die], num_samples=2))
    wait_for_its_processes(tmp_path / "e")
    trials = run(tmp_path, resume=True, num_samples=2).trials
    assert len(trials) == 2 and first.trials[0].trial_id not in {trial.trial_id for trial in trials}
    assert not [name for name in os.listdir(tmp_path / "e") if name.startswith(".")]


def test_f31_while_it_is_replaced_nobody_else_starts(tmp_path, monkeypatch):
    run(tmp_path)
    refused = []

    def look(*_, **__):
        status = in_child(lambda: run(tmp_path, resume="AUTO"))
        refused.append(status)

    run(tmp_path, overwrite=True, callbacks=[Odd("setup", look)])
    assert refused[0] != 0


def test_f29_the_temporary_directory_goes_with_the_run(tmp_path, monkeypatch):
    seen = []
    real = Run.run

    def spied(self, hooks):
        seen.append(self.opened.temporary)
        assert self.opened.temporary.is_dir()
        return real(self, hooks)

    monkeypatch.setattr(Run, "run", spied)
    run(tmp_path)
    with pytest.raises(RuntimeError):
        run(tmp_path, name="f", callbacks=[Odd("setup", boom)])
    assert len(seen) == 2 and not any(map(os.path.exists, seen))
    assert os.listdir(tmp_path) == ["e"]


def test_f29_the_temporary_directory_can_be_elsewhere(tmp_path, monkeypatch):
    def where(config):
        import tempfile

        tune.report(place=tempfile.gettempdir())

    monkeypatch.setenv("TUNE_TMPDIR", str(tmp_path / "scratch"))
    analysis = tune.run(where, name="e", storage_path=tmp_path / "results", verbose=0)
    place = Path(analysis.trials[0].last_result["place"])
    assert place.parent == tmp_path / "scratch" and not place.exists()
    assert os.listdir(tmp_path / "results") == ["e"]
