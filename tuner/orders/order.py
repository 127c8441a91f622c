"""What may be ordered, as values read from plain JSON: {"order": "stop", "trial": "ab12_00003"}."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import isfinite
from types import NoneType
from typing import Any, TypeVar, Union, get_args

import msgspec

from trainables.decoding import decoder, later
from trainables.validation import nearest_name
from tuner.error import OrderError
from tuner.experiment.hostile import said
from tuner.orders import settable

ALL = "all"
"""As the trial of a `stop`: every trial, and no new one is made."""
TRIAL_LENGTH = 500
"""Characters of what a trial is called: an order is kept for good."""
NOTE_LENGTH = 10_000
"""Characters of a note."""
CONFIG_DEPTH = 50
"""Dicts and lists in each other, in a config."""
_TAG = re.compile(r"[A-Za-z0-9._-]{1,60}")
_ID = re.compile(r"[A-Za-z0-9-]{8,64}")


class OrderBody(msgspec.Struct, frozen=True, tag_field="order", forbid_unknown_fields=True):
    """Base of all orders."""


class AddOrder(OrderBody, tag="add", frozen=True):
    """A trial with this config is made, beside those that the searcher suggests; what it lacks is drawn."""

    config: dict[str, Any]
    """Key, or path as "model/lr", -> value."""

    def __post_init__(self) -> None:
        _check_plain(self.config)


class ForkOrder(OrderBody, tag="fork", frozen=True, omit_defaults=True):
    """A trial is made that starts from another one's checkpoint, which `trial` and `iteration` name, or a tag."""

    trial: str = ""
    iteration: int | None = None
    tag: str = ""
    config: dict[str, Any] = {}
    """What is another value than the other trial has: key, or path as "model/lr", -> value."""

    def __post_init__(self) -> None:
        if bool(self.tag) == bool(self.trial) or bool(self.trial) != (self.iteration is not None):
            raise ValueError("a fork starts from a trial's checkpoint: it has trial and iteration, or a tag")
        _check_plain(self.config)


def _check_plain(value: Any, place: str = "config", depth: int = 0) -> None:
    """Raise ValueError for what JSON does not have, or nobody means."""
    if depth > CONFIG_DEPTH:
        raise ValueError(f"{place}: more than {CONFIG_DEPTH} dicts and lists are in each other")
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str) or not key:
                raise ValueError(f"{place}: the key {key!r:.60} is not accepted; keys are text")
            _check_plain(item, f"{place}[{key!r:.60}]", depth + 1)
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            _check_plain(item, f"{place}[{number}]", depth + 1)
    elif not isinstance(value, (str, int, float, NoneType)) or (isinstance(value, float) and not isfinite(value)):
        raise ValueError(f"{place}={value!r:.200} is not accepted; accepted are numbers, text, true, false and null")


class TrialOrder(OrderBody, frozen=True):
    """Base of those about one trial."""

    trial: str
    """Its trial_id, name, directory's name, or number."""


Body = TypeVar("Body", bound=OrderBody)


class StopOrder(TrialOrder, tag="stop", frozen=True):
    """The trial ends as if a stopper had said so; its checkpoints stay as the settings say."""


class PauseOrder(TrialOrder, tag="pause", frozen=True):
    """The trial is saved, leaves its slot, and runs no more, resumes included, until it is told to go."""


class GoOrder(TrialOrder, tag="go", frozen=True):
    """A trial that was told to pause waits for a slot again."""


class SaveOrder(TrialOrder, tag="save", frozen=True):
    """The trial saves a checkpoint at its next step (class), or is asked to (function)."""

    pin: bool = False


class PinOrder(TrialOrder, tag="pin", frozen=True):
    """Retention leaves a checkpoint alone, whatever the settings say."""

    iteration: int


class UnpinOrder(TrialOrder, tag="unpin", frozen=True):
    """Retention decides about a checkpoint again; its tags go."""

    iteration: int


class TagOrder(TrialOrder, tag="tag", frozen=True):
    """A checkpoint gets a name of its own in the experiment, and is pinned."""

    iteration: int
    tag: str

    def __post_init__(self) -> None:
        if _TAG.fullmatch(self.tag) is None:
            raise ValueError(
                f"tag={self.tag!r:.90} is not accepted; accepted are 1 to 60 characters of A-Z a-z 0-9 . _ -"
            )


class RetryOrder(TrialOrder, tag="retry", frozen=True):
    """A failed trial is tried again, from its newest checkpoint."""


