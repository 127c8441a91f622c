"""What plug-ins need of the results: said at the first result, with the nearest keys."""

from __future__ import annotations

import logging

import pytest

import tuner as tune
from tuner.driver.fact_log import FactLog
from tuner.error import MetricMissingError
from tuner.schedulers import ASHAScheduler
from tuner.stopper import CostStopper


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


GOES_BY = [{}, {"scheduler": "asha"}, {"search_alg": "optuna", "config": {"x": tune.uniform(0, 1)}}]


@pytest.mark.parametrize("plugin", GOES_BY, ids=["the run", "scheduler", "searcher"])
def test_a_near_miss_ends_the_run_at_the_first_result_and_a_resume_goes_on(tmp_path, plugin):
    trainable = report(*[{"loss": n, "acc": 1} for n in range(5)])
    settings = {"num_samples": 3, "mode": "min", **plugin}
    with pytest.raises(
        MetricMissingError, match=r"'los' is not in the first result of train_.*did you mean 'loss'"
    ) as no:
        run(trainable, tmp_path, metric="los", **settings)
    assert "name='e'" in "".join(no.value.__notes__) and isinstance(no.value, ValueError)
    analysis = run(trainable, tmp_path, metric="loss", resume="AUTO", **settings)
    assert [trial.status for trial in analysis.trials] == ["TERMINATED"] * 3


@pytest.mark.parametrize("plugin", GOES_BY, ids=["the run", "scheduler", "searcher"])
@pytest.mark.parametrize(
    ("count", "said"),
    [
        (9, "not in any result of train_.*_00001, which has ended, nor of 1 other trial that ended"),
        (30, "not in any of the first 10 results of"),
    ],
)
def test_a_metric_that_never_comes_ends_the_run_after_ten_results_or_a_trial(tmp_path, plugin, count, said):
    trainable = report(*[{"loss": n} for n in range(count)])
    settings = {"num_samples": 2, "mode": "min", **plugin}
    with pytest.raises(MetricMissingError, match="(?s)" + said + ".*reported were: loss.*to continue: .*resume=.AUTO"):
        run(trainable, tmp_path, metric="accuracy", **settings)
    seen = tune.ExperimentAnalysis(tmp_path / "e").trials
    assert seen[count == 9].last_result["training_iteration"] == 9
    assert not any(trial.is_finished() for trial in seen)
    analysis = run(trainable, tmp_path, metric="loss", resume="AUTO", **settings)
    assert [trial.status for trial in analysis.trials] == ["TERMINATED"] * 2
    assert analysis.trials[0].last_result["training_iteration"] in (count, 1)  # ASHA stops it at the first


@pytest.mark.parametrize("num_samples", [1, 3])
def test_a_trial_that_ended_without_the_metric_runs_anew_once_that_is_mended_in_the_trainable(tmp_path, num_samples):
    with pytest.raises(MetricMissingError, match="trainable, and resume the run; TUNE"):
        run(report({"acc": 1}), tmp_path, metric="loss", mode="min", num_samples=num_samples)
    mended = run(
        report({"loss": 1}), tmp_path, metric="loss", mode="min", num_samples=num_samples, name="e", resume="AUTO"
    )
    assert [trial.last_result["loss"] for trial in mended.trials] == [1] * num_samples
    assert mended.best_trial is mended.trials[0]


@pytest.mark.parametrize("way", [{"stop": {"training_iteration": 3}}, {"checkpoint_freq": 1, "stop": {"n": 3}}])
def test_what_no_resume_can_run_once_more_is_said_to_need_a_new_beginning(tmp_path, way):
    class Counts(Endless):
        def step(self):
            return {**super().step(), "n": self.n}

    with pytest.raises(MetricMissingError, match="resume the run, or in the trainable and run anew with overwrite=T"):
        run(Counts, tmp_path, metric="loss", mode="min", **way)
    assert run(Counts, tmp_path, metric="accuracy", mode="max", resume="AUTO", **way).best_config == {}


@pytest.mark.parametrize("plugin", GOES_BY, ids=["the run", "scheduler", "searcher"])
def test_a_metric_that_is_none_in_all_results_is_warned_of_once(tmp_path, caplog, plugin):
    trainable = report({"loss": None}, {"acc": 1, "loss": None})
    run(trainable, tmp_path, metric="loss", mode="min", num_samples=2, **plugin)
    (said,) = warnings_of(caplog)
    assert "'loss'" in said and "None" in said


def test_a_metric_that_is_none_at_first_only_is_not_warned_of(tmp_path, caplog):
    run(report({"loss": None}, {"acc": 1}, {"loss": 2}), tmp_path, metric="loss", mode="min", num_samples=2)
    assert warnings_of(caplog) == []


@pytest.mark.parametrize("plugin", GOES_BY, ids=["the run", "scheduler", "searcher"])
@pytest.mark.parametrize("every", [3, 10])
def test_a_metric_that_comes_seldom_is_right(tmp_path, plugin, every):
    results = [{"train_loss": n, **({"val_loss": n} if n % every == 0 else {})} for n in range(1, 12)]
    settings = {"num_samples": 2, "metric": "val_loss", "mode": "max", **plugin}
    assert {trial.status for trial in run(report(*results), tmp_path, **settings).trials} == {"TERMINATED"}


