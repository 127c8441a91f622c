"""Random experiments, random victims, random moments: killed again and again, and continued (R1 to R12 together).

A failure prints the seed and how to repeat just that one. Under soak ten times as many, and larger ones.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from places import Places
from plans import draw
from repeat import describe, perform

QUICK, SOAK = 10, 600


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    made = Places(tmp_path_factory.mktemp("places"))
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(QUICK))
def test_a_small_experiment_that_is_struck_at_random_ends_as_its_settings_say(
    seed: int, tmp_path: Path, places: Places
) -> None:
    plan = draw(seed, small=True)
    seen, flags = perform(plan, tmp_path / "work", places)
    assert not flags, describe(plan, seen, flags)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(SOAK))
def test_an_experiment_that_is_struck_at_random_ends_as_its_settings_say(
    seed: int, tmp_path: Path, places: Places
) -> None:
    plan = draw(seed)
    seen, flags = perform(plan, tmp_path / "work", places)
    assert not flags, describe(plan, seen, flags)
