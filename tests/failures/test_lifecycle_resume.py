"""Runs that are continued: what runs again and what does not, and what the plug-ins remember.

F13, F14, F25, D12; design.md section 6 on errored trials, a larger num_samples, a changed search space, the resume
words, `restore=`.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import shutil
import sys
from pathlib import Path

import msgspec
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from lifecycle_scripts import Stage, contents, iterations, kept, rows

import tuner as tune
from trainables.wire import CheckpointRef
from tuner.error import ExperimentNotFoundError, ResumeError, SettingError
from tuner.experiment import events as ev
from tuner.experiment.reason import Reason, ReasonKind
from tuner.experiment.reused import Reused
from tuner.experiment.trial_records import Clone
from tuner.resume_config import ResumeType
from tuner.schedulers import ASHAScheduler, FIFOScheduler
from tuner.search import Searcher


class Stop(Exception):
    """The driver's own mistake, at a moment that the test chooses."""


class StopAfter(tune.Callback):
    """Ends the driver with an error at the n-th result."""

    def __init__(self, number: int) -> None:
        self.left = number

    def __reduce__(self):
        """A restore takes callbacks over: it is not to stop the next driver too."""
        return tune.Callback, ()

    def on_trial_result(self, iteration, trials, trial, result, **info):
        self.left -= 1
        if not self.left:
            raise Stop

    def on_rollback(self, trial, iteration):
        """Defined, so that it is told of repeated iterations too."""


def run(trainable, path, **settings):
    return tune.run(trainable, storage_path=path, **{"name": "e", "executor": "inline", "verbose": 0, **settings})


# --- nothing is lost, nothing is run twice ------------------------------------------------------------------------

MANY = """
import json, os, sys

class Ends(tune.Callback):
    def setup(self, **info):
        tell("up")  # this driver owns the experiment: what the one before left running is gone
    def on_trial_complete(self, iteration, trials, trial, **info):
        tell("done", trial.trial_id)

def train(config):
    tell("began", config)
    gate()
    return {"score": config["x"] + config.get("y", 0)}

how = sys.argv[1]
if how == "grid":
    settings = {"config": {"x": tune.grid_search([1, 2, 3, 4]), "y": tune.grid_search([10, 20, 30])}}
else:
    settings = {"config": {"x": tune.uniform(0, 1)}, "num_samples": int(sys.argv[2])}
if how == "tpe":
    from tuner.search.optuna import OptunaSearch
    settings |= {"search_alg": OptunaSearch(), "metric": "score", "mode": "max", "max_concurrent_trials": 1}
analysis = tune.run(
    train, name=os.environ.get("NAME", "e"), storage_path=os.environ["RESULTS"], resume="AUTO", callbacks=[Ends()],
    resources_per_trial={"cpu": 0.5}, seed=3, **{"max_concurrent_trials": 2, **settings},
)
print("CONFIGS", json.dumps([trial.config for trial in analysis.trials]))
"""


def configs(output):
    return json.loads(output[output.index("CONFIGS") + 8 :].splitlines()[0])


@pytest.mark.parametrize(
    ("how", "total", "lives", "at_once"),
    [
        ("grid", 12, [2, 2, 2, 2, 2], 2),
        ("random", 30, [5, 5, 5, 5, 5], 2),
        ("tpe", 15, [5, 4, 3], 1),
        pytest.param("tpe", 30, [5, 5, 5, 5, 5], 1, marks=pytest.mark.soak),
    ],
)
def test_f14_killed_again_and_again_exactly_all_trials_run_once(tmp_path, how, total, lives, at_once):
    with Stage(tmp_path) as stage:
        stage.gate()
        stage.write(MANY)
        for done in lives:
            script = stage.start("script.py", how, total)
            script.hear("up")
            stage.unread()
            stage.let(done)
            script.hear("done", done)
            script.kill()
        stage.let(total)
        last = stage.run("script.py", how, total)
        made = configs(last)
        assert len(made) == total and len({json.dumps(config) for config in made}) == total
        trials = tune.ExperimentAnalysis(stage.results / "e").trials
        assert [trial.status for trial in trials] == ["TERMINATED"] * total
        assert all(iterations(trial) == [1] for trial in trials)
        # only what ran at a kill began again
        assert sum(trial.attempt - 1 for trial in trials) <= at_once * len(lives)
        if how == "grid":
            assert {(c["x"], c["y"]) for c in made} == set(itertools.product([1, 2, 3, 4], [10, 20, 30]))
        else:
            stage.let(total)
            assert configs(stage.run("script.py", how, total, NAME="uninterrupted")) == made