class NoteOrder(TrialOrder, tag="note", frozen=True):
    """A text is kept with the trial, and shown with it."""

    text: str

    def __post_init__(self) -> None:
        if not self.text.strip() or len(self.text) > NOTE_LENGTH:
            raise ValueError(f"text must have 1 to {NOTE_LENGTH:,} characters")


class SetOrder(OrderBody, tag="set", frozen=True, omit_defaults=True):
    """A setting of the run, or what one of its trials gets, is another from now on, resumes included."""

    name: str
    """Of the run "num_samples", "max_concurrent" or "time_budget_s"; of a trial "resources"."""
    value: Any
    """Of resources {"cpu": 2}: what is not named stays."""
    trial: str | None = None

    def __post_init__(self) -> None:
        name, value = settable.checked(self.name, self.value, self.trial)
        msgspec.structs.force_setattr(self, "name", name)
        msgspec.structs.force_setattr(self, "value", value)


AnyOrder = Union[
    StopOrder,
    PauseOrder,
    GoOrder,
    SaveOrder,
    AddOrder,
    ForkOrder,
    PinOrder,
    UnpinOrder,
    TagOrder,
    RetryOrder,
    NoteOrder,
    SetOrder,
]

WORDS: dict[str, type[OrderBody]] = {str(kind.__struct_config__.tag): kind for kind in get_args(AnyOrder)}
"""Word -> the order."""
RUNNABLE = (AddOrder, ForkOrder, GoOrder, RetryOrder)
"""What gives a driver something to do."""

encode = msgspec.json.Encoder().encode


_decode: Callable[[bytes], AnyOrder] = later(AnyOrder)  # most runs are given none


def parse(data: bytes) -> AnyOrder:
    """Read an order. Raises OrderError, which names what does not fit and what is accepted."""
    try:
        order: AnyOrder = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise OrderError(f"the order is not accepted: {_problem(data, error)}") from None
    trial = getattr(order, "trial", None) or ""
    if len(trial) > TRIAL_LENGTH:
        raise OrderError(f"trial={trial!r:.60} is not accepted; a trial is called by its id, name or number")
    return order


def made(kind: type[Body], **fields: Any) -> Body:
    """An order of values that somebody gives. Raises OrderError for those that do not fit."""
    word = str(kind.__struct_config__.tag)
    decoder(kind)  # of which `convert` makes as much, unguarded
    try:
        return msgspec.convert({"order": word, **fields}, kind)
    except msgspec.ValidationError as error:
        if error.__cause__ is not None:  # of what the order itself checks
            raise OrderError(str(error.__cause__)) from None
        raise OrderError(f"{said(error)}; {word!r} has {', '.join(kind.__struct_fields__)}") from None


def _problem(data: bytes, error: Exception) -> str:
    try:
        read = msgspec.json.decode(data)
        word = read["order"]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, LookupError, TypeError):
        return f'{said(error)}; accepted is JSON such as {{"order": "stop", "trial": "ab12_00003"}}'
    if not isinstance(word, str) or word not in WORDS:
        near = nearest_name(word, WORDS) if isinstance(word, str) else None
        hint = f"; did you mean {near!r}?" if near else ""
        return f"there is no order {word!r:.60}; there are {', '.join(WORDS)}{hint}"
    wanted = ", ".join(WORDS[word].__struct_fields__)
    return f"{said(error)}; {word!r} has {wanted}"


def in_words(order: Mapping[str, Any]) -> str:
    """What is ordered, short, for people: "stop 3", "fork 3@40 lr=0.1", "set num_samples=20"."""
    about = order.get("trial") or order.get("tag") or ""
    at = f"@{order['iteration']}" if order.get("iteration") is not None else ""
    pairs = order.get("config") or {}
    if "name" in order:
        value = order["value"]
        pairs = value if isinstance(value, dict) else {order["name"]: value}
    changes = [f"{name}={short(value)}" for name, value in pairs.items()]
    return " ".join([str(order["order"]), *([f"{about}{at}"] if about else []), *changes])


def short(value: Any) -> str:
    """A value as people read it; None is "none"."""
    return "none" if value is None else f"{value:.5g}" if isinstance(value, float) else str(value)


def check_id(given: str) -> str:
    """An order's id as it is a file's name. Raises OrderError."""
    if not isinstance(given, str) or not is_id(given):
        raise OrderError(f"id={given!r:.90} is not accepted; accepted are 8 to 64 characters of A-Z a-z 0-9 -")
    return given


def is_id(given: str) -> bool:
    """Whether a file with that name (and .json) is an order's."""
    return _ID.fullmatch(given) is not None
