"""The door by which agents come in: which experiments they see, what they may order and start, and their budget."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from tuner.clock import SystemClock
from tuner.error import ExperimentNotFoundError, ToolError
from tuner.experiment.liveness import Liveness
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.reader import is_experiment
from tuner.mcp.budget import AgentBudget, begin_of
from tuner.mcp.ledger import Ledger, Limits, StartRecord
from tuner.mcp.marked import clean, is_plain, unmarked
from tuner.mcp.starts import Request, Starts, go_on, printed
from tuner.orders import order as words
from tuner.orders.giving import GivenOrder, give
from tuner.orders.mailbox import Mailbox, OrderAnswer, OrderState
from tuner.orders.settable import NUM_SAMPLES
from tuner.ui.live_experiment import LiveExperiment
from tuner.ui.seen import Seen
from tuner.ui.served_places import Places
from tuner.ui.sources import LocalSource

ORDER_ID_LENGTH = 100
SPENDING = (words.AddOrder, words.ForkOrder, words.RetryOrder, words.GoOrder)
"""Orders after which more is trained."""


@dataclass(frozen=True)
class DoorOptions:
    """What agents may do.

    Args:
        places: experiments, and directories and URIs with experiments; none: the default storage.
        allow_orders: they may steer these.
        allow_start: config files that they may start.
        limits: what they may use in all.
    """

    places: Sequence[str] = ()
    allow_orders: bool = False
    allow_start: Sequence[str] = ()
    limits: Limits = field(default_factory=Limits)


class AgentDoor:
    """What all tools share. Raises SettingError and ExperimentNotFoundError for what is not accepted."""

    def __init__(self, how: DoorOptions, tell: Any) -> None:
        self.how, self.clock = how, SystemClock()
        self.starts = Starts(how.allow_start, self.clock)
        self.places = Places(how.places, tell=tell)
        self._counted: dict[Path, LiveExperiment] = {}
        ledgers = {ledger.storage.resolve(): ledger for ledger in (*self.places_ledgers(), *self.starts.ledgers())}
        self._ledgers = list(ledgers.values())
        self.budget = AgentBudget(how.limits, self._ledgers, self.opened, self.clock)
        self._lock = threading.Lock()
        """Of this server one call at a time begins something."""

    def places_ledgers(self) -> Iterator[Ledger]:
        """Where what is ordered in the places is recorded."""
        for folder in self.places.folders:
            yield Ledger(folder)
        for live in self.places.all():
            if live.source.is_local:
                yield Ledger(Path(live.source.place).parent)

    def close(self) -> None:
        self.places.close()

    # --- experiments ----------------------------------------------------------------------------------------

    def all(self) -> list[LiveExperiment]:
        """All that are there now, in the order of their names."""
        self._serve_started()
        return self.places.all()

    def _serve_started(self) -> None:
        """What was started is seen by who started it, also where its directory is not among the places."""
        for ledger in self.starts.ledgers():
            for record in ledger.records():
                root = ledger.storage / record.name
                if is_experiment(ExperimentPaths(root)):
                    self.places.serve(root)

    def opened(self, root: Path) -> LiveExperiment:
        """The experiment of a directory, to be counted; agents do not see it where it is not among the places."""
        found = self.places.served(root) or self._counted.get(root)
        if found is None:
            found = self._counted[root] = LiveExperiment(root.name, LocalSource(ExperimentPaths(root)), self.clock)
        return found

    def called(self, live: LiveExperiment) -> str:
        """The name that agents give back: that of its directory, or a number made of it where that is no plain word."""
        return live.name if is_plain(live.name) else _alias(live.name)

    def experiment(self, given: str) -> LiveExperiment:
        """The experiment that an agent means. Raises ToolError."""
        wanted = unmarked(given)
        try:
            return self.places.get(wanted)
        except ExperimentNotFoundError:
            pass
        for live in self.all():
            if wanted in (live.name, self.called(live)):
                return live
        raise ToolError(f"there is no experiment {clean(wanted)!r:.100} here; `experiments` lists those that there are")

    @contextmanager
    def looked_at(self, live: LiveExperiment) -> Iterator[Seen]:
        """An experiment as it is now, which stays so meanwhile."""
        live.look()
        with live.lock:
            yield Seen(live, live.picture, takes_orders=self.how.allow_orders)

    # --- what was started -----------------------------------------------------------------------------------

    def start(self, request: Request) -> tuple[StartRecord, Path, bool]:
        """As `Starts.start`."""
        with self._lock:
            return self.starts.start(request, self.budget, self.opened)

    def all_begun(self) -> list[str]:
        """What was started and has no journal yet, by the name of the experiment that it becomes."""
        records = [(ledger, record) for ledger in self.starts.ledgers() for record in ledger.records()]
        return [one.name for ledger, one in records if not is_experiment(ExperimentPaths(ledger.storage / one.name))]

    def begun(self, given: str) -> tuple[Ledger, StartRecord] | None:
        """What was started and has no journal yet, by the name of the experiment that it becomes."""
        for ledger in self.starts.ledgers():
            record = ledger.record(unmarked(given)) if "/" not in given else None
            if record is not None and not is_experiment(ExperimentPaths(ledger.storage / record.name)):
                return ledger, record
        return None

    def record_of(self, live: LiveExperiment) -> tuple[Ledger, StartRecord] | None:
        """By which an experiment was started by this door; None: it was not, or may not be any more."""
        if not live.source.is_local:
            return None
        root = Path(live.source.place)
        for ledger in self.starts.ledgers():
            if ledger.storage.resolve() == root.parent.resolve() and (record := ledger.record(root.name)) is not None:
                return (ledger, record) if record.config in self.starts.configs else None
        return None

    def printed(self, given: str) -> str | None:
        """The end of what the drivers have printed of an experiment that was started; None: it was not."""
        for ledger in self.starts.ledgers():
            if "/" not in given and ledger.record(unmarked(given)) is not None:
                return printed(ledger, unmarked(given))
        return None

    # --- orders ---------------------------------------------------------------------------------------------

    def order(self, live: LiveExperiment, order: Any, order_id: str) -> GivenOrder:
        """Give an order, or find the one that has this id. Raises ToolError, OrderError.

        Args:
            order: as JSON.
            order_id: as the agent calls it.
        """
        if not self.how.allow_orders:
            raise ToolError("this server only reads: tuner mcp --allow-orders lets agents steer experiments")
        parsed = words.parse(msgspec.json.encode(order))
        with self._lock:
            if not live.source.is_local:
                return self._given(live, parsed, begin_of(order_id) + "0")
            if not spends(parsed):
                return self._given(live, parsed, begin_of(order_id) + "0")
            with self.budget.locked():
                return self._spending(live, parsed, order_id)

    def _spending(self, live: LiveExperiment, order: words.AnyOrder, order_id: str) -> GivenOrder:
        known = self._known(live, begin_of(order_id))
        if known is not None:
            return self._given(live, order, known)
        with self.looked_at(live) as seen:
            count, unlimited = _adds(order, seen)
        self.budget.check(count, unlimited=unlimited)
        Ledger(Path(live.source.place).parent).will_order(Path(live.source.place).name)
        return self._given(live, order, f"{begin_of(order_id)}{count}")

    def _known(self, live: LiveExperiment, begin: str) -> str | None:
        """The whole id of an order that was given already."""
        waiting = [letter.id for letter in Mailbox(Path(live.source.place)).waiting()]
        with self.looked_at(live) as seen:
            known = [*waiting, *seen.picture.state.orders]
        return next((one for one in known if one.startswith(begin)), None)

    def _given(self, live: LiveExperiment, order: words.AnyOrder, full_id: str) -> GivenOrder:
        said = self._said(live, full_id)
        if said is not None and msgspec.json.decode(said) != msgspec.json.decode(words.encode(order)):
            raise ToolError(
                f"the id is that of another order: {words.in_words(msgspec.json.decode(said))!r:.200}; "
                "a new one has an id of its own"
            )
        started = self.record_of(live)
        runs = started is not None and (isinstance(order, words.RUNNABLE) or started[0].is_owned(started[1].name))
        given = give(
            live.source.place, order, order_id=full_id, if_dead="wait" if runs or said is not None else "refuse"
        )
        if started is not None and given.answer.state in (OrderState.WAITING, OrderState.TAKEN):
            go_on(*started, self.opened)
        return given

    def _said(self, live: LiveExperiment, full_id: str) -> bytes | None:
        """The order that has that id; None: none has."""
        if live.source.is_local:
            for letter in Mailbox(Path(live.source.place)).waiting():
                if letter.id == full_id:
                    return letter.body
        with self.looked_at(live) as seen:
            record = seen.picture.state.orders.get(full_id)
        return None if record is None else bytes(record.order)

    def answer(self, live: LiveExperiment, order_id: str) -> OrderAnswer:
        """What has become of an order that was given through this door. Raises ToolError."""
        begin = begin_of(order_id)
        if live.source.is_local:
            for letter in Mailbox(Path(live.source.place)).waiting():
                if letter.id.startswith(begin):
                    if (started := self.record_of(live)) is not None and self.how.allow_orders:
                        go_on(*started, self.opened)
                    return OrderAnswer(order_id, OrderState.WAITING)
        with self.looked_at(live) as seen:
            for full_id, record in seen.picture.state.orders.items():
                if full_id.startswith(begin):
                    return OrderAnswer(order_id, OrderState(record.state), record.why)
        raise ToolError(f"no order {order_id!r:.100} was given here")

    def made_by(self, seen: Seen, order_id: str) -> int | None:
        """The number of the trial that was made for an order; None: none was, or not yet."""
        begin = begin_of(order_id)
        found = (trial for one, trial in seen.picture.state.made_for.items() if one.startswith(begin))
        return next((trial.index for trial in found), None)


def lives(live: LiveExperiment) -> bool:
    """Whether its driver runs, or may."""
    return live.driver is not None and live.driver.liveness in (Liveness.RUNNING, Liveness.UNKNOWN)


def spends(order: words.AnyOrder) -> bool:
    """Whether more is trained for it."""
    return isinstance(order, SPENDING) or (isinstance(order, words.SetOrder) and order.trial is None)


def _adds(order: words.AnyOrder, seen: Seen) -> tuple[int, bool]:
    """How many more trials there will be, at most; and whether there is no end of them."""
    if isinstance(order, words.GoOrder):
        return 0, False
    if not isinstance(order, words.SetOrder):
        return 1, False
    if order.name != NUM_SAMPLES:
        return 0, False
    if order.value < 0:
        return 0, True
    settings, state = seen.picture.settings, seen.picture.state
    total, number = settings.get("trials_in_all"), settings.get("num_samples")
    per = total // number if isinstance(total, int) and isinstance(number, int) and number > 0 else 1
    change = state.changed.get(NUM_SAMPLES)
    planned = total if change is None else change.total
    return (0 if not isinstance(planned, int) else max(order.value * max(per, 1) - planned, 0)), False


def _alias(name: str) -> str:
    return f"experiment-{hashlib.sha256(name.encode('utf-8', 'backslashreplace')).hexdigest()[:8]}"
