"""Random numbers of a trial: its own, and the same ones again."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.listings import SCRIPTS
from trainables.runtime.seeding import seed_everything, trial_seed
from trainables.testing import run_trial


def draws(config: dict[str, Any]) -> dict[str, Any]:
    import numpy as np

    return {"python": random.random(), "numpy": float(np.random.random())}


def drawn(root: Path, **changes: Any) -> tuple[float, float]:
    (result,) = run_trial(draws, root, **changes).results
    return result["python"], result["numpy"]


def test_t16_trials_draw_differently_and_the_same_trial_alike(tmp_path: Path) -> None:
    first = drawn(tmp_path, seed=1, index=0)
    assert drawn(tmp_path, seed=1, index=0) == first
    others = [
        drawn(tmp_path, seed=1, index=1),
        drawn(tmp_path, seed=2, index=0),
        drawn(tmp_path, seed=1, index=0, start_iteration=3),
        drawn(tmp_path, seed=None),
        drawn(tmp_path, seed=None),
    ]
    assert len({value for pair in [first, *others] for value in pair}) == 12


@pytest.mark.torch
def test_t16_torch_too(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    one, again, other = (
        run_trial(lambda config: torch.rand(()).item(), tmp_path, index=index).results[0]["_metric"]
        for index in (0, 0, 1)
    )
    assert one == again != other


def test_the_seed_is_64_bits_and_pinned() -> None:
    assert trial_seed(1, 0) == trial_seed(1, 0, 0) == seed_everything(1, 0)
    assert trial_seed(1, 0) == 16928499052494541594  # it must never change: recorded runs depend on it
    assert len({trial_seed(1, i, j) for i in range(50) for j in range(50)}) == 2500


def test_a_library_imported_after_seeding_is_seeded_too(tmp_path: Path) -> None:
    """In a fresh interpreter, because numpy is loaded in this one."""
    script = (
        "import sys; from trainables.runtime.seeding import seed_everything; seed_everything(5, int(sys.argv[1]))\n"
        "assert 'numpy.random' not in sys.modules\n"
        "import numpy; print(numpy.random.random())\n"
        "assert type(numpy.random.__spec__.loader).__name__ == 'SourceFileLoader'\n"
    )
    run = [
        subprocess.run([sys.executable, "-c", script, index], capture_output=True, text=True, check=True).stdout
        for index in "001"
    ]
    assert run[0] == run[1] != run[2]


@given(st.integers(0, 2**70), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 1000))
def test_seeds_of_different_places_differ_and_are_64_bits(seed: int, index: int, start: int, rank: int) -> None:
    here = trial_seed(seed, index, start, rank)

    assert 0 <= here < 2**64
    others = [(seed + 1, index, start, rank), (seed, index + 1, start, rank), (seed, index, start + 1, rank)]
    assert here not in [trial_seed(*other) for other in (*others, (seed, index, start, rank + 1))]
    assert trial_seed(seed, index, start) == trial_seed(seed, index, start, 0)


def test_without_a_seed_every_trial_draws_its_own() -> None:
    assert seed_everything(None, 0) != seed_everything(None, 0)


def test_libraries_do_not_draw_each_others_numbers() -> None:
    """numpy's generator is python's: one seed would give both the same numbers."""
    import numpy as np

    seed_everything(3, 0)

    assert random.random() != np.random.random()


_LATER = SCRIPTS / "seeded_later.py"


def test_only_the_last_trial_seeds_what_is_imported_later_and_nothing_after_its_end() -> None:
    def drawn(what: str) -> str:
        return subprocess.run(
            [sys.executable, _LATER, what], capture_output=True, text=True, check=True, timeout=60
        ).stdout

    assert drawn("keep") == drawn("keep")
    assert drawn("forget") != drawn("forget")
