"""Random experiments, random victims, random moments: killed again and again, and continued (R1 to R12 together).

A failure prints the seed and how to repeat just that one. Under soak ten times as many, and larger ones.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from places import Places
from plans import draw
from repeat import BAD, cut, describe, on_bad_machine, perform

UNPLUGGED = ("none", "directory")
QUICK, QUICK_CUTS, SOAK = range(7), 2, 600


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    made = Places(tmp_path_factory.mktemp("places"))
    yield made
    made.close()


@pytest.mark.parametrize("seed", QUICK)
def test_a_small_experiment_that_is_struck_at_random_ends_as_its_settings_say(
    seed: int, tmp_path: Path, places: Places
) -> None:
    plan = draw(seed, small=True)
    seen, flags = perform(plan, tmp_path / "work", places)
    assert not flags, describe(plan, seen, flags, " --small")


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(SOAK))
def test_an_experiment_that_is_struck_at_random_ends_as_its_settings_say(
    seed: int, tmp_path: Path, places: Places
) -> None:
    plan = draw(seed)
    seen, flags = perform(plan, tmp_path / "work", places)
    assert not flags, describe(plan, seen, flags)


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


def on_bad(seed: int, kind: str, base: Path, places: Places, *, small: bool) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed: apt-get install gcc libc6-dev")
    plan = draw(seed, small=small, replicas=UNPLUGGED)
    seen, flags = on_bad_machine(plan, base / "work", places, kind)
    option = f" --bad {kind} --replicas {','.join(UNPLUGGED)}" + " --small" * small
    assert not flags, describe(plan, seen, flags, option)


@pytest.mark.parametrize("kind", sorted(BAD))
def test_a_small_experiment_on_a_bad_machine_ends_as_its_settings_say(
    kind: str, tmp_path: Path, places: Places
) -> None:
    on_bad(200, kind, tmp_path, places, small=True)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(SOAK // 20))
@pytest.mark.parametrize("kind", sorted(BAD))
def test_an_experiment_on_a_bad_machine_ends_as_its_settings_say(
    kind: str, seed: int, tmp_path: Path, places: Places
) -> None:
    on_bad(seed, kind, tmp_path, places, small=False)
