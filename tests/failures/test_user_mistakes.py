"""What users write wrong: said at once, or as the failure of their trial, in words that name the culprit (F52, D20)."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest

import tuner as tune
from tuner.error import SerializationError, SettingError


def run(trainable, path, **settings):
    return tune.run(trainable, storage_path=path, **{"name": "e", "executor": "inline", "verbose": 0, **settings})


# --- exceptions that are no ordinary ones ---------------------------------------------------------------------------


class Mute(Exception):
    def __str__(self):
        raise RuntimeError("nothing to say")

    __repr__ = __str__


def raises(config):
    tune.report({"a": 1})
    if config["k"] == "mute":
        raise Mute("x")
    if config["k"] == "half":
        raise ValueError("half \ud800 of a character")
    if config["k"] == "long":
        raise ValueError("long " + "x" * 50_000_000 + " end")


@pytest.mark.parametrize("executor", ["inline", "local"])
def test_f52_an_odd_exception_fails_its_trial_and_the_run_goes_on(tmp_path, executor):
    space = {"k": tune.grid_search(["mute", "half", "long", "none"])}
    analysis = run(raises, tmp_path, config=space, executor=executor, raise_on_failed_trial=False)
    *odd, good = analysis.trials
    assert good.status == "TERMINATED"
    shown = {"mute": "Mute", "half": "half \\ud800 of a character", "long": "ValueError: long xxx"}
    for trial in odd:
        text = Path(trial.path, "error.txt").read_text()
        assert (trial.status, trial.last_result["a"]) == ("ERROR", 1)
        assert shown[trial.config["k"]] in text and "in raises" in text
        assert len(text) < 100_000 and len(trial.error.message) < 100_000
    assert sum(file.stat().st_size for file in (tmp_path / "e" / "journal").iterdir()) < 2_000_000


# --- class trainables that lack something ---------------------------------------------------------------------------


class Stepless(tune.Trainable):
    def setup(self, config):
        self.n = 0


class Plain(tune.Trainable):
    def step(self):
        return {"a": 1, "done": True}


class SavesOnly(Plain):
    def save_checkpoint(self, directory):
        return {"a": 1}


class NoSuper(Plain):
    def __init__(self, config):
        self.mine = config


class NoConfig(Plain):
    def __init__(self):
        super().__init__()


MISTAKES = [
    (Stepless, {}, r"Stepless.*step\(\)"),
    (Plain, {"checkpoint_freq": 2}, r"checkpoint_frequency=2.*Plain.*save_checkpoint.*load_checkpoint"),
    (Plain, {"checkpoint_at_end": True}, r"checkpoint_at_end=True.*Plain.*save_checkpoint.*load_checkpoint"),
    (SavesOnly, {}, r"SavesOnly.*save_checkpoint.*load_checkpoint"),
    (NoConfig, {}, r"NoConfig.__init__\(\).*config.*setup\(config\)"),
]


@pytest.mark.parametrize(("trainable", "settings", "message"), MISTAKES, ids=lambda value: str(value)[:40])
def test_d20_a_class_that_lacks_a_method_is_refused_before_anything_is_made(tmp_path, trainable, settings, message):
    with pytest.raises(ValueError, match=message):
        run(trainable, tmp_path, **settings)
    if "checkpoint_freq" not in settings:  # its name in a CheckpointConfig is another
        with pytest.raises(ValueError, match=message):
            config = tune.RunConfig(storage_path=tmp_path, checkpoint_config=tune.CheckpointConfig(**settings))
            tune.Tuner(trainable, run_config=config).fit()
    assert list(tmp_path.iterdir()) == []


def test_a_class_that_never_saves_needs_no_save_and_no_load(tmp_path):
    (trial,) = run(Plain, tmp_path).trials
    assert trial.last_result["a"] == 1


def test_an_init_without_super_fails_its_trial_and_says_what_to_call(tmp_path):
    analysis = run(NoSuper, tmp_path, raise_on_failed_trial=False)
    (trial,) = analysis.trials
    assert trial.status == "ERROR"
    assert "NoSuper.__init__() does not call super().__init__(config)" in trial.error.message


# --- names of trials -----------------------------------------------------------------------------------------------


def simple(config):
    tune.report({"a": 1})


CREATORS = ["trial_name_creator", "trial_dirname_creator"]


@pytest.mark.parametrize("setting", CREATORS)
@pytest.mark.parametrize("value", [3, "trial_{id}", []])
def test_d20_a_creator_of_names_that_cannot_be_called_is_refused_before_anything_is_made(tmp_path, setting, value):
    message = rf"{setting}={re.escape(repr(value))} is not accepted; accepted is a function \(trial\) -> str"
    with pytest.raises(SettingError, match=message):
        run(simple, tmp_path, **{setting: value})
    with pytest.raises(SettingError, match=message):
        config = tune.TuneConfig(**{setting: value})
        tune.Tuner(simple, tune_config=config, run_config=tune.RunConfig(storage_path=tmp_path)).fit()
    assert list(tmp_path.iterdir()) == []


def third_is_odd(value):
    def creator(trial):
        if trial.trial_id.endswith("2"):
            if isinstance(value, Exception):
                raise value
            return value
        return f"name_{trial.trial_id}"

    return creator


@pytest.mark.parametrize("setting", CREATORS)
@pytest.mark.parametrize("value", [3, None, "", b"x", "half \ud800"])
def test_a_creator_that_returns_no_name_ends_the_run_and_a_resume_goes_on(tmp_path, setting, value):
    with pytest.raises(SettingError, match=rf"{setting}.*third_is_odd.*returned {re.escape(repr(value))}.*_00002"):
        run(simple, tmp_path, num_samples=4, **{setting: third_is_odd(value)})
    trials = run(simple, tmp_path, num_samples=4, resume="AUTO").trials
    assert [(trial.status, trial.last_result["a"]) for trial in trials] == [("TERMINATED", 1)] * 4


@pytest.mark.parametrize("setting", CREATORS)
def test_what_a_creator_raises_ends_the_run_as_it_is_with_a_note(tmp_path, setting):
    """As what a callback raises does."""
    with pytest.raises(KeyError, match="lr") as raised:
        run(simple, tmp_path, num_samples=4, **{setting: third_is_odd(KeyError("lr"))})
    note, then = raised.value.__notes__
    assert re.fullmatch(rf"raised by {setting} \(third_is_odd.*\) for trial \w+_00002", note)
    assert then.startswith("to continue: the same call with name=") and then.endswith('resume="AUTO"')
    trials = run(simple, tmp_path, num_samples=4, resume="AUTO").trials
    assert [(trial.status, trial.last_result["a"]) for trial in trials] == [("TERMINATED", 1)] * 4


# --- config values -------------------------------------------------------------------------------------------------


class Unpicklable:
    def __reduce__(self):
        raise RuntimeError("not this one")


@pytest.mark.parametrize("executor", ["inline", "local"])
@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"lock": threading.Lock()}, "config value lock is a _thread.lock"),
        ({"a": {"b": [1, tune.choice([Unpicklable()])]}}, "config value a/b/1 is a .*Unpicklable.*not this one"),
        ({"g": tune.sample_from(lambda config: (i for i in ()))}, "config value g is a builtins.generator"),
    ],
    ids=["constant", "nested domain", "function"],
)
def test_t06_a_config_value_that_cannot_be_shipped_is_named_with_its_key(tmp_path, executor, config, said):
    with pytest.raises(SerializationError, match=said) as raised:
        run(simple, tmp_path, config=config, executor=executor)
    assert "metric" not in str(raised.value).lower()
    assert [trial.status for trial in run(simple, tmp_path).trials] == ["TERMINATED"]  # nothing stands in the way


# --- metrics that are no numbers -----------------------------------------------------------------------------------


def reports_text(config):
    for n in range(3):
        tune.report({"auc": "high", "eval": {"loss": None}, "n": n})


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"scheduler": "asha", "metric": "auc"}, r"AsyncHyperBandScheduler .*'auc'.*'high', a str"),
        ({"search_alg": "optuna", "metric": "eval/loss"}, r"OptunaSearch .*'eval/loss'.*None, a NoneType"),
        ({"checkpoint_score_attr": "auc"}, r"checkpoint score attribute 'auc' is 'high' .str., no number"),
    ],
    ids=["scheduler", "searcher", "score"],
)
def test_d02_a_metric_that_is_no_number_is_one_warning_with_key_value_and_type(tmp_path, caplog, settings, said):
    def saves_text(config):
        for _ in range(3):
            tune.report({"auc": "high"}, checkpoint=tune.Checkpoint.from_dict({"a": 1}))

    trainable = saves_text if "checkpoint_score_attr" in settings else reports_text
    run(trainable, tmp_path, num_samples=3, mode="max", **settings)
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len([text for text in warned if re.search(said, text)]) == 1, warned
    assert len(warned) == 1, warned


def test_d10_that_there_is_no_best_checkpoint_is_said_once_however_often_it_is_asked(tmp_path, caplog):
    analysis = run(simple, tmp_path, metric="a", mode="max", num_samples=2)
    for _ in range(3):
        assert analysis.best_checkpoint is None
        assert all(analysis.get_best_checkpoint(trial) is None for trial in analysis.trials)
        assert analysis.get_best_trial("b", "max") is None and analysis.get_best_config("b", "max") is None
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == len(set(said)) == 3
    assert sum("has no checkpoint" in text for text in said) == 2
