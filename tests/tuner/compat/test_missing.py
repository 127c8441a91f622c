"""Stand-ins for what is not here: importing one is harmless, using it says what to use instead."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, Union

import pytest

from tuner.compat.missing import NotHere, never_raised
from tuner.error import NotHereError, TuneError

GONE = NotHere("ray.train.horovod", "HorovodTrainer", "TorchTrainer")


def derived() -> None:
    class Mine(GONE):  # type: ignore[misc, valid-type]
        pass


@pytest.mark.parametrize(
    "use",
    [
        lambda: GONE(),
        lambda: GONE(1, scaling=2),
        lambda: GONE.restore,
        lambda: GONE["x"],
        lambda: list(GONE),
        lambda: len(GONE),
        lambda: 1 in GONE,
        derived,
    ],
)
def test_each_use_says_what_to_use_instead(use: Callable[[], object]) -> None:
    with pytest.raises(NotHereError, match=r"ray\.train\.horovod\.HorovodTrainer is not here; instead: TorchTrainer"):
        use()


def test_it_can_be_imported_asked_about_and_written_in_an_annotation() -> None:
    assert not isinstance(3, GONE)  # type: ignore[arg-type]
    assert not issubclass(int, GONE)  # type: ignore[arg-type]
    assert not hasattr(GONE, "__wrapped__") and "instead: TorchTrainer" in repr(GONE)
    assert Union[int, GONE]  # type: ignore[truthy-bool]
    assert (GONE | None) is Any and (None | GONE) is Any


def test_it_is_the_same_after_a_pickle() -> None:
    again = pickle.loads(pickle.dumps(GONE))
    assert repr(again) == repr(GONE)
    with pytest.raises(NotHereError):
        again()


def test_an_exception_that_nothing_raises_can_be_caught() -> None:
    error: Any = never_raised("ray.tune.error", "TuneStartTrialError")
    assert issubclass(error, TuneError) and error.__name__ == "TuneStartTrialError"
    assert error is never_raised("ray.tune.error", "TuneStartTrialError")
    with pytest.raises(error):
        raise error("as a program may raise it itself")
