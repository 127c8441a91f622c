"""Rungs: where they lie, and the cutoff of each."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.schedulers.rungs import percentile


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.floats(-1e6, 1e6) | st.just(math.nan), min_size=1, max_size=40).filter(
        lambda v: any(x == x for x in v)
    ),
    st.floats(1.01, 20),
)
def test_the_cutoff_is_numpys_nanpercentile(values: list[float], factor: float) -> None:
    percent = (1 - 1 / factor) * 100
    ordered = sorted(value for value in values if value == value)
    assert percentile(ordered, percent) == float(np.nanpercentile(values, percent))
