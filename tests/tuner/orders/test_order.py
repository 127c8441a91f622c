"""Orders as values: what is read from JSON, and what is refused in"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.error import OrderError
from tuner.orders.order import (
    NOTE_LENGTH,
    WORDS,
    AddOrder,
    ForkOrder,
    NoteOrder,
    OrderBody,
    SetOrder,
    StopOrder,
    TagOrder,
    check_id,
    encode,
    made,
    parse,
)


def test_an_order_is_read_as_it_was_written() -> None:
    assert parse(b'{"order": "stop", "trial": "ab_00001"}') == StopOrder("ab_00001")
    for kind in WORDS.values():
        values = {
            "iteration": 1,
            "pin": True,
            "config": {"lr": [0.1, None]},
            "name": "resources",
            "value": {"cpu": 1.0},
        }
        names = [name for name in kind.__struct_fields__ if (kind, name) != (ForkOrder, "tag")]
        made = kind(**{name: values.get(name, "1") for name in names})
        assert parse(encode(made)) == made


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "accepted is JSON such as"),
        (b"\xff", "accepted is JSON such as"),
        (b"[" * 100_000, "accepted is JSON such as"),
        (b"[1]", "accepted is JSON such as"),
        (b'{"trial": "1"}', "accepted is JSON such as"),
        (b'{"order": "stpo", "trial": "1"}', "there is no order 'stpo'.*; did you mean 'stop'"),
        (b'{"order": ["stop"], "trial": "1"}', "there is no order"),
        (b'{"order": "stop"}', "missing required field `trial`; 'stop' has trial"),
        (b'{"order": "stop", "trial": 3}', "Expected `str`"),
        (b'{"order": "stop", "trial": "3", "now": true}', "unknown field `now`"),
        (json.dumps({"order": "stop", "trial": "x" * 501}).encode(), "called by its id, name or number"),
        (b'{"order": "add"}', "missing required field `config`"),
        (b'{"order": "add", "config": {"": 1}}', "keys are text"),
        (json.dumps({"order": "add", "config": {"x": eval("[" * 60 + "]" * 60)}}).encode(), "more than 50"),
        (b'{"order": "fork", "trial": "3"}', "it has trial and iteration, or a tag"),
        (b'{"order": "fork", "trial": "3", "iteration": 1, "tag": "a"}', "it has trial and iteration, or a tag"),
        (b'{"order": "note", "trial": "3", "text": " "}', "1 to 10,000 characters"),
        (json.dumps({"order": "note", "trial": "3", "text": "x" * (NOTE_LENGTH + 1)}).encode(), "1 to 10,000"),
    ],
)
def test_what_is_not_accepted_is_said(body: bytes, said: str) -> None:
    with pytest.raises(OrderError, match=said):
        parse(body)


_json = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.binary() | _json.map(lambda value: json.dumps(value).encode()))
def test_anything_else_is_an_order_error_too(body: bytes) -> None:
    with pytest.raises(OrderError):
        parse(body)


@given(st.dictionaries(st.sampled_from(["trial", "text", "x"]), _json), st.sampled_from(sorted(WORDS)))
def test_so_is_a_word_with_other_fields(fields: dict[str, Any], word: str) -> None:
    body = json.dumps({"order": word, **fields}).encode()
    try:
        order = parse(body)
    except OrderError:
        return
    assert parse(encode(order)) == order


@pytest.mark.parametrize("bad", ["", "1234567", "a" * 65, "../../etc/passwd", "ab cd efgh", "abcdefgh.answer", "é" * 9])
def test_an_id_is_a_plain_file_name(bad: str) -> None:
    with pytest.raises(OrderError, match="8 to 64 characters"):
        check_id(bad)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1: 2}, object(), {"x": {3}}])
def test_what_json_has_not_is_no_value_of_a_config(value: Any) -> None:
    with pytest.raises(ValueError, match="accepted"):
        AddOrder({"x": value})


@pytest.mark.parametrize(
    ("kind", "fields", "said"),
    [
        (NoteOrder, {"trial": "0", "text": None}, "got `null` - at `$.text`; 'note' has trial, text"),
        (TagOrder, {"trial": "0", "iteration": 1, "tag": 3}, "got `int` - at `$.tag`"),
        (AddOrder, {"config": "lr"}, "got `str` - at `$.config`; 'add' has config"),
        (SetOrder, {"name": None, "value": 3}, "got `null` - at `$.name`"),
        (SetOrder, {"name": "num_samples", "value": 0}, "num_samples=0 is not accepted"),
    ],
)
def test_values_of_python_are_refused_by_name(kind: type[OrderBody], fields: dict[str, Any], said: str) -> None:
    with pytest.raises(OrderError, match=re.escape(said)):
        made(kind, **fields)


def test_an_id_that_is_no_text_is_refused() -> None:
    with pytest.raises(OrderError, match="id=7 is not accepted; accepted are 8 to 64 characters"):
        check_id(7)  # type: ignore[arg-type]
