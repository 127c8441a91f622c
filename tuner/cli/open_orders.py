"""The orders of an experiment that are not done yet, for `tuner show`."""

from __future__ import annotations

import json
from pathlib import Path

from trainables.places import is_elsewhere
from tuner.cli import output
from tuner.experiment.state import ExperimentState
from tuner.orders.mailbox import Mailbox
from tuner.orders.order import in_words

SHOWN = 5


def lines_of(address: str, state: ExperimentState) -> list[str]:
    """One line, or none: what waits for a driver, and what was taken up and has had no effect yet."""
    taken = [bytes(record.order) for record in state.orders.values() if record.state == "taken"]
    letters = [] if is_elsewhere(address) else Mailbox(Path(address)).waiting()
    waiting = [letter.body for letter in letters if letter.id not in state.orders]
    told = [f"{_words(body)} (waits for a driver)" for body in waiting] + [f"{_words(body)} (taken)" for body in taken]
    if not told:
        return []
    more = f" and {len(told) - SHOWN} more" if len(told) > SHOWN else ""
    return [f"ordered: {', '.join(told[:SHOWN])}{more}"]


def _words(body: bytes) -> str:
    try:
        return output.value(in_words(json.loads(body)))[:60]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return "what is no order"