class Remembers(Searcher):
    """Suggests the number of calls so far; notes whatever it hears."""

    def __init__(self) -> None:
        super().__init__("score", "max")
        self.heard: list[tuple] = []

    def suggest(self, trial_id):
        self.heard.append(("suggest", trial_id))
        return {"x": len(self.heard)}

    def on_trial_result(self, trial_id, result):
        self.heard.append(("result", trial_id, result["training_iteration"], result["score"]))

    def on_trial_complete(self, trial_id, result=None, error=False):
        self.heard.append(("complete", trial_id, result["score"] if result else None, error))


class RemembersToo(FIFOScheduler):
    def __init__(self) -> None:
        super().__init__()
        self.heard: list[tuple] = []

    def on_trial_add(self, trial):
        self.heard.append(("add", trial.trial_id))

    def on_trial_result(self, trial, result):
        self.heard.append(("result", trial.trial_id, result["training_iteration"]))
        return super().on_trial_result(trial, result)

    def on_trial_complete(self, trial, result):
        self.heard.append(("complete", trial.trial_id, result["score"]))


class Counts(tune.Stopper):
    def __init__(self) -> None:
        self.heard: list[tuple] = []

    def __call__(self, trial_id, result):
        self.heard.append((trial_id, result["training_iteration"]))
        return False

    def stop_all(self):
        return False


class CountsCalls(tune.Callback):
    def __init__(self) -> None:
        self.count = 0

    def on_trial_result(self, iteration, trials, trial, result, **info):
        self.count += 1

    def get_state(self):
        return {"count": self.count}

    def set_state(self, state):
        self.count = state["count"]


def three(config):
    """Three results, a checkpoint with each."""
    checkpoint = tune.get_checkpoint()
    start = checkpoint.to_dict()["n"] if checkpoint else 0
    for n in range(start + 1, 4):
        tune.report({"score": config["x"] * n}, checkpoint=tune.Checkpoint.from_dict({"n": n}))


def plain(heard):
    """Without the experiment's random part of trial ids."""
    return [tuple(part[-5:] if isinstance(part, str) and "_" in part else part for part in call) for call in heard]


@pytest.mark.parametrize("at", [1, 2, 3, 5, 8])
def test_d12_searcher_scheduler_and_stopper_are_after_a_resume_what_they_are_without(tmp_path, at):
    parts = [Remembers(), RemembersToo(), Counts()]
    settings = {"num_samples": 4, "metric": "score", "mode": "max"}
    given = dict(zip(("search_alg", "scheduler", "stop"), parts, strict=True))
    run(three, tmp_path, name="whole", **given, **settings)
    first = dict(zip(("search_alg", "scheduler", "stop"), (Remembers(), RemembersToo(), Counts()), strict=True))
    with pytest.raises(Stop):
        run(three, tmp_path, callbacks=[StopAfter(at)], **first, **settings)
    again = [Remembers(), RemembersToo(), Counts()]
    given = dict(zip(("search_alg", "scheduler", "stop"), again, strict=True))
    analysis = run(three, tmp_path, resume=True, **given, **settings)
    for mine, uninterrupted in zip(again, parts, strict=True):
        assert plain(mine.heard) == plain(uninterrupted.heard)
    assert all(iterations(trial) == [1, 2, 3] for trial in analysis.trials)


def test_d12_an_asha_that_was_killed_has_the_rungs_of_one_that_was_not(tmp_path):
    def train(config):
        for n in range(1, 10):
            tune.report({"score": config["x"] * n})

    settings = {"config": {"x": tune.uniform(0, 1)}, "num_samples": 12, "metric": "score", "mode": "max", "seed": 5}
    asha = functools.partial(ASHAScheduler, max_t=9, grace_period=1, reduction_factor=3)
    whole = run(train, tmp_path, name="whole", scheduler=asha(), **settings)
    with pytest.raises(Stop):
        run(train, tmp_path, scheduler=asha(), callbacks=[StopAfter(11)], **settings)
    again = run(train, tmp_path, scheduler=asha(), resume="AUTO", **settings)
    assert [trial.iteration for trial in again.trials] == [trial.iteration for trial in whole.trials]
    assert len({trial.iteration for trial in whole.trials}) > 1  # it did stop some


