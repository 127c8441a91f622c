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
from repeat import cut, describe, perform

UNPLUGGED = ("none", "directory")
QUICK, QUICK_CUTS, SOAK = 10, 3, 600


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


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.parametrize("seed", range(QUICK_CUTS))
def test_a_small_experiment_whose_power_is_cut_ends_as_its_settings_say(
    seed: int, tmp_path: Path, places: Places
) -> None:
    plan = draw(seed, small=True, replicas=UNPLUGGED)
    seen, flags = cut(plan, tmp_path, places)
    assert not flags, describe(plan, seen, flags, f" --small --power --replicas {','.join(UNPLUGGED)}")


@pytest.mark.soak
@pytest.mark.root
@pytest.mark.parametrize("seed", range(SOAK // 3))
def test_an_experiment_whose_power_is_cut_ends_as_its_settings_say(seed: int, tmp_path: Path, places: Places) -> None:
    plan = draw(seed)
    seen, flags = cut(plan, tmp_path, places)
    assert not flags, describe(plan, seen, flags, " --power")
