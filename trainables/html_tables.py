"""Small tables of HTML, for what a notebook shows of results. Every name and value is text, whatever is in it."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trainables.automatic import DONE, TIME_TOTAL_S, TRAINING_ITERATION, AutomaticKeys
from trainables.printable import one_line
from trainables.result_history import flatten

ROWS = 10
"""Lines of a table at most."""
CELL = 60
"""Characters of a value at most."""


def cell(value: Any, room: int = CELL) -> str:
    """
    >>> cell(0.123456789), cell(None), cell("<b>"), cell("x" * 70, room=5)
    ('0.12346', '', '&lt;b&gt;', 'xxxx…')
    """
    if value is None:
        return ""
    try:
        said = f"{value:.5g}" if type(value) is float else one_line(str(value))
    except Exception as error:  # a user's own __str__
        said = f"({type(error).__name__} in __str__)"
    return html.escape(said if len(said) <= room else said[: room - 1] + "…")


def table(header: Sequence[Any], rows: Iterable[Sequence[Any]]) -> str:
    """Rows below a header; numbers stand on the right."""
    names = "".join(f"<th>{cell(name, 30)}</th>" for name in header)
    body = "".join(f"<tr>{''.join(map(_td, row))}</tr>" for row in rows)
    return f"<table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>"


def facts(title: str, found: Mapping[str, Any]) -> str:
    """What there is to say about one thing, a line each; None is left out, a mapping is `key=value, ...`."""
    lines = "".join(
        f'<tr><th style="text-align: left">{cell(name)}</th><td style="text-align: left">{_said(value)}</td></tr>'
        for name, value in found.items()
        if value is not None
    )
    return f"<div><b>{cell(title, 120)}</b></div><table><tbody>{lines}</tbody></table>"


def told(result: Mapping[str, Any] | None) -> dict[str, Any]:
    """Of a result what its trial reported, then how far it is."""
    flat = flatten({key: value for key, value in (result or {}).items() if key != "config"})
    automatic = {*AutomaticKeys().complete({})}
    own = {key: value for key, value in flat.items() if key not in automatic}
    return own | {key: flat[key] for key in (TRAINING_ITERATION, TIME_TOTAL_S, DONE) if key in flat}


def _td(value: Any) -> str:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return f'<td style="text-align: {"right" if number else "left"}">{cell(value)}</td>'


def _said(value: Any) -> str:
    if not isinstance(value, Mapping):
        return cell(value, 300)
    shown = [f"{cell(key)}={cell(each, 40)}" for key, each in list(value.items())[:ROWS]]
    return ", ".join([*shown, f"+{len(value) - ROWS}"] if len(value) > ROWS else shown)
