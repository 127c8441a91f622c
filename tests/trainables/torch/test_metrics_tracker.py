from __future__ import annotations

import io
from pathlib import Path

import pytest
import torch

from trainables.errors import InvalidSettingError, MetricError
from trainables.torch import MetricsTracker, TimestampedTimer, atomic_torch_save

pytestmark = pytest.mark.torch


def test_sums_are_of_double_precision_without_a_process_group() -> None:
    metrics = MetricsTracker()
    for _ in range(3):
        metrics.update({"images": 70_000, "loss": torch.tensor(2.0**-30, dtype=torch.float64)}).reduce()
        assert metrics.local == {"images": 70_000, "loss": 2.0**-30}
        metrics.reset_local()
    assert metrics.agg == {"images": 210_000, "loss": 3 * 2.0**-30}
    metrics.update({"images": 1}).end_epoch()
    assert metrics.epoch_reports == [{"images": 210_000, "loss": 3 * 2.0**-30}]
    assert metrics.agg == metrics.local == {}
    assert metrics.local["absent"] == 0
    assert metrics.update({"loss": torch.ones(1, requires_grad=True)}).local["loss"] == 1, "and torch warns of nothing"


def test_a_state_is_plain_and_read_by_a_bare_load(tmp_path: Path) -> None:
    metrics = MetricsTracker()
    metrics.update({"loss": 1}).reduce().end_epoch().update({"loss": torch.tensor([2])}).reduce()
    atomic_torch_save(metrics.state_dict(), tmp_path / "metrics.pt")

    resumed = MetricsTracker(device="cpu")
    resumed.load_state_dict(torch.load(tmp_path / "metrics.pt"))
    resumed.update({"loss": 3}).reduce().end_epoch()

    assert resumed.epoch_reports == [{"loss": 1.0}, {"loss": 5.0}]


@pytest.mark.parametrize("value", ["1", True, None, torch.ones(2), [1]])
def test_what_is_no_single_number_is_named_and_nothing_is_counted(value: object) -> None:
    metrics = MetricsTracker()
    with pytest.raises(MetricError, match="'loss' is"):
        metrics.update({"images": 1, "loss": value})
    assert metrics.local == {}
    with pytest.raises(MetricError, match=r"\[1\] is no mapping"):
        metrics.update([1])  # type: ignore[arg-type]


def test_a_state_of_something_else_is_refused() -> None:
    with pytest.raises(InvalidSettingError, match=r"MetricsTracker\.state_dict\(\)"):
        MetricsTracker().load_state_dict({"agg": {}})
    with pytest.raises(InvalidSettingError, match=r"TimestampedTimer\.state_dict\(\)"):
        TimestampedTimer(file=io.StringIO()).load_state_dict({})
    with pytest.raises(InvalidSettingError, match=r"TimestampedTimer\.state_dict\(\)"):
        TimestampedTimer(file=io.StringIO()).load_state_dict({"running": None})


class Clock:
    """Stands still until it is told."""

    now = 1_700_000_000.0
    gone = 5.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.gone


def test_a_timer_writes_what_each_part_took_whatever_happens_to_the_time_of_day() -> None:
    clock, file = Clock(), io.StringIO()
    timer = TimestampedTimer(start_time=clock.now - 1.5, running=10, file=file, clock=clock)
    clock.gone += 2
    clock.now -= 86_400
    timer.report("loaded")
    clock.gone += 0.25
    timer.report("trained")

    lines = [line.split("] ")[1].split() for line in file.getvalue().splitlines()]
    assert lines == [
        ["Start", "0.000", "ms,", "10.00", "s", "total"],
        ["loaded", "3,500.000", "ms,", "13.50", "s", "total"],
        ["trained", "250.000", "ms,", "13.75", "s", "total"],
    ]
    again = TimestampedTimer(file=file, clock=clock)
    again.load_state_dict(timer.state_dict())
    assert again.running == 13.75


def test_only_rank_0_writes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("RANK", "1")
    TimestampedTimer("quiet").report("quiet")
    monkeypatch.setenv("RANK", "0")
    TimestampedTimer("told")

    assert "told" in capsys.readouterr().out.splitlines()[0]
    with pytest.raises(InvalidSettingError, match="start_time='now' is not accepted"):
        TimestampedTimer(start_time="now")  # type: ignore[arg-type]
