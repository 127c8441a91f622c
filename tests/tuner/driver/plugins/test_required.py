"""What plug-ins need of the results: said at the first result, with the nearest keys."""

from __future__ import annotations

import logging

import pytest

import tuner as tune
from tuner.driver.fact_log import FactLog
from tuner.error import MetricMissingError
from tuner.schedulers import ASHAScheduler


def run(trainable, path, **settings):
    return tune.run(trainable, storage_path=path, **{"name": "e", "executor": "inline", "verbose": 0, **settings})


def report(*results):
    def train(config):
        for result in results:
            tune.report(result)

    return train


class Endless(tune.Trainable):
    """A class that ends only when it is told to."""

    def setup(self, config):
        self.n = 0

    def step(self):
        self.n += 1
        return {"accuracy": 1.0}

    def save_checkpoint(self, directory):
        return {"n": self.n}

    def load_checkpoint(self, checkpoint):
        self.n = checkpoint["n"]


def warnings_of(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_class_whose_stop_metric_never_comes_does_not_run_for_ever(tmp_path):
    with pytest.raises(MetricMissingError, match="'acuracy' .there are: accuracy"):
        run(Endless, tmp_path, stop={"acuracy": 0.9}, checkpoint_freq=10)
    mended = run(Endless, tmp_path, stop={"accuracy": 0.9}, resume="AUTO")
    (trial,) = mended.trials
    assert trial.status == "TERMINATED" and trial.last_result["training_iteration"] == 101


def test_f11_a_stop_metric_that_comes_seldom_ends_its_trial(tmp_path, caplog):
    results = [{"loss": 1.0, **({"acc": n / 10} if n % 3 == 0 else {})} for n in range(1, 12)]
    (trial,) = run(report(*results), tmp_path, stop={"acc": 0.9}).trials
    assert trial.last_result["acc"] == 0.9
    assert [text for text in warnings_of(caplog) if "acc" in text and "stop" in text] == warnings_of(caplog)[:1]


@pytest.mark.parametrize(
    ("first", "problem"),
    [
        ({"loss": 1.0, "training_step": 1}, "which the first result does not have; reported were: .*training_step"),
        ({"loss": 1.0, "training_steps": "one"}, "which the first result has as 'one', which is no number"),
    ],
)
def test_a_time_attribute_that_the_first_result_lacks_is_an_error(tmp_path, first, problem):
    scheduler = ASHAScheduler(time_attr="training_steps", metric="loss", mode="min")
    with pytest.raises(MetricMissingError, match=f"time_attr='training_steps', {problem}"):
        run(report(first), tmp_path, scheduler=scheduler)


def test_a_later_result_without_the_time_attribute_is_no_error(tmp_path):
    scheduler = ASHAScheduler(time_attr="t", metric="loss", mode="min")
    (trial,) = run(report({"t": 1, "loss": 1}, {"loss": 1}, {"t": 3, "loss": 1}), tmp_path, scheduler=scheduler).trials
    assert trial.status == "TERMINATED" and trial.last_result["t"] == 3


def test_a_metric_that_only_the_run_goes_by_is_warned_of_once(tmp_path, caplog):
    run(report({"loss": 1}, {"loss": 2}), tmp_path, metric="los", mode="min", num_samples=3)
    said = [text for text in warnings_of(caplog) if "metric='los'" in text]
    assert len(said) == 1 and said[0].split("there are: ")[1].startswith("loss")


def test_a_metric_of_the_run_that_the_first_result_has_is_not_warned_of(tmp_path, caplog):
    run(report({"loss": 1}, {"other": 2}), tmp_path, metric="loss", mode="min")
    assert warnings_of(caplog) == []


def test_f11_after_a_resume_from_a_snapshot_a_metric_that_came_before_may_be_missing(tmp_path, monkeypatch):
    class Seldom(Endless):
        def step(self):
            self.n += 1
            return {"loss": 1.0} if self.n % 3 == 1 else {"other": 1}

    class Ends(tune.Callback):
        def on_trial_result(self, iteration, trials, trial, result, **info):
            if result["training_iteration"] == 3:
                raise InterruptedError

    settings = {"metric": "loss", "mode": "min", "checkpoint_freq": 1, "stop": {"training_iteration": 5}}
    with monkeypatch.context() as patch, pytest.raises(InterruptedError):
        patch.setattr(FactLog, "should_compact", lambda self: True)
        run(Seldom, tmp_path, scheduler=ASHAScheduler(max_t=50), callbacks=[Ends()], **settings)
    assert list((tmp_path / "e" / "journal").glob("snapshot-*"))
    (trial,) = run(Seldom, tmp_path, scheduler=ASHAScheduler(max_t=50), resume=True, **settings).trials
    assert trial.status == "TERMINATED" and trial.last_result["training_iteration"] == 5
