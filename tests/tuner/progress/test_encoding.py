"""Outputs whose encoding lacks characters: nothing raises, nothing vanishes, and what fits a width still does."""

from __future__ import annotations

import io
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from tuner.cli import output
from tuner.progress.encoding import EncodableStream, drawable, escaped
from tuner.progress.run_view import HeadLine, RunView
from tuner.progress.screen import PlainScreen, Status, TerminalScreen
from tuner.progress.table import TrialTable
from tuner.progress.trial_rows import TrialRow

ENCODINGS = st.sampled_from(["ascii", "latin-1", "cp1252", "utf-8"])
WORDS = st.text(st.characters(exclude_categories=["C", "Z", "M"]), min_size=1, max_size=30)


def terminal(encoding: str, columns: int) -> tuple[TerminalScreen, io.BytesIO]:
    raw = io.BytesIO()
    stream = EncodableStream(io.TextIOWrapper(raw, encoding, write_through=True))
    return TerminalScreen(Console(file=stream, width=columns, height=40)), raw  # type: ignore[arg-type]


@given(st.text(), ENCODINGS)
def test_every_text_can_be_written(text: str, encoding: str) -> None:
    for made in (escaped(text, encoding), drawable(text, encoding)):
        made.encode(encoding)
        assert made == text or escaped(text, encoding) != text


@given(WORDS, WORDS, WORDS, st.floats(0, 1), st.integers(20, 120), ENCODINGS)
def test_a_view_is_no_wider_than_its_terminal(
    name: str, value: str, why: str, share: float, columns: int, encoding: str
) -> None:
    row = TrialRow("0", "0.5", "1", "1 s", "done", why, {name: value}, {value: name})
    screen, raw = terminal(encoding, columns)
    screen.final(RunView(share, [HeadLine(f"best {name}"), HeadLine(why)], [row], [row], metric="loss"))
    for line in raw.getvalue().decode(encoding).split("\n"):
        assert cell_len(line) <= columns


def test_tables_of_reporters_and_lines_are_escaped() -> None:
    status = Status(["né"], TrialTable(["ü"], [["☃"]]))
    screen, raw = terminal("ascii", 80)
    screen.line("é begins")
    screen.show(status)
    screen.final(status)
    assert all(each in raw.getvalue() for each in (b"\\xe9 begins", b"n\\xe9", b"\\xfc", b"\\u2603"))
    lines = io.TextIOWrapper(plain := io.BytesIO(), "latin-1", write_through=True)
    PlainScreen(lines).final(status)
    assert plain.getvalue().decode("latin-1") == "ü\n\\u2603\nné\n"


def test_without_any_output_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    PlainScreen().line("é")
    PlainScreen().final(Status(["é"], TrialTable([], [])))
    output.say("é")