def test_f25_a_finished_run_is_extended_by_exactly_the_missing_trials_with_a_warm_searcher(tmp_path):
    def train(config):
        tune.report({"score": config["x"]})

    first = run(train, tmp_path, search_alg=Remembers(), num_samples=10)
    warm = Remembers()
    more = run(train, tmp_path, search_alg=warm, num_samples=25, resume=True)
    assert [trial.trial_id for trial in more.trials[:10]] == [trial.trial_id for trial in first.trials]
    assert len(more.trials) == 25 and len({trial.config["x"] for trial in more.trials}) == 25
    calls = [call[0] for call in warm.heard]
    assert calls.count("suggest") == 25 and calls.count("complete") == 25
    assert calls[:30].count("complete") == 10  # it knew of the first ten before it was asked for the eleventh
    for fewer in (25, 5):  # nothing is missing
        assert len(run(train, tmp_path, search_alg=Remembers(), num_samples=fewer, resume=True).trials) == 25


def test_f25_extending_twice_and_after_a_kill_counts_right(tmp_path):
    def train(config):
        tune.report({"score": config["x"]})

    settings = {"config": {"x": tune.uniform(0, 1)}, "seed": 2}
    whole = run(train, tmp_path, name="whole", num_samples=9, **settings)
    run(train, tmp_path, num_samples=3, **settings)
    with pytest.raises(Stop):
        run(train, tmp_path, num_samples=6, resume=True, callbacks=[StopAfter(2)], **settings)
    run(train, tmp_path, num_samples=6, resume=True, **settings)
    final = run(train, tmp_path, num_samples=9, resume=True, **settings)
    assert [trial.config for trial in final.trials] == [trial.config for trial in whole.trials]


def base_space():
    return {"x": tune.uniform(0, 1), "layers": tune.grid_search([1, 2]), "f": tune.sample_from(lambda spec: 1), "c": 7}


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ({"x": tune.uniform(0, 2)}, r"x: was uniform\(0.0, 1.0\), now uniform\(0.0, 2.0\)"),
        ({"x": tune.loguniform(0.1, 1)}, "x: was uniform.*loguniform"),
        ({"x": 0.5}, "x"),
        ({"layers": tune.grid_search([1, 2, 3])}, "layers"),
        ({"new": tune.randint(0, 3)}, "new"),
        ({"x": None, "layers": None}, "layers.*\n.*x|x.*\n.*layers"),
    ],
)
def test_f25_a_changed_search_space_is_refused_with_the_difference(tmp_path, change, shown):
    def train(config):
        tune.report({"score": 1})

    run(train, tmp_path, config=base_space())
    before = contents(tmp_path)
    changed = {key: value for key, value in {**base_space(), **change}.items() if value is not None}
    with pytest.raises(ResumeError, match=shown):
        run(train, tmp_path, config=changed, resume="AUTO")
    assert contents(tmp_path) == before


def test_f25_changed_resources_stop_and_retention_are_accepted(tmp_path):
    class Steps(tune.Trainable):
        def setup(self, config):
            self.n = 0

        def step(self):
            self.n += 1
            return {"n": self.n}

        def save_checkpoint(self, directory):
            return {"n": self.n}

        def load_checkpoint(self, checkpoint):
            self.n = checkpoint["n"]

    with pytest.raises(Stop):
        run(Steps, tmp_path, stop={"training_iteration": 4}, checkpoint_freq=1, callbacks=[StopAfter(3)])
    analysis = run(
        Steps,
        tmp_path,
        stop={"training_iteration": 6},
        resources_per_trial={"cpu": 0.5},
        checkpoint_freq=1,
        keep_checkpoints_num=2,
        resume=True,
    )
    (trial,) = analysis.trials
    assert iterations(trial) == [1, 2, 3, 4, 5, 6]
    assert kept(trial) == [f"checkpoint_00000{n}{s}" for n, s in ((5, "-2.2"), (6, "-2.2"))]
    stored = json.loads(Path(analysis.experiment_path, "experiment.json").read_text())
    assert stored["num_to_keep"] == 2  # what holds now is what later readers see


def test_f25_an_edited_sample_from_is_one_warning(tmp_path, caplog):
    def train(config):
        tune.report({"score": config["f"]})

    run(train, tmp_path, config={"f": tune.sample_from(lambda spec: 1)})
    caplog.clear()
    analysis = run(train, tmp_path, config={"f": tune.sample_from(lambda spec: 2)}, num_samples=3, resume=True)
    assert [trial.config["f"] for trial in analysis.trials] == [1, 2, 2]


def test_another_trainable_under_the_name_is_refused(tmp_path):
    def one(config):
        tune.report({"score": 1})

    def other(config):
        tune.report({"score": 1})

    run(one, tmp_path)
    with pytest.raises(ResumeError, match="'one'.*'other'"):
        run(other, tmp_path, resume="AUTO")


# --- errored trials -------------------------------------------------------------------------------------------------


