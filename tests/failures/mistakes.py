"""A mistake that users make, as the script that makes it, and what they are told: played as Python plays a script."""

from __future__ import annotations

import contextlib
import io
import logging
import re
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tuner.executors import default
from tuner.executors.inline import InlineExecutor

SCREEN = 25
"""Lines that an error may take: of one screen, with room for the prompt."""
BEGIN = """import tuner as tune

def train(config):
    for n in range(3):
        tune.report({"loss": 1.0 / (n + 1)})

"""


@dataclass(frozen=True)
class Mistake:
    """One row of the table.

    Args:
        what: the mistake, in words.
        code: a script, behind `BEGIN`.
        raises: the class of the exception that ends it; None: it runs to its end, and `says` is in what it prints.
        says: what has to be in the message, in that order.
        lines: at most so many lines of traceback and message.
    """

    what: str
    code: str
    raises: str | None
    says: tuple[str, ...]
    lines: int = SCREEN

    def __post_init__(self) -> None:
        chance = [words for words in self.says if re.fullmatch(r"[\w.:/+-]{,6}|[\d\s.:,/+-]*", words)]
        assert not chance, f"{self.what}: {chance} can occur in an id, a path or a time"

    def __str__(self) -> str:
        return self.what


@dataclass(frozen=True)
class Told:
    """What a script printed, and how it ended."""

    printed: str
    error: BaseException | None
    text: str
    """Traceback and message, as Python writes them."""


def play(code: str, place: Path) -> Told:
    """Run a script in this process, in a directory of its own."""
    file, out, error = place / "mistake.py", io.StringIO(), None
    file.write_text(BEGIN + code)
    module = {"__name__": "__main__", "__file__": str(file)}
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out), _warnings_in(out):
        try:
            exec(compile(file.read_text(), str(file), "exec"), module)
        except BaseException as raised:
            error = raised
    if error is None:
        return Told(out.getvalue(), None, "")
    assert error.__traceback__ is not None
    shown = traceback.format_exception(type(error), error, error.__traceback__.tb_next)
    return Told(out.getvalue(), error, "".join(shown))


@contextlib.contextmanager
def _warnings_in(out: io.StringIO) -> Iterator[None]:
    """Where nobody listens to the log the run prints its warnings; pytest listens."""
    handler = logging.StreamHandler(out)
    handler.setLevel(logging.WARNING)
    logging.getLogger().addHandler(handler)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            yield
    finally:
        logging.getLogger().removeHandler(handler)
        for each in caught:
            out.write(warnings.formatwarning(each.message, each.category, each.filename, each.lineno))


def check(row: Mistake, place: Path) -> Told:
    """Play a mistake, and hold what is said against its row."""
    told = play(row.code, place)
    kind = None if told.error is None else type(told.error).__name__
    assert kind == row.raises, told.text or told.printed
    said, at = told.text or told.printed, 0
    for words in row.says:
        at = said.find(words, at)
        assert at >= 0, f"{words!r} is not said, or not in its place:\n{said}"
    count = len(told.text.splitlines())
    assert count <= row.lines, f"{count} lines, at most {row.lines}:\n{told.text}"
    return told


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where a script lies and runs; its trials run in this process, unless it says otherwise."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TUNE_RESULT_DIR", str(tmp_path / "results"))
    default.use(InlineExecutor)
    yield tmp_path
    default.use(None)
