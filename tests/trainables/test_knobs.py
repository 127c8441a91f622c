"""What libraries are told by the environment, and those that read it already."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from trainables import knobs


def test_loaded_libraries_are_limited() -> None:
    pools = pytest.importorskip("threadpoolctl")
    before = pools.threadpool_info()
    np.ones((2, 2)) @ np.ones((2, 2))
    try:
        knobs.limit_loaded(1)
        assert {pool["num_threads"] for pool in pools.threadpool_info()} <= {1}
    finally:
        for pool in before:
            knobs.limit_loaded(pool["num_threads"])


def test_without_the_library_that_limits_they_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is optional; a rank of a group failed at its start where only numpy was installed."""
    monkeypatch.setitem(sys.modules, "threadpoolctl", None)
    assert "numpy" in sys.modules
    knobs.limit_loaded(1)
