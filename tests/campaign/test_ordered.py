"""Orders under kills: random ones to a run whose driver is killed again and again; none is lost, none done twice.

A failure prints how to repeat it. Under soak a thousand kills.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from ordered import Zygote, perform


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    made = Zygote()
    yield made
    made.close()


def check(seed: int, kills: int, place: Path, zygote: Zygote) -> None:
    seen = perform(seed, place, zygote, kills=kills)
    repeat = f"python tests/campaign/ordered.py --seed {seed} --kills {kills} --each {kills}"
    assert not seen.flags, "\n".join([repeat, *seen.lives, *seen.flags])
    assert seen.kills == kills


def test_no_order_is_lost_or_done_twice_over_a_few_kills(tmp_path: Path, zygote: Zygote) -> None:
    check(1, 5, tmp_path / "work", zygote)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100))
def test_no_order_is_lost_or_done_twice_over_a_thousand_kills(seed: int, tmp_path: Path, zygote: Zygote) -> None:
    check(seed, 10, tmp_path / "work", zygote)
