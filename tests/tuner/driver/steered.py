"""A driver whose parts a test holds, with a mailbox for orders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.tuner.driver.harness import DriverHarness
from tuner.orders.mailbox import Mailbox


class Steered(DriverHarness):
    """A harness with a mailbox."""

    def __init__(self, root: Path, *arguments: Any, **more: Any) -> None:
        self.mailbox = Mailbox(root)
        super().__init__(root, *arguments, mailbox=self.mailbox, **more)

    def order(self, word: str, trial: object = 0, *, order_id: str = "", **more: Any) -> str:
        order_id = order_id or f"{word}-order-{len(self.state.orders):04d}"
        about = {} if trial is None else {"trial": str(trial)}
        self.mailbox.put(order_id, json.dumps({"order": word, **about, **more}).encode())
        self.look()
        return order_id

    def look(self) -> None:
        self.loop.steering.look()
        self.turn()

    def said(self, order_id: str) -> tuple[str, str]:
        answer = self.mailbox.answer(order_id)
        assert answer is not None
        return answer.state.value, answer.why
