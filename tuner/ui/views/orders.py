"""What users have ordered, as columns; and an order that a page gives."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from tuner.error import OrderError, SettingError
from tuner.experiment.hostile import UNREADABLE
from tuner.experiment.hostile import said as in_words
from tuner.experiment.order_records import OrderRecord
from tuner.orders.giving import give
from tuner.orders.mailbox import Mailbox
from tuner.orders.order import check_id, parse
from tuner.ui.seen import Seen

WAIT_S = 1.0
"""So long an order's answer is waited for; what comes later is in the stream."""
_NAMES = ("id", "order", "word", "trial", "at_", "state", "why", "answered_at")


def orders(seen: Seen) -> dict[str, Any]:
    """All of them: the oldest first, then those that nobody has taken up."""
    records = seen.picture.state.orders
    columns = columns_of(records.items())
    if seen.at is None and seen.live.source.is_local:
        for letter in Mailbox(seen.picture.root).waiting():
            if letter.id not in records:
                _add(columns, letter.id, letter.body, None, "waiting", "", None)
    return {**seen.head, **columns}


def columns_of(records: Iterable[tuple[str, OrderRecord]]) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {name: [] for name in _NAMES}
    for order_id, record in records:
        _add(columns, order_id, bytes(record.order), record.at, record.state, record.why, record.answered_at)
    return columns


def _add(columns: dict[str, list[Any]], order_id: str, body: bytes, *others: Any) -> None:
    try:
        order = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        order = None
    plain = order if isinstance(order, dict) else {}
    values = (order_id, plain, str(plain.get("order", "?")), str(plain.get("trial", "")), *others)
    for name, value in zip(_NAMES, values, strict=True):
        columns[name].append(value)


def changed_orders(seen: Seen, seq: int) -> dict[str, list[Any]]:
    """Those that facts after that one are about."""
    records = seen.picture.state.orders
    changed = seen.picture.orders_since(seq)
    return columns_of((order_id, records[order_id]) for order_id in changed if order_id in records)


def give_order(place: str, body: bytes) -> tuple[int, dict[str, Any]]:
    """Give what a page has sent, as the command line would: (HTTP status, the answer as its file would have it).

    Args:
        place: the experiment's directory, or the URI of its replica.
    """
    try:
        given = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        given = None
    if not isinstance(given, dict):
        return 400, _refused(None, 'an order is JSON such as {"order": "stop", "trial": "ab12_00003"}')
    order_id, if_dead = given.pop("id", None), given.pop("if_dead", "refuse")
    if order_id is not None and not isinstance(order_id, str):
        return 400, _refused(None, "id is a text of 8 to 64 characters of A-Z a-z 0-9 -")
    try:
        parse(msgspec.json.encode(given))
        if order_id is not None:
            check_id(order_id)
    except (OrderError, SettingError) as error:
        return 400, _refused(order_id, str(error))
    try:
        order = give(place, given, order_id=order_id, if_dead=if_dead)
        order.wait(WAIT_S)
        said = order.answer
    except (OrderError, SettingError) as error:
        return 409, _refused(order_id, str(error))
    except UNREADABLE as error:
        return 503, _refused(order_id, in_words(error))
    return 200, {"id": said.id, "state": said.state.value, "why": said.why}


def _refused(order_id: str | None, why: str) -> dict[str, Any]:
    return {"id": order_id, "state": "refused", "why": why}
