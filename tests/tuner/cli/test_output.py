"""Tables and values of the command line, as plain text."""

from __future__ import annotations

import argparse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.cli import output, parser

CELLS = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=30)


@given(st.integers(1, 6).flatmap(lambda n: st.lists(st.lists(CELLS, min_size=n, max_size=n), max_size=5)), st.data())
def test_a_table_is_never_wider_than_it_may_be(rows: list[list[str]], data: st.DataObject) -> None:
    columns = [f"column{number}" for number in range(len(rows[0]) if rows else 1)]
    width = data.draw(st.integers(10, 120))
    lines = output.table(columns, rows, width=width, first=columns[-1:]).splitlines()
    shown = lines[: len(rows) + 1]
    assert len(shown) == len(rows) + 1 and max(map(len, shown)) <= width
    whole = output.table(columns, rows).splitlines()
    assert [line.split() for line in whole[1:]] == rows, "without a limit nothing is cut"


@pytest.mark.parametrize(
    ("thing", "text"),
    [(None, "-"), (0.123456789, "0.12346"), ({}, "-"), ({"a": 1, "b": {"c": None}}, "a=1 b=c=-"), ("x", "x")],
)
def test_values_are_short_and_on_one_line(thing: object, text: str) -> None:
    assert output.value(thing) == text


def test_a_newline_takes_no_table_apart() -> None:
    assert "\n" not in output.value("one\ntwo\x1b[2J") and "\x1b" not in output.value("one\ntwo\x1b[2J")


@given(st.lists(st.lists(CELLS, min_size=1, max_size=20), max_size=4), st.integers(40, 120))
def test_prose_breaks_between_words_and_loses_none(lines: list[list[str]], width: int) -> None:
    text = "\n".join(f"  {' '.join(words)}" for words in lines)
    wrapped = output.wrapped(text, width)
    assert wrapped.split() == text.split() and all(len(line) <= width for line in wrapped.split("\n"))
    assert output.wrapped(text, None) == text


def test_every_help_fits_into_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    (verbs,) = (action for action in parser()._actions if isinstance(action, argparse._SubParsersAction))
    assert len(verbs.choices) > 20
    wide = [line for verb in verbs.choices.values() for line in verb.format_help().splitlines() if len(line) > 80]
    assert not wide


def test_what_json_has_not_is_tagged() -> None:
    assert '"$": "float"' in output.as_json({"a": float("nan")})