def ill(config):
    """Trial 1 fails at its fourth step until it is mended; a checkpoint at every second step."""
    checkpoint = tune.get_checkpoint()
    n = start = checkpoint.to_dict()["n"] if checkpoint else 0
    with open(config["log"], "a") as file:
        file.write(f"{config['i']}@{start} ")
    while n < 6:
        n += 1
        if config["i"] == 1 and n == 4 and not os.path.exists(config["mended"]):
            raise ValueError("ill")
        tune.report({"score": n}, checkpoint=tune.Checkpoint.from_dict({"n": n}) if n % 2 == 0 else None)


def errored_run(tmp_path, **more):
    """0 is done, 1 is errored at 3 with a checkpoint of 2, 2 stopped at 3 with one of 2, 3 never began."""
    settings = dict(
        config={"i": tune.grid_search([0, 1, 2, 3]), "log": str(tmp_path / "log"), "mended": str(tmp_path / "mended")},
        raise_on_failed_trial=False,
        **more,
    )
    with pytest.raises(Stop):
        run(ill, tmp_path, callbacks=[StopAfter(12)], **settings)
    trials = tune.ExperimentAnalysis(tmp_path / "e").trials
    assert [trial.status for trial in trials][:3] == ["TERMINATED", "ERROR", "PAUSED"]
    (tmp_path / "mended").touch()
    (tmp_path / "log").unlink()
    return settings


def ran(tmp_path):
    path = tmp_path / "log"
    text = path.read_text() if path.exists() else ""
    path.unlink(missing_ok=True)
    return text.split()


WORDS = {
    "LOCAL": ["2@2", "3@0"],
    "LOCAL+ERRORED": ["1@2", "2@2", "3@0"],
    "LOCAL+RESTART_ERRORED": ["1@0", "2@2", "3@0"],
    "LOCAL+ERRORED_ONLY": ["1@2"],
    "ERRORED_ONLY": ["1@2"],
    "LOCAL+RESTART_ERRORED_ONLY": ["1@0"],
    "AUTO+ERRORED": ["1@2", "2@2", "3@0"],
    "AUTO+RESTART_ERRORED_ONLY": ["1@0"],
}


@pytest.mark.parametrize("word", WORDS)
def test_f24_each_resume_word_runs_exactly_what_it_says(tmp_path, word):
    settings = errored_run(tmp_path)
    analysis = run(ill, tmp_path, resume=word, **settings)
    assert sorted(ran(tmp_path)) == WORDS[word]
    status = {trial.config["i"]: trial.status for trial in analysis.trials}
    expected = {0: "TERMINATED", 1: "ERROR", 2: "PAUSED"} | ({3: "PENDING"} if 3 in status else {})
    expected |= {int(one[0]): "TERMINATED" for one in WORDS[word]}
    assert status == expected
    for trial in analysis.trials:
        if trial.status == "TERMINATED":
            assert iterations(trial) == [1, 2, 3, 4, 5, 6]
    # whatever was left is done by the other words
    run(ill, tmp_path, resume="AUTO+ERRORED", **settings)
    whole = tune.ExperimentAnalysis(tmp_path / "e").trials
    assert [(trial.status, iterations(trial)) for trial in whole] == [("TERMINATED", [1, 2, 3, 4, 5, 6])] * 4


SKIP, RESUME, RESTART = ResumeType.SKIP, ResumeType.RESUME, ResumeType.RESTART
CHOICES = {
    (RESUME, SKIP): WORDS["LOCAL"],
    (RESUME, RESUME): WORDS["LOCAL+ERRORED"],
    (RESUME, RESTART): WORDS["LOCAL+RESTART_ERRORED"],
    (SKIP, RESUME): WORDS["ERRORED_ONLY"],
    (SKIP, RESTART): WORDS["LOCAL+RESTART_ERRORED_ONLY"],
    (SKIP, SKIP): [],
}


@pytest.mark.parametrize(("unfinished", "errored"), CHOICES)
def test_a_resume_config_runs_exactly_what_it_says(tmp_path, unfinished, errored):
    settings = errored_run(tmp_path)
    run(ill, tmp_path, resume_config=tune.ResumeConfig(unfinished=unfinished, errored=errored), **settings)
    assert sorted(ran(tmp_path)) == CHOICES[unfinished, errored]


