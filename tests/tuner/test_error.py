"""Errors that are raised on purpose: what kinds they are, what is not in their text, and that they can be sent."""

from __future__ import annotations

import builtins
import pickle
import re
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner import error
from tuner.error import (
    MetricMissingError,
    SettingError,
    StorageFullError,
    SyncError,
    TrialError,
    TrialProcessDiedError,
    TrialsFailedError,
    TrialTimeoutError,
    TuneError,
    refused,
    require,
)

KINDS = [kind for kind in vars(error).values() if isinstance(kind, type) and issubclass(kind, TuneError)]


def tree() -> dict[str, tuple[str, list[str]]]:
    """Of the module's drawing: error -> (its parent, the built-in kinds beside it)."""
    found, above = {}, {0: "TuneError"}
    for line in (error.__doc__ or "").splitlines():
        if match := re.match(r"^([ │]+)[├└]── (\w+)(?: \(([\w, ]+)\))?", line):
            depth = len(match[1]) // 5 + 1
            above[depth] = match[2]
            found[match[2]] = above[depth - 1], (match[3] or "").split(", ") if match[3] else []
    return found


def test_the_drawing_at_the_top_is_what_there_is() -> None:
    drawn = tree()
    assert set(drawn) == {kind.__name__ for kind in KINDS} - {"TuneError"}
    for kind in KINDS:
        if kind is TuneError:
            continue
        parent, builtin = drawn[kind.__name__]
        bases = [base.__name__ for base in kind.__bases__]
        assert bases == [parent, *builtin], kind


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_has_its_text_and_comes_back_from_another_process(kind: type[TuneError]) -> None:
    made = kind("it is so")
    assert str(made) == "it is so"
    again = pickle.loads(pickle.dumps(made))
    assert type(again) is kind and str(again) == "it is so"
    assert (kind.__doc__ or "").strip()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_secrets_and_control_characters_are_not_in_the_text(kind: type[TuneError]) -> None:
    text = str(kind("cannot open postgresql://me:hunter2@db/x\x1b[2J\x07"))
    assert "hunter2" not in text and "me:***@db/x" in text
    assert not {"\x1b", "\x07"} & set(text)


@given(st.text())
def test_the_text_stays_what_it_is_when_it_is_wrapped_again(text: str) -> None:
    once = str(TuneError(text))
    assert str(TuneError(once)) == once
    assert not [sign for sign in once if unicodedata.category(sign) == "Cc" and sign not in "\n\t"]


def test_what_is_no_text_is_kept() -> None:
    assert TuneError("a", 3, None).args == ("a", 3, None)


def test_what_an_error_carries_comes_back_with_it() -> None:
    made: list[tuple[Any, dict[str, Any]]] = [
        (TrialError("boom", "Traceback ...\nKeyError: 1"), {"traceback": "Traceback ...\nKeyError: 1"}),
        (TrialTimeoutError("late", "at 3"), {"traceback": "at 3"}),
        (TrialProcessDiedError("signal 9"), {"traceback": ""}),
        (TrialsFailedError("two", analysis="results"), {"analysis": "results"}),
        (SyncError("late", analysis="results", missing=("a", "b")), {"analysis": "results", "missing": ["a", "b"]}),
    ]
    for each, carried in made:
        for one in (each, pickle.loads(pickle.dumps(each))):
            assert {name: getattr(one, name) for name in carried} == carried
            assert str(one) == each.args[0]


def test_a_missing_metric_is_readable_though_it_is_a_key_error() -> None:
    assert str(MetricMissingError("no 'loss'; there are: acc")) == "no 'loss'; there are: acc"
    assert str(MetricMissingError()) == ""


def test_a_full_disk_is_an_error_of_storage_and_of_the_system() -> None:
    with pytest.raises(OSError, match="7 bytes free"):
        raise StorageFullError("/x: 7 bytes free")


def test_who_catches_the_built_in_kind_catches_ours() -> None:
    for kind in KINDS:
        for builtin in tree().get(kind.__name__, ("", []))[1]:
            assert issubclass(kind, getattr(builtins, builtin))


def test_what_does_not_fit_is_refused_by_name_and_value() -> None:
    require(1, "x", 3, "it is 3")
    for nothing in (False, None, 0, ""):
        with pytest.raises(SettingError, match=r"^x=\[3\] is not accepted; it is a number(?m:$)"):
            require(nothing, "x", [3], "it is a number")
    assert str(refused("x", "a\nb", "it is a name")) == r"x='a\nb' is not accepted; it is a name"