def test_without_strict_checking_a_missing_metric_is_warned_of_once(tmp_path, caplog, monkeypatch):
    monkeypatch.setenv("TUNE_DISABLE_STRICT_METRIC_CHECKING", "1")
    run(report(*[{"loss": 1}] * 12), tmp_path, metric="los", mode="min", num_samples=3)
    said = [text for text in warnings_of(caplog) if "metric='los'" in text]
    assert len(said) == 1 and said[0].endswith("did you mean 'loss'? There are: loss")


def test_a_metric_that_was_mended_in_the_trainable_goes_on_after_ten_results(tmp_path):
    with pytest.raises(MetricMissingError, match="first 10 results"):
        run(Endless, tmp_path, metric="score", checkpoint_freq=1)
    before = tune.ExperimentAnalysis(tmp_path / "e").trials[0].last_result["training_iteration"]

    class Mended(Endless):
        def step(self):
            return {**super().step(), "score": 1.0}

    Mended.__name__ = "Endless"
    (trial,) = run(Mended, tmp_path, metric="score", checkpoint_freq=1, resume="AUTO", stop={"score": 1}).trials
    assert (before, trial.last_result["training_iteration"], trial.status) == (9, 10, "TERMINATED")


@pytest.mark.parametrize(
    ("trainable", "metric", "said"),
    [
        (
            lambda config: 0.5,
            "loss",
            r'which is 0.5, a number .*call tune.report\(\{"loss": x\}\), or return \{"loss": x',
        ),
        (lambda config: None, None, r'reported nothing.*call tune.report\(\{"loss": x\}\)'),
        (lambda config: None, "acc", r'reported nothing.*call tune.report\(\{"acc": x\}\)'),
    ],
)
def test_what_a_function_does_instead_of_reporting_is_told(tmp_path, trainable, metric, said):
    with pytest.raises(MetricMissingError, match=said):
        run(trainable, tmp_path, metric=metric, num_samples=2)
    assert tune.ExperimentAnalysis(tmp_path / "e").trials[0].is_finished() is False
    assert run(report({"acc": 1, "loss": 1}), tmp_path, metric=metric).trials[0].status == "TERMINATED"


def test_a_function_may_report_nothing_where_that_is_said_or_another_trial_has(tmp_path, monkeypatch):
    def some(config):
        if config["n"] == 0:
            tune.report({"loss": 1})

    space = {"n": tune.grid_search([0, 1])}
    assert {trial.status for trial in run(some, tmp_path, config=space).trials} == {"TERMINATED"}
    monkeypatch.setenv("TUNE_NEEDS_REPORTS", "0")
    assert run(lambda config: None, tmp_path, name="f").trials[0].status == "TERMINATED"


def test_a_metric_of_the_run_that_is_a_string_is_warned_of_once(tmp_path, caplog):
    run(report({"loss": "0.5"}, {"loss": "0.4"}), tmp_path, metric="loss", num_samples=2)
    (said,) = warnings_of(caplog)
    assert "the run goes by the metric 'loss'" in said and "'0.5', a str" in said and '{"loss": float(x)}' in said


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


@pytest.mark.parametrize(
    ("metric", "reported", "said"),
    [
        ("ac", {"loss": 1, "acc": 1}, "first result of .*did you mean 'acc'. Reported were: acc, loss. Correct"),
        ("los", {"acc": 1, "loss": 1}, "first result of .*did you mean 'loss'. Reported were: loss, acc. Correct"),
        ("auc", {"loss": 1, "acc": 1}, "which has ended: did you mean 'acc'. Reported were: acc, loss. Correct"),
        ("f1", {f"m{n}": 1 for n in range(12)}, "has ended; reported were: m1, m0, .*m9 and 2 more. Correct"),
    ],
)
def test_all_that_was_reported_is_listed_and_the_nearest_is_suggested(tmp_path, metric, reported, said):
    with pytest.raises(MetricMissingError, match=said):
        run(report(reported), tmp_path, metric=metric, mode="min")


@pytest.mark.parametrize("among", [lambda budget: budget, lambda budget: [{"training_iteration": 50}, [budget]]])
def test_a_budget_of_a_cost_that_never_comes_ends_the_run(tmp_path, among):
    with pytest.raises(MetricMissingError, match=r"cost_attr='dolars' is not in the first result .*mean 'dollars'"):
        run(report(*[{"dollars": 1.0}] * 5), tmp_path, stop=among(CostStopper(3.0, "dolars")))
    mended = run(report(*[{"dollars": 1.0}] * 5), tmp_path, stop=among(CostStopper(3.0, "dollars")), resume="AUTO")
    assert [trial.last_result["training_iteration"] for trial in mended.trials] == [3]


def test_a_cost_may_come_with_some_results_only(tmp_path):
    results = [{"loss": 1.0, **({"cost": 1.0} if n % 3 == 0 else {})} for n in range(1, 12)]
    (trial,) = run(report(*results), tmp_path, stop=CostStopper(3.0)).trials
    assert trial.last_result["training_iteration"] == 9