@pytest.mark.parametrize(("unfinished", "errored"), CHOICES)
def test_a_restored_tuner_runs_exactly_what_it_is_asked_for(tmp_path, unfinished, errored):
    settings = errored_run(tmp_path)
    tuner = tune.Tuner.restore(
        tmp_path / "e",
        ill,
        resume_unfinished=unfinished is RESUME,
        resume_errored=errored is RESUME,
        restart_errored=errored is RESTART,
        param_space=settings["config"],
        run_config=tune.RunConfig(verbose=0, executor="inline"),
    )
    grid = tuner.fit()
    assert sorted(ran(tmp_path)) == CHOICES[unfinished, errored]
    assert grid.num_errors == (errored is SKIP)


def test_resume_configs_that_mean_nothing_are_refused(tmp_path):
    with pytest.raises(SettingError, match="finished"):
        tune.ResumeConfig(finished=RESUME)
    with pytest.raises(SettingError, match="unfinished"):
        tune.ResumeConfig(unfinished=RESTART)
    with pytest.raises(SettingError, match="resume_config"):
        run(ill, tmp_path, resume="AUTO", resume_config=tune.ResumeConfig())
    with pytest.raises(SettingError, match="exclude"):
        errored_run(tmp_path)
        tune.Tuner.restore(tmp_path / "e", ill, resume_errored=True, restart_errored=True)


def test_a_trial_that_was_restarted_anew_never_uses_its_former_lifes_checkpoints(tmp_path):
    """Killed before the first checkpoint of its new life it begins anew again."""
    settings = errored_run(tmp_path)
    with pytest.raises(Stop):
        run(ill, tmp_path, resume="LOCAL+RESTART_ERRORED_ONLY", callbacks=[StopAfter(1)], **settings)
    assert ran(tmp_path) == ["1@0"]
    analysis = run(ill, tmp_path, resume=True, **settings)
    assert sorted(ran(tmp_path)) == ["1@0", "2@2", "3@0"]
    assert iterations(analysis.trials[1]) == [1, 2, 3, 4, 5, 6]
    values = [row["score"] for row in rows(analysis.trials[1])]
    assert values == [1, 2, 3, 4, 5, 6]


def test_a_continued_error_has_its_retries_again(tmp_path):
    settings = errored_run(tmp_path)
    (tmp_path / "mended").unlink()
    for _ in range(2):
        analysis = run(ill, tmp_path, resume="ERRORED_ONLY", max_failures=2, **settings)
        assert ran(tmp_path) == ["1@2"] * 3
        assert (analysis.trials[1].status, analysis.trials[1].num_failures) == ("ERROR", 2)
    (tmp_path / "mended").touch()
    assert run(ill, tmp_path, resume="ERRORED_ONLY", **settings).trials[1].status == "TERMINATED"


def test_errored_trials_come_back_under_asha_too(tmp_path):
    scheduler = functools.partial(ASHAScheduler, metric="score", mode="max", max_t=6, grace_period=2)
    settings = errored_run(tmp_path, scheduler=scheduler())
    analysis = run(ill, tmp_path, resume="AUTO+RESTART_ERRORED", **{**settings, "scheduler": scheduler()})
    assert {trial.status for trial in analysis.trials} == {"TERMINATED"} and len(analysis.trials) == 4


# --- what the journal says is read again ------------------------------------------------------------------------------


def test_every_fact_reads_back_as_it_was_written():
    ref = CheckpointRef("t", "checkpoint_000001", 1, 2, 3, 4)
    some, error = msgspec.Raw(b'{"a":[1,2]}'), ev.ErrorInfo("E", "m", "t")
    values = {
        "parent": 3,
        "parent_id": "x",
        "checkpoint": ref,
        "ref": ref,
        "config": some,
        "evaluated": some,
        "metrics": some,
        "resources": {"cpu": 1.0},
        "error": error,
        "status": "ERROR",
        "why": "halted",
        "then": "pause",
        "saves": True,
        "anew": True,
        "done": True,
        "raised": True,
        "held": False,
        "pinned": False,
        "order": some,
        "fork": Clone(3, ref, {"lr": (0.1, "a")}),
        "reused": Reused("s3://earlier", "t", 30),
        "value": 2.5,
        "was": None,
        "total": 7,
        "at": 1.5,
        "reason": Reason(ReasonKind.WORSE, "ASHA", 4, "loss", 1.5, 3, 4, 0.5),
    }
    types = {int: 7, float: 1.5, str: "text"}
    for kind in msgspec.inspect.multi_type_info([ev.AnyFact])[0].types:
        hints = {field.name: field.type for field in kind.fields}
        plain = {msgspec.inspect.IntType: int, msgspec.inspect.FloatType: float, msgspec.inspect.StrType: str}
        given = {
            name: types[plain[type(hint)]] if type(hint) in plain else values[name] for name, hint in hints.items()
        }
        fact = kind.cls(**given)
        again = ev.decode(ev.encode(fact))
        assert ev.encode(again) == ev.encode(fact), kind.cls
        for name, value in given.items():
            got = getattr(again, name)
            assert (bytes(got) if isinstance(got, msgspec.Raw) else got) == (
                bytes(value) if isinstance(value, msgspec.Raw) else value
            )


