"""Every environment variable of Ray's does what the table says, or one line says that it does nothing."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from trainables.warned import take
from tuner.analysis import ExperimentAnalysis
from tuner.compat.variables import honoured, without_effect
from tuner.driver.signals import Signals
from tuner.error import MetricMissingError, SettingError
from tuner.utils import warn_if_slow

ROOT = Path(__file__).parents[3]
READ = set(json.loads((ROOT / "docs" / "ray_variables.json").read_text()))


def test_the_table_has_every_variable_of_four_versions_and_no_other() -> None:
    assert not set(honoured()) & set(without_effect())
    assert set(honoured()) | set(without_effect()) == READ


def train(config: dict[str, Any]) -> None:
    tune.report({"loss": 1.0, "there": os.getcwd(), "started": os.environ["TUNE_ORIG_WORKING_DIR"]})


def run(place: Path | None, **given: Any) -> ExperimentAnalysis:
    given = {"executor": "inline", "name": "e", "verbose": 0, **given}
    return tune.run(train, storage_path=place, **given)


def test_a_run_says_once_of_each_that_does_nothing_what_to_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in without_effect():
        monkeypatch.setenv(name, "1")
    run(tmp_path)
    said = [record.getMessage() for record in caplog.records if "is set and has no effect" in record.getMessage()]
    assert said == [f"{name} is set and has no effect: {why}" for name, why in sorted(without_effect().items())]
    log = (tmp_path / "e" / "driver.log").read_text()
    assert all(log.count(f"{name} is set") == 1 for name in without_effect())


def test_a_run_without_any_says_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run(tmp_path)
    assert "has no effect" not in caplog.text


class Told(tune.Callback):
    """A callback that the environment names."""

    seen: list[str] = []

    def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        self.seen.append(trial.trial_id)


def results_in(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "home", lambda: place / "home")
    assert Path(run(None).experiment_path) == place / "e"


def stays_in_place(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(place).trials[0].last_result["there"] == os.getcwd()


def named_callback_is_told(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = len(Told.seen)
    run(place)
    assert len(Told.seen) == before + 1
    for wrong, why in (("no.such.Class", "cannot be imported"), ("os.path", "accepted are subclasses of Callback")):
        monkeypatch.setenv("RAY_TUNE_CALLBACKS", wrong)
        with pytest.raises(SettingError, match=why):
            run(place, name="f")


def no_files_of_loggers(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(place)
    assert not [*place.rglob("result.json"), *place.rglob("progress.csv")]


def no_date_in_names(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [Path(run(place, name=None).experiment_path).name for _ in range(2)]
    assert names == ["train", "train_2"]


def python_handles_ctrl_c(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with Signals() as signals, signals.handled(None, None):  # type: ignore[arg-type]
        assert signal.getsignal(signal.SIGINT) is before[signal.SIGINT]
        assert signal.getsignal(signal.SIGTERM) is not before[signal.SIGTERM]
    assert {number: signal.getsignal(number) for number in before} == before
    monkeypatch.delenv("TUNE_DISABLE_SIGINT_HANDLER")
    with Signals() as signals, signals.handled(None, None):  # type: ignore[arg-type]
        assert signal.getsignal(signal.SIGINT) is not before[signal.SIGINT]


def a_metric_may_be_missing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(place, metric="score", mode="max", raise_on_failed_trial=False)
    monkeypatch.delenv("TUNE_DISABLE_STRICT_METRIC_CHECKING")
    with pytest.raises((MetricMissingError, tune.TuneError), match="score"):
        run(place, metric="score", mode="max", name="f", scheduler="asha")


def pushes_as_often(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tuner import knobs

    assert knobs.journal_push_s() == 7.0


def trials_know_where_it_was_started(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(place).trials[0].last_result["started"] == os.getcwd()
    assert os.environ["TUNE_ORIG_WORKING_DIR"] == "/elsewhere"  # a trial in this process leaves it as it was
    monkeypatch.delenv("TUNE_ORIG_WORKING_DIR")
    assert run(place, name="f", executor="local").trials[0].last_result["started"] == os.getcwd()


def slow_is_what_it_says(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with warn_if_slow("looking") as slow:
        time.perf_counter()
    monkeypatch.setenv("TUNE_WARN_THRESHOLD_S", "100")
    with warn_if_slow("looking again") as quick:
        time.perf_counter()
    assert slow.too_slow and not quick.too_slow


WHAT_THEY_DO: dict[str, tuple[str, Callable[[Path, pytest.MonkeyPatch], None]]] = {
    "RAY_AIR_LOCAL_CACHE_DIR": ("{place}", results_in),
    "RAY_CHDIR_TO_TRIAL_DIR": ("0", stays_in_place),
    "RAY_TUNE_CALLBACKS": (f"{__name__}.Told", named_callback_is_told),
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": ("1", no_files_of_loggers),
    "TUNE_DISABLE_DATED_SUBDIR": ("1", no_date_in_names),
    "TUNE_DISABLE_SIGINT_HANDLER": ("1", python_handles_ctrl_c),
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": ("1", a_metric_may_be_missing),
    "TUNE_GLOBAL_CHECKPOINT_S": ("7", pushes_as_often),
    "TUNE_ORIG_WORKING_DIR": ("/elsewhere", trials_know_where_it_was_started),
    "TUNE_RESULT_DIR": ("{place}", results_in),
    "TUNE_WARN_THRESHOLD_S": ("0", slow_is_what_it_says),
}


@pytest.mark.parametrize("name", honoured())
def test_what_is_honoured_does_what_it_says(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    value, holds = WHAT_THEY_DO[name]
    monkeypatch.delenv("TUNE_RESULT_DIR", raising=False)
    monkeypatch.setenv(name, value.format(place=tmp_path))
    holds(tmp_path, monkeypatch)
    take()
