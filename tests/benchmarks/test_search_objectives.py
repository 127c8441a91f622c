"""The benchmark of two objectives: its measure, and that ASHA of several objectives pays."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna._hypervolume import compute_hypervolume

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data" / "lcbench"
MODULES = ("lcbench", "search", "search_hypervolume", "search_objectives", "search_runs", "search_tables")


@pytest.fixture(scope="module")
def bench():
    """The benchmark's modules and the surrogate."""
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        imported = SimpleNamespace(**{name: __import__(name) for name in MODULES})
        try:
            imported.surrogate = imported.lcbench.Surrogate(DATA)
        except imported.lcbench.Missing as error:
            pytest.skip(str(error))
        yield imported
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(ROOT / "benchmarks")):
            del sys.modules[name]


_SHARE = st.integers(0, 64).map(lambda number: number / 64)


@given(st.lists(st.tuples(_SHARE, _SHARE), min_size=1, max_size=12))
def test_the_hypervolume_is_optunas(bench, places: list[tuple[float, float]]) -> None:
    front = bench.search_hypervolume.Front()
    volumes = [front.add(place) for place in places]
    expected = float(compute_hypervolume(-np.array(places), np.zeros(2)))
    assert bench.search_hypervolume.hypervolume(places) == pytest.approx(expected)
    assert volumes[-1] == pytest.approx(expected) and volumes == sorted(volumes)


def test_asha_of_both_objectives_misses_least(bench) -> None:
    methods, found = ("random", "nsga2", "mo-asha"), bench.search_tables.Results()
    for key in bench.search.wanted(methods, bench.search.chosen_datasets(bench.surrogate, None)[:4], 1, [4]):
        found.runs[key] = bench.search_objectives.measured(bench.surrogate, key)
    cells = found.shared_cells(4)
    missing = {name: found.regrets(name, 4, cells, (0.25, 0.5, 1.0)).mean() for name in methods}
    assert 0 < missing["mo-asha"] < min(missing["random"], missing["nsga2"])