def test_f01_a_checkpoint_that_one_resume_found_is_known_to_the_next(tmp_path):
    """The driver died between the publish and its fact; so did the one after it."""

    def train(config):
        checkpoint = tune.get_checkpoint()
        start = checkpoint.to_dict()["n"] if checkpoint else 0
        with open(tmp_path / "log", "a") as file:
            file.write(f"0@{start} ")
        for n in range(start + 1, 7):
            tune.report({"score": n}, checkpoint=tune.Checkpoint.from_dict({"n": n}))

    with pytest.raises(Stop):
        run(train, tmp_path, callbacks=[StopAfter(3)])
    (segment,) = (tmp_path / "e" / "journal").iterdir()
    lines = segment.read_bytes().splitlines(keepends=True)
    last = max(i for i, line in enumerate(lines) if b'"published"' in line)
    segment.write_bytes(b"".join(lines[:last]))
    ran(tmp_path)
    for stop in (2, 2):
        with pytest.raises(Stop):
            run(train, tmp_path, resume=True, callbacks=[StopAfter(stop)])
    analysis = run(train, tmp_path, resume=True)
    assert ran(tmp_path) == ["0@2", "0@3", "0@4"]
    (trial,) = analysis.trials
    assert iterations(trial) == [1, 2, 3, 4, 5, 6]
    found = next(record for record in trial.checkpoints if record.iteration == 2)
    assert found.metrics["score"] == 2


# --- Tuner.restore ----------------------------------------------------------------------------------------------------


def test_can_restore_says_whether_there_is_an_experiment(tmp_path):
    def train(config):
        tune.report({"score": 1})

    assert not tune.Tuner.can_restore(tmp_path) and not tune.Tuner.can_restore(tmp_path / "e")
    run(train, tmp_path)
    (tmp_path / "file").touch()
    for path in (tmp_path / "e", str(tmp_path / "e"), f"{tmp_path.as_uri()}/e", os.path.relpath(tmp_path / "e")):
        assert tune.Tuner.can_restore(path)
    assert not tune.Tuner.can_restore(tmp_path / "file") and not tune.Tuner.can_restore(tmp_path)


def test_restore_of_nothing_and_without_a_trainable_are_one_line(tmp_path):
    def train(config):
        tune.report({"score": 1})

    with pytest.raises(ExperimentNotFoundError, match="no experiment at"):
        tune.Tuner.restore(tmp_path / "e", train)
    run(train, tmp_path)
    with pytest.raises(SettingError, match=r"needs the trainable again: experiments do not store code") as caught:
        tune.Tuner.restore(tmp_path / "e")
    assert "\n" not in str(caught.value)


def test_d12_a_restored_tuner_has_its_space_searcher_scheduler_and_settings(tmp_path):
    """Only the trainable is given again; everything else continues."""

    def train(config):
        for n in range(1, 10):
            tune.report({"score": config["x"] * n})

    def tuner(name, callbacks):
        return tune.Tuner(
            train,
            param_space={"x": tune.uniform(0, 1), "f": tune.sample_from(lambda spec: spec.config.x * 2)},
            tune_config=tune.TuneConfig(
                num_samples=8,
                metric="score",
                mode="max",
                search_alg=tune.BasicVariantGenerator(random_state=4),
                scheduler=ASHAScheduler(max_t=9, grace_period=1, reduction_factor=3),
                max_concurrent_trials=1,
            ),
            run_config=tune.RunConfig(
                name=name,
                storage_path=str(tmp_path),
                verbose=0,
                seed=1,
                executor="inline",
                stop={"training_iteration": 7},
                callbacks=callbacks,
                checkpoint_config=tune.CheckpointConfig(num_to_keep=2),
            ),
        )

    whole = tuner("whole", []).fit()
    with pytest.raises(Stop):
        tuner("e", [StopAfter(9)]).fit()
    os.rename(tmp_path / "e", tmp_path / "moved")
    grid = tune.Tuner.restore(tmp_path / "moved", train).fit()
    facts = [[(r.config, r.metrics["training_iteration"]) for r in results] for results in (whole, grid)]
    assert facts[0] == facts[1]
    assert len({iteration for _, iteration in facts[0]}) > 1 and max(i for _, i in facts[0]) == 7
    stored = json.loads((tmp_path / "moved" / "experiment.json").read_text())
    assert (stored["num_to_keep"], stored["num_samples"]) == (2, 8)


