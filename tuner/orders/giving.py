"""Giving an order to the driver of an experiment, and hearing what came of it."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from trainables import tagged
from tuner.clock import SystemClock
from tuner.error import ExperimentDamagedError, OrderError, OwnedElsewhereError, TuneError, require
from tuner.experiment.liveness import Liveness, last_driver
from tuner.experiment.paths import ExperimentPaths, is_elsewhere
from tuner.experiment.reader import load_state
from tuner.orders.lasting import is_lasting
from tuner.orders.mailbox import Letter, Mailbox, OrderAnswer, OrderState
from tuner.orders.order import AnyOrder, OrderBody, check_id, encode, parse
from tuner.orders.standstill import check_unattended, is_copy

IF_DEAD = ("refuse", "wait")
POLL_S = 0.1
PATIENCE_S = 15.0
"""So long somebody else who has just claimed the experiment is given to take an order up."""
_LIVENESS_EVERY_S = 2.0


class GivenOrder:
    """An order, and what has become of it.

    Args:
        root: the experiment's directory.
    """

    def __init__(self, root: Path, order_id: str) -> None:
        self.id = order_id
        self._paths, self._mailbox = ExperimentPaths(root), Mailbox(root)

    @property
    def answer(self) -> OrderAnswer:
        """What was said last: `id`, `state` and `why`."""
        said = self._mailbox.answer(self.id)
        if said is not None:
            return said
        if self._mailbox.is_waiting(self.id):
            return OrderAnswer(self.id, OrderState.WAITING)
        known = load_state(self._paths).orders.get(self.id)  # its answer is older than a day
        if known is not None:
            return OrderAnswer(self.id, OrderState(known.state), known.why)
        return self._mailbox.answer(self.id) or OrderAnswer(self.id, OrderState.REFUSED, "it was taken back")

    @property
    def state(self) -> str:
        """ "waiting", "taken", "done" or "refused"."""
        return self.answer.state.value

    @property
    def why(self) -> str:
        """What was found, or why it was refused."""
        return self.answer.why

    def wait(self, timeout_s: float | None = None) -> str:
        """Wait until the order is done or refused, or nobody is there who could do it; returns `state`.

        Args:
            timeout_s: seconds; None: as long as a driver lives.
        """
        began = looked = time.monotonic()
        while (state := self.answer.state) in (OrderState.WAITING, OrderState.TAKEN):
            now = time.monotonic()
            if timeout_s is not None and now - began >= timeout_s:
                break
            if now - looked >= _LIVENESS_EVERY_S:
                looked = now
                if last_driver(self._paths, SystemClock().time()).liveness in (Liveness.ENDED, Liveness.KILLED):
                    return self.state  # it may have answered with its last breath
            time.sleep(POLL_S)
        return state.value

    def __repr__(self) -> str:
        said = self.answer
        return f"<order {said.id}: {said.state.value}{': ' if said.why else ''}{said.why}>"


class AnsweredOrder(GivenOrder):
    """An order that was done by whoever gave it, where no mailbox keeps the answer."""

    def __init__(self, answer: OrderAnswer) -> None:
        self.id, self._answer = answer.id, answer

    @property
    def answer(self) -> OrderAnswer:
        return self._answer


def new_id() -> str:
    """The id of an order for which the caller gives none."""
    return uuid.uuid4().hex


def give(
    place: str | PathLike[str],
    order: OrderBody | Mapping[str, Any],
    *,
    order_id: str | None = None,
    if_dead: str = "refuse",
) -> GivenOrder:
    """Give an order to the driver of an experiment; notes, pins and tags are done at once where none lives.

    Args:
        place: the experiment's directory; or the URI of a copy, where notes, pins and tags are done too.
        order: as in JSON: {"order": "stop", "trial": "3"}.
        order_id: 8 to 64 characters of A-Z a-z 0-9 -: the same id again is the same order, and has its answer;
            None: a new one.
        if_dead: "refuse" when no driver runs that could take it, or "wait" for the next one.

    Raises:
        OrderError: the order is not accepted, or there is no driver, or what it is about has ended.
    """
    require(if_dead in IF_DEAD, "if_dead", if_dead, f"accepted are {', '.join(map(repr, IF_DEAD))}")
    try:
        body = encode(order) if isinstance(order, OrderBody) else tagged.dumps(dict(order))
    except (TypeError, ValueError, ExperimentDamagedError) as error:
        raise OrderError(f"the order {order!r:.200} is no plain JSON: {error}") from error
    letter = Letter(new_id() if order_id is None else check_id(order_id), body)
    parsed = parse(body)
    if is_elsewhere(place) or is_copy(Path(place)):
        return _given_elsewhere(os.fspath(place), parsed, letter)
    given = GivenOrder(Path(place), letter.id)
    last = last_driver(ExperimentPaths(Path(place)), SystemClock().time())
    if last.liveness in (Liveness.ENDED, Liveness.KILLED) or (last.record is not None and last.record.brief):
        if is_lasting(parsed):
            return _done_at_once(Path(place), given, letter, waits=if_dead == "wait")
        check_unattended(Path(place), parsed, last, waits=if_dead == "wait")
    Mailbox(Path(place)).put(letter.id, body)
    return given


def _given_elsewhere(uri: str, order: AnyOrder, letter: Letter) -> GivenOrder:
    from tuner.orders import unattended

    if not is_lasting(order):
        raise unattended.refusal_elsewhere(uri)
    return AnsweredOrder(unattended.attend_elsewhere(uri, letter, SystemClock()))


def _done_at_once(root: Path, given: GivenOrder, letter: Letter, *, waits: bool) -> GivenOrder:
    """Own the experiment briefly and do it; or have whoever was faster do it.

    Args:
        waits: where the experiment cannot be owned now, the order waits for the next driver.
    """
    from tuner.orders import unattended

    mailbox = Mailbox(root)
    mailbox.put(letter.id, letter.body)
    until = time.monotonic() + PATIENCE_S
    while mailbox.is_waiting(letter.id) and time.monotonic() < until:
        try:
            unattended.attend(root, SystemClock())
        except OwnedElsewhereError:
            given.wait(POLL_S)  # another such owner, or a driver that has just started, and takes it up
        except TuneError as error:
            if waits:
                break
            mailbox.withdraw(letter.id)
            if mailbox.answer(letter.id) is None:
                raise OrderError(str(error)) from error
    return given
