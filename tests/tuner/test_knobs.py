"""Variables of the environment that are no numbers are named, with what is accepted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

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
