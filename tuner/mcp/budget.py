"""How much agents have used of what they may use, as the journals of their experiments say."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tuner.clock import Clock
from tuner.error import ToolError
from tuner.experiment.hostile import UNREADABLE
from tuner.experiment.liveness import Liveness
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.reader import is_experiment
from tuner.experiment.trial import Trial
from tuner.mcp.ledger import Ledger, Limits, StartRecord
from tuner.orders.mailbox import Letter, Mailbox
from tuner.orders.order import SetOrder, encode
from tuner.orders.settable import NUM_SAMPLES
from tuner.ui.live_experiment import LiveExperiment
from tuner.ui.picture import Picture
from tuner.ui.views.limits import spent_s

_SET = encode(SetOrder(NUM_SAMPLES, 1)).partition(b",")[0]
"""With what every order begins that sets something, as it is encoded."""
_ORDER = re.compile(r"mcp-[0-9a-f]{24}-(\d{1,15})")


def begin_of(order_id: str) -> str:
    """What the id of an order begins with in the journal, by what an agent calls it."""
    return f"mcp-{hashlib.sha256(order_id.encode()).hexdigest()[:24]}-"


def trials_of(order_id: str) -> int | None:
    """How many trials an order counts for; None: it is none of an agent."""
    found = _ORDER.fullmatch(order_id)
    return None if found is None else int(found[1])


@dataclass(frozen=True)
class Spent:
    """What is used."""

    trials: int = 0
    hours: float = 0.0
    bytes: int = 0

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.trials + other.trials, self.hours + other.hours, self.bytes + other.bytes)


class AgentBudget:
    """What agents may use, and have used.

    Args:
        ledgers: where all that counts is recorded.
        opened: the experiment of a directory, to be looked at.
    """

    def __init__(
        self, limits: Limits, ledgers: Sequence[Ledger], opened: Callable[[Path], LiveExperiment], clock: Clock
    ) -> None:
        self.limits, self._clock, self._opened = limits, clock, opened
        self.ledgers = sorted(ledgers, key=lambda ledger: str(ledger.directory))

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else counts and begins anything meanwhile."""
        with ExitStack() as stack:
            for ledger in self.ledgers:
                stack.enter_context(ledger.locked())
            yield

    def spent(self) -> Spent:
        """All that counts. Raises ToolError where that cannot be known."""
        total = Spent()
        for ledger in self.ledgers:
            records = {record.name: record for record in ledger.records()}
            for name in dict.fromkeys([*records, *ledger.ordered()]):
                total += self._of(ledger.storage / name, records.get(name))
        return total

    def _of(self, root: Path, record: StartRecord | None) -> Spent:
        if not is_experiment(ExperimentPaths(root)):
            return Spent() if record is None else Spent(record.trials or 0)
        live = self._opened(root)
        try:
            waiting = Mailbox(root).waiting()  # before the journal: none is in neither
            live.look()
            with live.lock:
                return _counted(live, live.picture, waiting, record, self._clock.time())
        except UNREADABLE as error:
            raise ToolError(f"what is used cannot be counted: {root.name} cannot be read") from error

    def check(self, trials: int, *, unlimited: bool = False) -> None:
        """Raise ToolError where so many more trials, or any more training, would be beyond it.

        Args:
            unlimited: there would be no end of them.
        """
        limits = self.limits
        if limits == Limits():
            return
        spent = self.spent()
        if limits.trials is not None and (unlimited or spent.trials + trials > limits.trials):
            wanted = "without an end" if unlimited else f"{trials:,} more"
            raise ToolError(
                f"the budget has {limits.trials:,} trials, of which {spent.trials:,} are used: {wanted} would be "
                "beyond it. Only whoever started `tuner mcp` can raise it"
            )
        over = self.overspent(spent)
        if over:
            raise ToolError(f"{over}. Only whoever started `tuner mcp` can raise it")

    def overspent(self, spent: Spent) -> str | None:
        """Which part of it, but for trials, is used up; None: none."""
        limits = self.limits
        if limits.hours is not None and spent.hours >= limits.hours:
            return f"the budget has {limits.hours:g} hours of training, and {spent.hours:.2f} are used"
        if limits.bytes is not None and spent.bytes >= limits.bytes:
            return f"the budget has {limits.bytes:,} bytes of checkpoints, and {spent.bytes:,} are kept"
        return None

    def told(self) -> dict[str, Any]:
        """Used and allowed, as agents read it."""
        spent = self.spent()
        return {
            "trials": {"used": spent.trials, "of": self.limits.trials},
            "hours": {"used": round(spent.hours, 3), "of": self.limits.hours},
            "bytes": {"used": spent.bytes, "of": self.limits.bytes},
        }


def _counted(
    live: LiveExperiment, picture: Picture, waiting: Sequence[Letter], record: StartRecord | None, now: float
) -> Spent:
    state, table = picture.state, picture.table
    made = {order_id: trial.trial_id for order_id, trial in state.made_for.items()}
    ordered = raised = 0
    for order_id, body, refused in _orders(picture, waiting):
        number = trials_of(order_id)
        if number is None or refused:
            continue
        if body.startswith(_SET):
            raised += number
        else:
            ordered += number
    rows = [table.row_of[made[one]] for one in made if trials_of(one) is not None and made[one] in table.row_of]
    trials = ordered + raised
    if record is not None:
        theirs = {made[one] for one in made if trials_of(one) is None}
        rows = [row for row, trial_id in enumerate(table.ids) if trial_id not in theirs]
        searched = len(table) - len(made)
        planned = searched if record.trials is None else record.trials + raised
        trials = ordered + (min(planned, searched) if state.run_ended == "finished" else planned)
    return Spent(trials, _hours(live, picture, rows, now), int(np.array(table.integers["bytes"])[rows].sum()))


def _orders(picture: Picture, waiting: Sequence[Letter]) -> Iterator[tuple[str, bytes, bool]]:
    """(id, order, whether it is refused)."""
    known = picture.state.orders
    for order_id, record in known.items():
        yield order_id, bytes(record.order), record.state == "refused"
    yield from ((letter.id, letter.body, False) for letter in waiting if letter.id not in known)


def _hours(live: LiveExperiment, picture: Picture, rows: Sequence[int], now: float) -> float:
    """In which these trials have trained."""
    table = picture.table
    if not rows:
        return 0.0
    began, ended, rested = (
        np.array(values)[list(rows)] for values in (table.floats["started_at"], table.floats["ended_at"], table.rested)
    )
    seconds = ended - began - rested
    total = float(np.nansum(np.maximum(seconds, 0)))
    lives = live.driver is not None and live.driver.liveness in (Liveness.RUNNING, Liveness.UNKNOWN)
    wanted = set(rows)
    for trial in picture.state.unfinished:
        if trial.started_at is not None and table.row_of.get(trial.trial_id) in wanted:
            until = now if lives and trial.status == Trial.RUNNING else trial.last_heard_of or trial.started_at
            total += spent_s(trial, until)
    return total / 3600
