"""Giving an order to the driver of an experiment, and hearing what came of it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainables import tagged
from tuner.clock import SystemClock
from tuner.error import ExperimentDamagedError, OrderError, require
from tuner.experiment.liveness import Liveness, last_driver
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.reader import load_state
from tuner.orders.mailbox import Mailbox, OrderAnswer, OrderState
from tuner.orders.order import OrderBody, check_id, encode, parse

IF_DEAD = ("refuse", "wait")
POLL_S = 0.1
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


def give(
    root: Path, order: OrderBody | Mapping[str, Any], *, order_id: str | None = None, if_dead: str = "refuse"
) -> GivenOrder:
    """Give an order to the driver of an experiment on this disk.

    Args:
        root: the experiment's directory.
        order: as in JSON: {"order": "stop", "trial": "3"}.
        order_id: 8 to 64 characters of A-Z a-z 0-9 -: the same id again is the same order, and has its answer;
            None: a new one.
        if_dead: "refuse" when no driver runs that could take it, or "wait" for the next one.

    Raises:
        OrderError: the order is not accepted, or there is no driver.
    """
    require(if_dead in IF_DEAD, "if_dead", if_dead, f"accepted are {', '.join(map(repr, IF_DEAD))}")
    try:
        body = encode(order) if isinstance(order, OrderBody) else tagged.dumps(dict(order))
    except (TypeError, ValueError, ExperimentDamagedError) as error:
        raise OrderError(f"the order {order!r:.200} is no plain JSON: {error}") from error
    parse(body)
    given = GivenOrder(root, uuid.uuid4().hex if order_id is None else check_id(order_id))
    last = last_driver(ExperimentPaths(root), SystemClock().time())
    if if_dead == "refuse" and last.liveness in (Liveness.ENDED, Liveness.KILLED):
        raise OrderError(
            f"no driver runs {root} (the last one: {last}): --if-dead wait (if_dead='wait' in Python) has the order "
            "wait for the next start"
        )
    Mailbox(root).put(given.id, body)
    return given
