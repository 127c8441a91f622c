"""Orders that need nobody who trains: notes, pins and tags. They are facts, and done as soon as those are durable."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Union

import msgspec

from tuner.error import OrderError
from tuner.experiment import events as ev
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial
from tuner.experiment.trials import find_trial
from tuner.orders import order as words
from tuner.orders import pins
from tuner.orders.mailbox import Letter, Mailbox, OrderAnswer, OrderState
from tuner.orders.pins import Facts

LastingOrder = Union[words.NoteOrder, words.PinOrder, words.UnpinOrder, words.TagOrder]
_KINDS = (words.NoteOrder, words.PinOrder, words.UnpinOrder, words.TagOrder)
LASTING = tuple(word for word, kind in words.WORDS.items() if kind in _KINDS)
"""Their words."""
LATER = "; the settings are applied to it by the next run"


def is_lasting(order: words.OrderBody) -> bool:
    """Whether it can be done without a driver's life."""
    return isinstance(order, _KINDS)


def named(state: ExperimentState, given: str) -> Trial:
    """The trial that an order is about. Raises OrderError."""
    found = find_trial(state.trials, given)
    if found is None:
        count = len(state.trials)
        raise OrderError(f"there is no trial {given!r:.80}; there are {count}, by id, name or number from 0")
    return found


def settle(facts: Facts, letters: list[Letter], at: float) -> list[OrderAnswer]:
    """Do what these letters order, and what an earlier driver had taken up and not done; other orders stay.

    Returns the answers, which hold when the facts are durable.

    Args:
        at: seconds since the epoch.
    """
    answers = []
    for order_id, order in [*_taken(facts.state), *_lasting(letters)]:
        known = facts.state.orders.get(order_id)
        if known is None:
            facts.add(ev.OrderTaken(order_id, msgspec.Raw(words.encode(order)), at))
        if known is None or known.state == "taken":
            _do(facts, order_id, order, at)
        record = facts.state.orders[order_id]
        answers.append(OrderAnswer(order_id, OrderState(record.state), record.why))
    return answers


def hand_over(mailbox: Mailbox, answers: list[OrderAnswer]) -> None:
    """The facts are durable: answer, then remove what was answered. Raises OSError."""
    for answer in answers:
        mailbox.reply(answer)
        mailbox.done_with(answer.id)


def _taken(state: ExperimentState) -> Iterator[tuple[str, LastingOrder]]:
    """What was taken up, and has no answer yet."""
    taken = ((each, bytes(record.order)) for each, record in state.orders.items() if record.state == "taken")
    return _lasting([Letter(order_id, body) for order_id, body in taken])


def _lasting(letters: list[Letter]) -> Iterator[tuple[str, LastingOrder]]:
    for letter in letters:
        with contextlib.suppress(OrderError):  # the next driver says so
            order = words.parse(letter.body)
            if isinstance(order, _KINDS):
                yield letter.id, order


def _do(facts: Facts, order_id: str, order: LastingOrder, at: float) -> None:
    try:
        trial, why = named(facts.state, order.trial), ""
        match order:
            case words.NoteOrder():
                facts.add(ev.TrialNoted(trial.trial_id, order.text, at, order_id))
                return  # which is its answer, too
            case words.UnpinOrder():
                _, why = pins.unpin(facts, trial, order.iteration)() or (True, "")
                why += LATER
            case _:
                _, why = pins.pin(facts, trial, order)() or (True, "")
    except OrderError as error:
        facts.add(ev.OrderAnswered(order_id, at, False, str(error)))
    else:
        facts.add(ev.OrderAnswered(order_id, at, True, why))
