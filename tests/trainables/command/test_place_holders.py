"""Place holders: what they take from a config, and that a value is one argument whatever it holds."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainables.command.place_holders import fields_of, filled, parse
from trainables.errors import InvalidSettingError

VALUES = {
    "lr": 0.1,
    "optimizer": {"name": "adam", "betas": [0.9, 0.99]},
    "flag": True,
    "nothing": None,
    "checkpoint": None,
}


def words(command: Any, shell: bool = False, **more: Any) -> list[str]:
    return filled(parse(command, shell=shell), {**VALUES, **more}, shell=shell)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("a --lr {lr}", ["a", "--lr", "0.1"]),
        ("a --lr={lr:.3e} '{optimizer[name]} x'", ["a", "--lr=1.000e-01", "adam x"]),
        ("a {optimizer[betas][1]} {optimizer[betas]}", ["a", "0.99", "[0.9, 0.99]"]),
        ("a {flag} {nothing} {{x}}", ["a", "true", "null", "{x}"]),
        ("a [[--from {checkpoint}]] b", ["a", "b"]),
        ("[[ -f x ]] {lr}", ["[[", "-f", "x", "]]", "0.1"]),
        (["a b", "{lr}"], ["a b", "0.1"]),
        (["a", "[[--from", "{checkpoint}]]", "b"], ["a", "b"]),
    ],
)
def test_what_a_command_becomes(command: Any, expected: list[str]) -> None:
    assert words(command) == expected


def test_the_optional_part_stands_where_there_is_a_checkpoint() -> None:
    assert words("a [[--from {checkpoint} --strict]] b", checkpoint="/c d") == ["a", "--from", "/c d", "--strict", "b"]
    assert words(["a", "[[", "--from", "{checkpoint}", "]]"], checkpoint="/c") == ["a", "--from", "/c"]
    assert words("a [[--from {checkpoint}]] | b", shell=True) == ["a  | b"]
    assert words("a [[--from {checkpoint}]] | b", shell=True, checkpoint="/c d") == ["a --from '/c d' | b"]


@given(st.text().filter(lambda text: "\0" not in text and not text.startswith("-")))
def test_a_value_is_one_argument_whatever_it_holds(value: str) -> None:
    assert words("p {v} --v={v} 'x {v}'", v=value) == ["p", value, f"--v={value}", f"x {value}"]


@given(st.text(alphabet=st.characters(exclude_characters="\0\r\n", exclude_categories=["Cs"])))
def test_a_shell_reads_a_value_as_one_word(value: str) -> None:
    (text,) = words("p --v={v} | q", shell=True, v=value)
    assert shlex.split(text) == ["p", f"--v={value}", "|", "q"]


@pytest.mark.parametrize(
    ("command", "more", "said"),
    [
        ("a {lr", {}, "single brace"),
        ("a {lr!r}", {}, "{lr!r}|place holder"),
        ("a {}", {}, "place holder"),
        ("a {ir}", {}, "did you mean 'lr'"),
        ("a {optimizer[nam]}", {}, "did you mean 'name'"),
        ("a {optimizer[betas][7]}", {}, "has no '7'"),
        ("a {v}", {"v": "-x"}, "--name={v}"),
        ("a {v}", {"v": object()}, "cannot be an argument"),
        ("a {v:d}", {"v": "x"}, "format 'd'"),
        ("a '{lr}", {}, "cannot be split"),
        ("a x[[--from {checkpoint}]]", {}, "between spaces"),
        ("a {checkpoint}", {}, r"\[\[ \]\]"),
        (["a", "[[--from"], {}, "never closed"),
        (["a", 3], {}, "3 is no text"),
        ("a {v}", {"v": "x\0y"}, "null character"),
    ],
)
def test_a_mistake_is_named(command: Any, more: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidSettingError, match=said):
        words(command, **more)


def test_numbers_below_zero_are_no_options() -> None:
    assert words("a {v} {w}", v=-0.5, w=-3) == ["a", "-0.5", "-3"]


def test_fields_are_found_in_every_part() -> None:
    found = fields_of(parse("a {lr} [[--from {checkpoint}]] {optimizer[betas][0]}", shell=False))
    assert [str(field) for field in found] == ["{lr}", "{checkpoint}", "{optimizer[betas][0]}"]
