"""Variables of the environment that are no numbers are named, with what is accepted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import tuner as tune
from tuner import knobs
from tuner.error import SettingError

SECONDS = {
    "TUNE_SILENT_AFTER_S": knobs.silent_after_s,
    "TUNE_GRACE_S": knobs.grace_s,
    "TUNE_STOP_GRACE_S": knobs.stop_grace_s,
    "TUNE_GLOBAL_CHECKPOINT_S": knobs.journal_push_s,
}


@pytest.mark.parametrize("text", ["often", "-1", "nan"])
@pytest.mark.parametrize(("name", "knob"), SECONDS.items())
def test_d20_what_is_no_number_of_seconds_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, knob: Callable[[], float | None], text: str
) -> None:
    monkeypatch.setenv(name, text)
    with pytest.raises(SettingError, match=f"{name}='{text}' is not accepted; accepted are seconds"):
        knob()


@pytest.mark.parametrize(("name", "default"), [("TUNE_SILENT_AFTER_S", 300), ("TUNE_GRACE_S", 30)])
def test_an_empty_one_is_as_good_as_none(monkeypatch: pytest.MonkeyPatch, name: str, default: float) -> None:
    monkeypatch.setenv(name, "")
    assert SECONDS[name]() == default


def test_d20_a_number_of_failures_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNE_MAX_PUBLISH_FAILURES", "few")
    with pytest.raises(SettingError, match="TUNE_MAX_PUBLISH_FAILURES='few' is not accepted; accepted are 1, 2, 3"):
        knobs.max_publish_failures()


def test_d20_what_a_run_does_after_ctrl_c_is_one_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TUNE_ON_INTERRUPT", raising=False)
    assert knobs.on_interrupt() == "raise"
    monkeypatch.setenv("TUNE_ON_INTERRUPT", "stay")
    with pytest.raises(SettingError, match="TUNE_ON_INTERRUPT='stay' is not accepted; accepted are raise and return"):
        knobs.on_interrupt()


SWITCHES = {
    "TUNE_DISABLE_DATED_SUBDIR": knobs.dated_names,
    "TUNE_DISABLE_SIGINT_HANDLER": knobs.handles_interrupts,
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": knobs.disable_loggers,
    "TUNE_DISABLE_TENSORBOARD": knobs.disable_tensorboard,
    "TUNE_NEEDS_REPORTS": knobs.needs_reports,
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": knobs.strict_metrics,
    "TUNE_CHDIR_TO_TRIAL_DIR": knobs.chdir_to_trial_dir,
    "RAY_CHDIR_TO_TRIAL_DIR": knobs.chdir_to_trial_dir,
}


@pytest.mark.parametrize(("name", "knob"), SWITCHES.items())
def test_what_is_on_or_off_is_one_of_eight_words_or_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, knob: Callable[[], bool]
) -> None:
    said = {}
    for text in ("", "1", "0", "true", "yes", "ON", "False", "no", " off "):
        monkeypatch.setenv(name, text)
        said[text.strip().lower()] = knob()
    on, off = said["1"], said["0"]
    assert on is not off and [said[word] for word in ("true", "yes", "on")] == [on] * 3
    assert [said[word] for word in ("false", "no", "off")] == [off] * 3
    monkeypatch.delenv(name)
    assert said[""] is knob()
    monkeypatch.setenv(name, "nonsense")
    with pytest.raises(SettingError, match=f"{name}='nonsense' is not accepted; accepted are 1, true, yes, on and 0, "):
        knob()


@pytest.mark.parametrize("name", SWITCHES)
def test_such_a_word_is_refused_before_anything_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    monkeypatch.setenv(name, "nonsense")
    with pytest.raises(SettingError, match=f"{name}='nonsense'"):
        tune.run(lambda config: None, storage_path=tmp_path / "results", name="e")
    assert not (tmp_path / "results").exists()
