"""Warnings of a run: each kind once, and logging as it was afterwards."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.tuner.progress.harness import plain


def test_who_configured_logging_gets_the_warnings_there(lab: Any, caplog: pytest.LogCaptureFixture) -> None:
    progress, out = plain()
    run = lab(progress)
    run.callbacks.setup(stop=None)
    for _ in range(3):
        logging.getLogger("tuner.driver.loop").warning("the disk is slow")

    assert len(caplog.records) == 3
    assert "slow" not in out.getvalue()


def test_after_a_run_logging_is_as_it_was(lab: Any, unconfigure: Any) -> None:
    unconfigure()
    before = [list(logging.getLogger(name).handlers) for name in ("tuner", "trainables")]
    progress, _ = plain()
    run = lab(progress)
    run.callbacks.setup(stop=None)
    assert logging.getLogger("tuner").handlers
    run.finish()

    assert [list(logging.getLogger(name).handlers) for name in ("tuner", "trainables")] == before