def test_a_restored_tuner_takes_what_is_given_anew(tmp_path):
    def train(config):
        tune.report({"score": config["x"]})

    settings = {"config": {"x": tune.uniform(0, 1)}, "seed": 2}
    whole = run(train, tmp_path, name="whole", num_samples=5, **settings)
    run(train, tmp_path, num_samples=2, **settings)
    grid = tune.Tuner.restore(
        tmp_path / "e",
        train,
        tune_config=tune.TuneConfig(num_samples=5),
        run_config=tune.RunConfig(verbose=0, executor="inline"),
    ).fit()
    assert [result.config for result in grid] == [trial.config for trial in whole.trials]
    with pytest.raises(ResumeError, match="search space"):
        tune.Tuner.restore(tmp_path / "e", train, param_space={"x": tune.uniform(0, 9)}).fit()


def test_results_of_a_restored_tuner_need_no_run(tmp_path):
    def train(config):
        tune.report({"score": config["x"]})

    run(train, tmp_path, config={"x": tune.grid_search([1, 2])})
    before = contents(tmp_path)
    grid = tune.Tuner.restore(tmp_path / "e", train).get_results()
    assert [result.metrics["score"] for result in grid] == [1, 2]
    assert contents(tmp_path) == before


def test_a_num_samples_that_was_raised_once_holds_for_a_later_restore(tmp_path):
    def train(config):
        tune.report({"score": config["x"]})

    settings = {"config": {"x": tune.uniform(0, 1)}, "seed": 2}
    run(train, tmp_path, num_samples=2, **settings)
    with pytest.raises(Stop):
        run(train, tmp_path, num_samples=6, resume=True, callbacks=[StopAfter(2)], **settings)
    grid = tune.Tuner.restore(tmp_path / "e", train).fit()
    assert len(grid) == 6 and grid.num_terminated == 6


# --- restore= -----------------------------------------------------------------------------------------------------


class Steps(tune.Trainable):
    def setup(self, config):
        self.n = 0

    def step(self):
        self.n += 1
        return {"n": self.n}

    def save_checkpoint(self, directory):
        return {"n": self.n}

    def load_checkpoint(self, checkpoint):
        self.n = checkpoint["n"]


@pytest.mark.parametrize("form", ["path", "str", "checkpoint", "uri"])
def test_restore_starts_a_class_trainable_from_a_checkpoint(tmp_path, form):
    first = run(Steps, tmp_path, name="first", stop={"training_iteration": 3}, checkpoint_at_end=True)
    checkpoint = first.trials[0].checkpoint
    before = contents(tmp_path / "first")
    given = {
        "path": Path(checkpoint.path),
        "str": checkpoint.path,
        "checkpoint": checkpoint,
        "uri": Path(checkpoint.path).as_uri(),
    }[form]
    analysis = run(Steps, tmp_path, restore=given, stop={"training_iteration": 5})
    (trial,) = analysis.trials
    assert [(row["training_iteration"], row["n"]) for row in rows(trial)] == [(4, 4), (5, 5)]
    assert contents(tmp_path / "first") == before


def test_restore_gives_a_function_its_checkpoint_and_a_resume_prefers_the_trials_own(tmp_path):
    def train(config):
        start = tune.get_checkpoint().to_dict()["n"]
        with open(tmp_path / "log", "a") as file:
            file.write(f"@{start} ")
        for n in range(start + 1, 15):
            tune.report({"n": n}, checkpoint=tune.Checkpoint.from_dict({"n": n}))

    tune.Checkpoint.from_dict({"n": 10}).to_directory(tmp_path / "base")
    for given in (tmp_path / "base", tune.Checkpoint.from_dict({"n": 10})):
        with pytest.raises(Stop):
            run(train, tmp_path, restore=given, callbacks=[StopAfter(2)], overwrite=True)
        analysis = run(train, tmp_path, restore=given, resume=True)
        assert (tmp_path / "log").read_text().split() == ["@10", "@11"]
        assert [row["n"] for row in rows(analysis.trials[0])] == [11, 12, 13, 14]
        (tmp_path / "log").unlink()


def test_restore_of_what_is_not_there_is_an_error_before_anything(tmp_path):
    with pytest.raises(SettingError, match="there is no checkpoint at"):
        run(Steps, tmp_path, restore=tmp_path / "nothing")
    (tmp_path / "file").touch()
    with pytest.raises(SettingError, match="there is no checkpoint at"):
        run(Steps, tmp_path, restore=tmp_path / "file")
    assert os.listdir(tmp_path) == ["file"]


