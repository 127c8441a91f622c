"""Orders that make trials: one with a config that a user gives, or one that goes on from another one's checkpoint.

The trial is one fact, which names its order: an order that is carried out again finds the trial that it made.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from trainables.addresses import Selector
from trainables.errors import CheckpointNotFoundError
from tuner.addresses import selected
from tuner.driver.parts import LoopParts
from tuner.driver.transitions import Transitions
from tuner.error import OrderError, TuneError
from tuner.experiment import events as ev
from tuner.experiment.trial import Trial
from tuner.experiment.trial_records import CheckpointRecord
from tuner.orders import order as words
from tuner.orders.pins import Effect

log = logging.getLogger(__name__)


class NewTrials:
    """Makes the trials that users order; each method returns what tells that it is there, and raises OrderError."""

    def __init__(self, parts: LoopParts, transitions: Transitions) -> None:
        self._parts, self._transitions = parts, transitions
        self._state, self._source = parts.state, parts.plugins.source

    def add(self, order_id: str, order: words.AddOrder) -> Effect:
        """A trial with that config."""
        seed = self._parts.plan.seed
        return self._make(order_id, lambda: self._source.added(self._state, order_id, order.config, seed))

    def fork(self, order_id: str, order: words.ForkOrder) -> Effect:
        """A trial that starts from another one's checkpoint, with an edited config."""
        if order_id in self._state.made_for:  # what it names may have another meaning by now
            return self._is_there(self._state.made_for[order_id])
        trunk, record = self._checkpoint(order)
        return self._make(order_id, lambda: self._source.forked(self._state, order_id, trunk, record, order.config))

    def _checkpoint(self, order: words.ForkOrder) -> tuple[Trial, CheckpointRecord]:
        start = Selector(order.tag, order.trial, order.iteration or 0)
        try:
            return selected(self._state.trials, start)
        except CheckpointNotFoundError as error:
            raise OrderError(str(error)) from error

    def _make(self, order_id: str, create: Callable[[], ev.TrialCreated]) -> Effect:
        trial = self._state.made_for.get(order_id)
        if trial is None:
            try:
                created = create()
            except TuneError as error:
                raise OrderError(str(error)) from error
            except Exception as error:  # of the user's code that is asked: a run does not end by an order
                log.warning("order %s is refused", order_id, exc_info=error)
                raise OrderError(f"{type(error).__name__}: {error}") from error
            self._parts.facts.add(created)
            trial = self._state.trials[-1]
            self._parts.checkpoints.given_back(trial)  # noted: its start is in use
            self._parts.waiting.add(trial)
            self._transitions.carry_out()
        return self._is_there(trial)

    def _is_there(self, trial: Trial) -> Effect:
        start = f"with {', '.join(f'{key}={_short(value)}' for key, value in trial.evaluated_params.items())}"[:500]
        if trial.fork is not None:
            donor = trial.fork.donor
            start = f"starts from {self._state.trial(donor.trial_id).index}@{donor.iteration}"
        return lambda: (True, f"{trial.trial_id}: waits for a slot, {start}")


def _short(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else f"{value!s:.100}"
