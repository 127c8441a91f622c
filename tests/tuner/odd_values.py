"""Values, names and sizes as users report them, drawn by hypothesis, and what the journal has of them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.tuner.asking.callers import history

NUMPY = [np.float32("nan"), np.float64(0.1), np.int64(-(2**63)), np.uint64(2**64 - 1), np.bool_(True), np.str_("ä")]
ODD = [2**64, -(2**80), math.inf, -math.inf, math.nan, -0.0, "\x00", "\x1b[31m", "\u202e", "\ud800", object(), {1: 2}]
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from([*NUMPY, *ODD])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        | st.lists(inner, max_size=2).map(tuple)
        | st.just(np.arange(3))
    ),
    max_leaves=6,
)
KEYS = st.text(max_size=4) | st.sampled_from(["a/b", "", "loss", "\ud800", 7, None])
RESULTS = st.lists(st.dictionaries(KEYS, VALUES, max_size=3), min_size=1, max_size=6)


def said(report: Callable[[Any], object], results: list[Any]) -> list[str]:
    """Report them all; the errors that were raised."""
    errors = []
    for result in [*results, {"last": 1}]:
        try:
            report(result)
        except ValueError as error:
            errors.append(f"{type(error).__name__}: {error}")
    return errors


def reported(storage: Path, name: str, trial: str = "") -> list[str]:
    """The results that the journal has, as text, without what is added to each."""
    facts = [fact for fact in history(storage, name).kind("result") if not trial or fact["trial"] == trial]
    own = {"time_this_iter_s", "time_total_s", "time_since_restore", "timestamp", "date", "pid", "hostname", "node_ip"}
    own |= {"trial_id", "experiment_tag", "done", "training_iteration", "iterations_since_restore"}
    # A mapping with a key "$" is stored as {"$": "dict", "v": pairs}.
    pairs = (m["v"] if "$" in m else m.items() for m in (fact["metrics"] for fact in facts))
    return [json.dumps(sorted((pair for pair in each if pair[0] not in own), key=json.dumps)) for each in pairs]
