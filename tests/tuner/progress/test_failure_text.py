"""A trial's failure on few lines, from tracebacks that Python wrote."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainables.runtime.tracebacks import user_traceback
from tuner.experiment.events import ErrorInfo
from tuner.progress.failure_text import LINE, failure_text, headline


def raised(code: str, file: str = "/home/me/train.py", **names: Any) -> ErrorInfo:
    """What a trial says of it whose script is that."""
    import linecache

    lines = code.splitlines(keepends=True)
    linecache.cache[file] = (len(code), None, lines, file)
    try:
        exec(compile(code, file, "exec"), {"__name__": "script", "json": json, **names})
    except BaseException as error:
        assert error.__traceback__ is not None
        error.__traceback__ = error.__traceback__.tb_next  # without this file
        return ErrorInfo(type(error).__name__, str(error), user_traceback(error))
    raise AssertionError("nothing was raised")


CALLS = """
def deepest(x): return 1 / x
def deeper(x): return deepest(x)
def deep(x): return deeper(x)
def train(x): return deep(x)
train(0)
"""


def test_the_line_that_is_wrong_comes_first_then_the_error_then_who_called() -> None:
    assert failure_text(raised(CALLS)).splitlines() == [
        '  File "/home/me/train.py", line 2, in deepest',
        "    def deepest(x): return 1 / x",
        "                           ~~^~~",
        "ZeroDivisionError: division by zero",
        'called from File "/home/me/train.py", line 3, in deeper',
        "    def deeper(x): return deepest(x)",
        'and that from File "/home/me/train.py", line 4, in deep',
        "    def deep(x): return deeper(x)",
        "... 2 callers more",
    ]


def test_frames_of_libraries_below_it_are_one_line() -> None:
    lines = failure_text(raised("json.loads('{')")).splitlines()
    assert lines[0] == '  File "/home/me/train.py", line 1, in <module>'
    assert [line for line in lines if "which called File" in line and "decoder.py" in line]
    assert lines[-1].startswith("json.decoder.JSONDecodeError: Expecting property name")


def test_what_it_came_from_is_one_line() -> None:
    error = raised("try:\n    {}['k']\nexcept KeyError as e:\n    raise RuntimeError('two\\nlines') from e\n")
    lines = failure_text(error).splitlines()
    assert lines[0] == '  File "/home/me/train.py", line 4, in <module>'
    assert lines[-3:] == ["RuntimeError: two", "lines", "(it came from KeyError: 'k')"]


def test_whole_is_what_python_prints() -> None:
    error = raised(CALLS)
    assert failure_text(error, whole=True) == error.traceback.rstrip()
    assert error.traceback.startswith("Traceback (most recent call last):")


LIBRARY = 'Traceback (most recent call last):\n  File "/v/site-packages/a.py", line 1, in f\nE: x\n'


def test_lines_that_only_the_driver_has_are_added() -> None:
    error = raised(CALLS)
    bare = [line for line in error.traceback.splitlines() if not line.startswith("    ")]
    without = msgspec.structs.replace(error, traceback="\n".join(bare))
    assert "    def deepest(x): return 1 / x" in failure_text(without, whole=True).splitlines()
    assert failure_text(without).splitlines()[1] == "    def deepest(x): return 1 / x"


@pytest.mark.parametrize(
    ("error", "lines"),
    [
        (ErrorInfo("KeyError", "boom"), ["KeyError: boom"]),
        (ErrorInfo("RanksError", "x", "RanksError: x\n\nWhat another rank saw of it:\n\nTraceback"), ["RanksError: x"]),
        (
            ErrorInfo(
                "E", "x", 'Traceback (most recent call last):\n  File "/v/site-packages/a.py", line 1, in f\nE: x\n'
            ),
            ["E: x"],
        ),
    ],
    ids=["no traceback", "what a leader says", "nobody's frames"],
)
def test_without_a_line_of_the_users_there_is_what_was_said(error: ErrorInfo, lines: list[str]) -> None:
    assert failure_text(error).splitlines()[: len(lines)] == lines


def test_the_first_line_and_the_type() -> None:
    assert headline(ErrorInfo("OSError", "full\nmore")) == "OSError: full"
    assert headline(ErrorInfo("KeyError", " ")) == "KeyError"


@given(st.integers(1, 40), st.text(max_size=3000), st.text(max_size=200))
def test_f52_it_fits_on_a_screen_whatever_was_raised(depth: int, message: str, more: str) -> None:
    """A message may hold a whole array."""
    code = "def f(n):\n    if n: return f(n - 1)\n    raise ValueError(message) from KeyError(more)\nf(depth)\n"
    text = failure_text(raised(code, depth=depth, message=message, more=more))
    lines = text.split("\n")
    assert len(lines) <= 16 and all(len(line) <= LINE for line in lines)
    assert lines[0] == '  File "/home/me/train.py", line 3, in f'
