"""The planner of retention: which checkpoints may go, by the settings and by the budget, beside what is protected.

No I/O, no clock; cost depends on how many checkpoints a trial keeps, and on nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from trainables.config import Budget, CheckpointConfig, CheckpointStrategy
from trainables.metrics import MISSING, as_score, lookup, metric_names, nearest_keys
from trainables.store.retention import ranking_metrics
from trainables.wire import CheckpointRef
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial
from tuner.experiment.trial_records import CheckpointRecord
from tuner.retention.budget import BudgetLedger, Key
from tuner.retention.rules import ANEW, BUDGET
from tuner.retention.trial_retention import Ending, HeldCheckpoint, TrialRetention

log = logging.getLogger(__name__)

SHOWN_NAMES = 20
"""At most so many reported metrics are listed in a warning."""


class RetentionPlanner:
    """Decides about the checkpoints of one experiment; the loop journals what it decides, and only then they go.

    Args:
        budget: limit on all checkpoints of the experiment, or None.
        metric, mode: rank trials under the budget.
    """

    def __init__(
        self,
        config: CheckpointConfig | CheckpointStrategy,
        *,
        budget: Budget | None = None,
        metric: str | None = None,
        mode: str | None = None,
    ) -> None:
        self._retention = TrialRetention(config)
        named = [self._retention.ranking.names] if self._retention.ranking.names else []
        self._metrics = list(dict.fromkeys([*named, *ranking_metrics(self._retention.policy)]))
        self._told: set[tuple[str, str]] = set()
        self._ledger = None
        if budget is not None:
            self._ledger = BudgetLedger(budget, metric=metric, mode="min" if mode == "min" else "max")

    def take_over(self, state: ExperimentState) -> None:
        """Count what is there at the start."""
        if self._ledger is not None:
            records = [record for trial in state.trials for record in trial.checkpoints]
            for record in sorted(records, key=lambda record: record.number):
                self._ledger.saved(record)
            for trial in state.trials:
                if trial.status == Trial.TERMINATED:
                    self._ledger.ended(trial.trial_id)

    def refusal(self, trial: Trial, size: int, metrics: Mapping[str, Any], in_use: Collection[Key]) -> str | None:
        """Why a save of so many bytes does not fit into the budget, or None: it does."""
        if self._ledger is None:
            return None
        refused = self._ledger.admit(trial.trial_id, size, metrics=metrics, in_use=in_use)
        return None if refused is None else refused.message

    def saved(self, trial: Trial, record: CheckpointRecord, in_use: Collection[Key], *, admitted: bool) -> str | None:
        """A checkpoint was published: why it has to go at once, or None. Of a score that is none it warns once."""
        for message in self.observe(record):
            log.warning(message)
        if self._ledger is None:
            return None
        self._ledger.saved(record)
        refused = None if admitted else self._ledger.overfull(trial.trial_id, in_use=in_use)
        return None if refused is None else refused.message

    def not_saved(self, trial: Trial) -> None:
        """A publish failed."""
        if self._ledger is not None:
            self._ledger.not_saved(trial.trial_id)

    def attempt_ended(self, trial: Trial) -> None:
        """Nothing of this attempt is on its way any more."""
        if self._ledger is not None:
            self._ledger.attempt_ended(trial.trial_id)
            if trial.status == Trial.TERMINATED:
                self._ledger.ended(trial.trial_id)

    def evict(self, trial: Trial, in_use: Collection[Key]) -> list[tuple[CheckpointRef, str]]:
        """What may go now, and by which rule: of this trial by its settings, of all trials by the budget."""
        used = {order for trial_id, order in in_use if trial_id == trial.trial_id}
        ranked, rules = trial.ranked_checkpoints, self._retention
        refs = [(ref, rules.rule) for ref in rules.forget(ranked or trial.checkpoints, Ending.of(trial.status), used)]
        if ranked and (self._ledger is not None or not rules.keeps_all):
            # The trial started anew, and has saved since.
            void = trial.checkpoints[: -len(ranked)]
            refs += [(record.ref, ANEW) for record in void if record.order not in used]
        for ref, _ in refs:
            self.gone(ref)
        if self._ledger is not None:
            for ref in self._ledger.plan(in_use):
                self.gone(ref)
                refs.append((ref, BUDGET))
        return refs

    def gone(self, ref: CheckpointRef) -> None:
        """A checkpoint is not counted any more."""
        if self._ledger is not None:
            self._ledger.gone(ref)

    def observe(self, record: HeldCheckpoint) -> list[str]:
        """To be called with every new checkpoint: what is wrong with its score, if that was not said before."""
        found = [self._look_at(record, names) for names in self._metrics]
        return [warning for warning in (self._look_at_order(record), *found) if warning is not None]

    def _look_at_order(self, record: HeldCheckpoint) -> str | None:
        """Warn where "min-acc" turns out to be a metric's name, and the order is not the one that it seems to say."""
        ranking = self._retention.ranking
        if ranking.literal is None or ranking.literal[1] == ranking.order:
            return None
        name, order = ranking.literal
        if ("order", name) in self._told or lookup(record.metrics, name) is MISSING:
            return None
        self._told.add(("order", name))
        return (
            f"checkpoint_score_attribute={name!r} names a reported metric, and higher is better, because "
            f"checkpoint_score_order={order!r}. If lower is better, set checkpoint_score_order='min'."
        )

    def _look_at(self, record: HeldCheckpoint, names: Sequence[str]) -> str | None:
        name = next((name for name in names if lookup(record.metrics, name) is not MISSING), names[-1])
        value = lookup(record.metrics, name)
        if value is MISSING:
            cause, problem = "absent", f"checkpoint score attribute {name!r} is not in the result"
        elif as_score(value) is None:
            found = f"{value!r:.60} ({type(value).__name__}), no number"
            cause, problem = "no number", f"checkpoint score attribute {name!r} is {found}, in the result"
        else:
            return None
        if (cause, name) in self._told:
            return None
        self._told.add((cause, name))
        return f"{problem} of {_where(record)}{_CONSEQUENCE} {_reported(record, name)}"


_CONSEQUENCE = "; such a checkpoint ranks below every scored one and stays usable for a resume."


def _where(record: HeldCheckpoint) -> str:
    return f"trial {record.ref.trial_id} at iteration {record.iteration}"


def _reported(record: HeldCheckpoint, name: str) -> str:
    near = nearest_keys(record.metrics, name)
    names = near + [key for key in metric_names(record.metrics) if key not in near and key != name]
    more = len(names) - SHOWN_NAMES
    listed = ", ".join(names[:SHOWN_NAMES]) or "nothing else"
    return f"Reported, nearest first: {listed}{f' and {more} more' if more > 0 else ''}"