def test_restore_of_an_experiment_continues_it_under_the_new_name(tmp_path):
    with pytest.raises(Stop):
        run(Steps, tmp_path, name="first", callbacks=[StopAfter(5)], checkpoint_freq=1, num_samples=3,
            stop={"training_iteration": 4})  # fmt: skip
    before = {file: file.read_bytes() for file in (tmp_path / "first").rglob("*") if file.is_file()}

    analysis = run(Steps, tmp_path, name="second", restore=tmp_path / "first")

    assert [trial.last_result["training_iteration"] for trial in analysis.trials] == [4, 4, 4]
    assert [len(trial.checkpoints) for trial in analysis.trials] == [4, 4, 4]
    assert {file: file.read_bytes() for file in (tmp_path / "first").rglob("*") if file.is_file()} == before
    assert all(str(tmp_path / "second") in trial.path for trial in analysis.trials)
    # The same call again continues the new one, and does not begin from the old one once more.
    again = run(Steps, tmp_path, name="second", restore=tmp_path / "first", resume="AUTO")
    assert [trial.trial_id for trial in again.trials] == [trial.trial_id for trial in analysis.trials]


def test_restore_of_an_experiment_takes_no_name_that_is_in_use(tmp_path):
    run(Steps, tmp_path, name="first", stop={"training_iteration": 1})
    run(Steps, tmp_path, name="second", stop={"training_iteration": 1})
    with pytest.raises(tune.error.ExperimentExistsError):
        run(Steps, tmp_path, name="second", restore=tmp_path / "first")
    assert sorted(os.listdir(tmp_path)) == ["first", "second"]


def test_restore_of_a_damaged_checkpoint_is_refused(tmp_path):
    first = run(Steps, tmp_path, name="first", stop={"training_iteration": 1}, checkpoint_at_end=True)
    path = Path(first.trials[0].checkpoint.path)
    victim = next(name for name in path.iterdir() if not name.name.startswith("."))
    victim.write_bytes(b"x" * victim.stat().st_size)
    with pytest.raises(Exception, match=victim.name):
        run(Steps, tmp_path, restore=path, stop={"training_iteration": 2})
    assert not (tmp_path / "e").exists()


# --- the disk moved (F13, at run level) ------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["moved", "relative", "link", "home"])
def test_f13_a_moved_experiment_goes_on_where_it_is_now(tmp_path, monkeypatch, how):
    settings = {"stop": {"training_iteration": 4}, "checkpoint_freq": 1, "num_samples": 3}
    with pytest.raises(Stop):
        run(Steps, tmp_path / "old", callbacks=[StopAfter(6)], **settings)
    new = tmp_path / "new"
    os.rename(tmp_path / "old", new)
    given = new
    if how == "relative":
        monkeypatch.chdir(tmp_path)
        given = Path("new")
    elif how == "link":
        (tmp_path / "link").symlink_to(new)
        given = tmp_path / "link"
    elif how == "home":
        monkeypatch.setenv("HOME", str(tmp_path))
        given = "~/new"
    analysis = run(Steps, given, resume=True, **settings)
    assert [iterations(trial) for trial in analysis.trials] == [[1, 2, 3, 4]] * 3
    assert not (tmp_path / "old").exists()
    for trial in analysis.trials:
        assert Path(trial.checkpoint.path).is_dir() and trial.checkpoint.to_dict()["n"] == 4
    old = str(tmp_path / "old").encode()
    state = [new / "e" / part for part in ("experiment.json", "journal", "generations", "blobs")]
    files = [file for part in state for file in (part, *part.rglob("*")) if file.is_file()]
    assert files and not [file for file in files if old in file.read_bytes()]


def test_a_resume_of_a_killed_driver_in_another_directory_does_not_touch_the_first(tmp_path):
    """A copy is another experiment: each goes on by itself."""
    settings = {"stop": {"training_iteration": 4}, "checkpoint_freq": 1}
    with pytest.raises(Stop):
        run(Steps, tmp_path / "one", callbacks=[StopAfter(2)], **settings)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    before = contents(tmp_path / "one")
    assert iterations(run(Steps, tmp_path / "two", resume=True, **settings).trials[0]) == [1, 2, 3, 4]
    assert contents(tmp_path / "one") == before
    assert iterations(run(Steps, tmp_path / "one", resume=True, **settings).trials[0]) == [1, 2, 3, 4]
