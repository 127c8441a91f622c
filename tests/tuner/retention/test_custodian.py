"""The end of a run waits for deletions as long as it says, and says what it waits for (F34)."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from trainables.config import CheckpointConfig
from trainables.wire import CheckpointRef
from tuner.retention import custodian, deleter
from tuner.retention.custodian import Custodian


def ref(number: int) -> CheckpointRef:
    return CheckpointRef("t1", f"checkpoint_{number:06d}", 1, 1, number, number)


def close_while(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, delete: Any, *, timeout: float
) -> list[str]:
    monkeypatch.setattr(deleter.store_delete, "delete", delete)
    caplog.set_level(logging.WARNING)
    keeper = Custodian(CheckpointConfig())
    keeper.delete(ref(1), Path("/results/t1/checkpoint_000001"))
    keeper.delete(ref(2), Path("/results/t1/checkpoint_000002"))
    keeper.close(timeout)
    return [record.getMessage() for record in caplog.records]


def test_f34_a_deletion_that_hangs_is_named_and_waited_for_no_longer_than_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    over = threading.Event()
    try:
        said = close_while(monkeypatch, caplog, lambda path: over.wait(), timeout=1.0)
        assert not over.is_set()
    finally:
        over.set()
    assert said[0] == "waiting up to 1 s for 2 deletions, /results/t1/checkpoint_000001 first"
    assert [line for line in said if line.startswith("could not delete /results/t1/checkpoint_00000")] == said[1:]
    assert len(said) == 3 and "the next start tries again" in said[1]


def test_f34_a_deletion_that_keeps_failing_says_why(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(path: Path) -> bool:
        raise OSError(16, "Device or resource busy")

    said = close_while(monkeypatch, caplog, refuse, timeout=0.8)
    (line,) = [line for line in said if "busy" in line]
    assert line.startswith("could not delete /results/t1/checkpoint_000001: ")


def test_deletions_that_are_done_in_time_need_no_word(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(custodian, "QUIET_S", 60.0)
    assert close_while(monkeypatch, caplog, lambda path: True, timeout=60.0) == []
