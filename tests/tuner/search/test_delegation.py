"""Attributes that a wrapper has from what it wraps."""

from __future__ import annotations

import pytest

from tuner.search.delegation import delegates


class Wrapped:
    value = 1

    def add(self, number: int, *, twice: bool = False) -> int:
        return self.value + number * (2 if twice else 1)


@delegates("inner", "value", "add")
class Around(Wrapped):
    def __init__(self) -> None:
        self.inner = Wrapped()


@delegates("inner", "value")
class Own(Around):
    def add(self, number: int, *, twice: bool = False) -> int:
        return 0


def test_methods_and_attributes_are_those_of_the_wrapped_object() -> None:
    around = Around()
    around.value = 5

    assert (around.inner.value, Wrapped.value) == (5, 1)
    assert around.add(2, twice=True) == 9


def test_a_subclass_may_have_its_own_again() -> None:
    own = Own()
    own.value = 5

    assert (own.inner.value, own.add(1)) == (5, 0)


def test_what_is_missing_there_is_named() -> None:
    @delegates("inner", "missing")
    class Broken(Around):
        missing: int

    with pytest.raises(AttributeError, match="missing"):
        _ = Broken().missing
