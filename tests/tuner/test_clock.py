from __future__ import annotations

import pytest

from tuner.clock import SystemClock, VirtualClock


def test_a_virtual_clock_stands_still_until_told() -> None:
    clock = VirtualClock(start=100.0)
    assert (clock.time(), clock.monotonic()) == (100.0, 0.0)
    clock.advance(5.0)
    clock.advance_to(3.0)
    assert (clock.time(), clock.monotonic()) == (105.0, 5.0)
    with pytest.raises(ValueError, match="cannot go back"):
        clock.advance(-1.0)


def test_the_system_clock_does_not_go_back() -> None:
    clock = SystemClock()
    assert clock.monotonic() <= clock.monotonic()
    assert clock.time() > 1.7e9
