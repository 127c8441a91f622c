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
from tuner.experiment.outcome import headline
from tuner.progress.failure_text import LINE, failure_text


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


WORKER = """Caught KeyError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "/v/site-packages/torch/utils/data/_utils/worker.py", line 374, in _worker_loop
    data = fetcher.fetch(index)  # type: ignore[possibly-undefined]
           ^^^^^^^^^^^^^^^^^^^^
  File "/v/site-packages/torch/utils/data/_utils/fetch.py", line 54, in fetch
    data = [self.dataset[idx] for idx in possibly_batched_index]
            ~~~~~~~~~~~~^^^^^
  File "/home/me/rows.py", line 9, in __getitem__
    return row["image"], row["target"]
                         ~~~^^^^^^^^^^
KeyError: 'target'
"""


class KeyErrorMessage(str):
    """As torch's: the message of a KeyError is the repr of its argument."""

    def __repr__(self) -> str:
        return str(self)


def test_a_workers_error_that_its_message_quotes_is_shown_to_its_end() -> None:
    error = raised("raise KeyError(message)", message=KeyErrorMessage(WORKER))
    assert failure_text(error).splitlines() == [
        '  File "/home/me/train.py", line 1, in <module>',
        "    raise KeyError(message)",
        "KeyError: Caught KeyError in DataLoader worker process 0.",
        "... 7 lines more",
        '  File "/home/me/rows.py", line 9, in __getitem__',
        '    return row["image"], row["target"]',
        "                         ~~~^^^^^^^^^^",
        "KeyError: 'target'",
    ]
    assert headline(error) == "KeyError: 'target'"


def test_of_a_quoted_traceback_the_line_of_the_users_is_shown_and_not_that_of_a_library() -> None:
    below = (
        '  File "/v/site-packages/torch/storage.py", line 414, in _new_shared\n    return new()\nRuntimeError: full\n'
    )
    message = WORKER.replace("KeyError: 'target'\n", below)
    assert failure_text(raised("raise RuntimeError(message)", message=message)).splitlines()[-5:] == [
        "... 9 lines more",
        '  File "/home/me/rows.py", line 9, in __getitem__',
        '    return row["image"], row["target"]',
        "                         ~~~^^^^^^^^^^",
        "RuntimeError: full",
    ]


def test_a_note_stays_below_a_cause() -> None:
    code = "e = KeyError(message)\ne.add_note('a hint')\nraise e"
    assert failure_text(raised(code, message=KeyErrorMessage(WORKER))).splitlines()[-2:] == [
        "KeyError: 'target'",
        "a hint",
    ]


def test_a_traceback_that_the_user_put_into_a_message_is_shown_below_the_users_own_line() -> None:
    message = "shard 3 failed:\n" + WORKER.replace("Original ", "").partition("\n")[2] + "see the log\n"
    error = raised("raise RuntimeError(message)", message=message)
    lines = failure_text(error).splitlines()
    assert lines[:3] == [
        '  File "/home/me/train.py", line 1, in <module>',
        "    raise RuntimeError(message)",
        "RuntimeError: shard 3 failed:",
    ]
    assert lines[-1] == "KeyError: 'target'" and '  File "/home/me/rows.py", line 9, in __getitem__' in lines
    assert headline(error) == "RuntimeError: KeyError: 'target'"


def test_a_traceback_on_one_line_is_shown_to_its_end() -> None:
    error = raised("raise RuntimeError(message)", message="worker: " + WORKER.strip().replace("\n", "\\n"))
    last = failure_text(error).splitlines()[-1]
    assert len(last) == LINE and last.startswith("...") and last.endswith("KeyError: 'target'")


def test_what_a_process_of_a_pool_raised_is_what_it_came_from() -> None:
    text = WORKER.replace("Original ", "").partition("\n")[2]
    code = "class RemoteTraceback(Exception): pass\nraise KeyError('target') from RemoteTraceback(text)"
    lines = failure_text(raised(code, text=f'\n"""\n{text}"""')).splitlines()
    assert lines[-2:] == ["KeyError: 'target'", "(it came from KeyError: 'target')"]


def test_a_group_of_errors_shows_the_last_of_them() -> None:
    code = (
        "def f(): raise ValueError('first')\ndef g(): raise KeyError('second')\nerrors = []\n"
        "for each in (f, g):\n    try: each()\n    except Exception as e: errors.append(e)\n"
        "raise ExceptionGroup('unhandled errors in a TaskGroup', errors)"
    )
    error = raised(code)
    lines = failure_text(error).splitlines()
    assert lines[0] == "ExceptionGroup: unhandled errors in a TaskGroup (2 sub-exceptions)"
    assert lines[-1].endswith("| KeyError: 'second'") and "line 2, in g" in "".join(lines)
    assert headline(error) == lines[0]


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("worker died\nTraceback (most recent call last):\n  File x", "E: File x"),
        ("a\nTraceback (most recent call last):\n  File x\nE: inner\nof two lines", "E: inner"),
        (
            "a\n  + Exception Group Traceback (most recent call last):\n  |   File x\n  | ValueError: b",
            "E: ValueError: b",
        ),
    ],
    ids=["cut", "of several lines", "a group"],
)
def test_the_first_line_is_that_of_the_cause(message: str, line: str) -> None:
    assert headline(ErrorInfo("E", message)) == line


@given(st.lists(st.sampled_from([*WORKER.splitlines(), "  | E: x", "", "more"]), max_size=30).map("\n".join))
def test_f52_whatever_a_message_quotes_fits_on_a_screen(message: str) -> None:
    error = raised("raise RuntimeError(message)", message=message)
    assert len(failure_text(error).split("\n")) <= 16
    assert headline(error).startswith("RuntimeError")


@given(st.integers(1, 40), st.text(max_size=3000), st.text(max_size=200))
def test_f52_it_fits_on_a_screen_whatever_was_raised(depth: int, message: str, more: str) -> None:
    """A message may hold a whole array."""
    code = "def f(n):\n    if n: return f(n - 1)\n    raise ValueError(message) from KeyError(more)\nf(depth)\n"
    text = failure_text(raised(code, depth=depth, message=message, more=more))
    lines = text.split("\n")
    assert len(lines) <= 16 and all(len(line) <= LINE for line in lines)
    assert lines[0] == '  File "/home/me/train.py", line 3, in f'
