"""Failures as text: whatever a user's exception does, there is one that can be journaled, written and shown."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainables.masking import masked
from trainables.net.frames import frame
from trainables.runtime import tracebacks
from trainables.runtime.tracebacks import LIMIT, message_of, user_traceback
from trainables.testing import run_trial
from trainables.wire import AttemptErrored


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("nothing to say")

    __repr__ = __str__


class Leaving(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)

    def __reduce__(self) -> Any:
        raise SystemExit(3)


class NoText(Exception):
    def __str__(self) -> str:
        return 5  # type: ignore[return-value]


class Folded(Exception):
    def __str__(self) -> str:
        raise self


def odd_syntax() -> Exception:
    error = SyntaxError("odd")
    error.lineno, error.text = 1, 5  # type: ignore[assignment]
    return error


def with_a_long_note() -> Exception:
    error = ValueError("short")
    error.add_note("note" * 2_000_000)
    return error


def in_a_long_group() -> Exception:
    return ExceptionGroup("group", [ValueError("v" * 1_000_000) for _ in range(3)])


ODD: list[tuple[Callable[[], BaseException], str]] = [
    (lambda: Mute("x"), "Mute"),
    (lambda: Leaving("x"), "Leaving"),
    (lambda: NoText("x"), "NoText"),
    (lambda: Folded("x"), "Folded"),
    (lambda: ValueError("half \ud800 of one"), "half \\ud800 of one"),
    (odd_syntax, "odd"),
    (lambda: ValueError("m" * 5_000_000), "ValueError"),
    (lambda: SystemExit("m" * 5_000_000), "SystemExit"),
    (lambda: ValueError("\ud800" * 1_000_000), "ValueError"),
    (with_a_long_note, "short"),
    (in_a_long_group, "group"),
    (lambda: ValueError(), "ValueError"),
]


@pytest.mark.parametrize(("make", "shown"), ODD)
def test_f52_an_odd_exception_fails_its_trial_with_a_traceback_that_fits(
    tmp_path: Path, make: Callable[[], BaseException], shown: str
) -> None:
    def train(config: dict[str, Any]) -> None:
        raise make()  # the user's line

    end = run_trial(train, tmp_path).end
    assert isinstance(end, AttemptErrored)
    frame(end)  # it can be sent
    assert 0 < len(end.message) <= LIMIT + 1000
    assert len(end.traceback) <= LIMIT + 1000
    assert "raise make()  # the user's line" in end.traceback
    assert shown in end.traceback


def test_of_a_long_message_head_and_tail_are_kept() -> None:
    text = message_of(ValueError("begin " + "x" * (50 * LIMIT) + " end"))
    assert text.startswith("begin xxx") and text.endswith("xxx end")
    assert LIMIT <= len(text) < LIMIT + 100
    assert f"{49 * LIMIT + 10} characters left out" in text


def test_a_message_of_megabytes_is_cut_before_it_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    """To mask all of it took a second per megabyte."""
    lengths: list[int] = []

    def counted(text: str) -> str:
        lengths.append(len(text))
        return masked(text)

    monkeypatch.setattr(tracebacks, "masked", counted)
    secret = "password=hunter2 "
    long = secret + "ab cd " * 500_000 + secret
    kept = message_of(ValueError(long))
    assert lengths == [4 * LIMIT]
    assert "hunter2" not in kept and kept.count("password=***") == 2
    said = re.search(r"\.\.\. (\d+) characters left out \.\.\.", kept)
    assert said is not None and abs(int(said[1]) - (len(long) - LIMIT)) < len(secret)


def test_a_message_that_cannot_be_made_says_what_its_str_raised() -> None:
    assert message_of(Mute("x")) == "Mute (its __str__ raised RuntimeError)"
    assert message_of(NoText("x")) == "NoText (its __str__ raised TypeError)"


def test_a_message_that_fits_is_as_it_was() -> None:
    assert message_of(ValueError("grüße \N{PILE OF POO}")) == "grüße \N{PILE OF POO}"
    assert message_of(ValueError()) == "ValueError"
    assert user_traceback(ValueError("short")) == "ValueError: short\n"
