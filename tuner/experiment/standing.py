"""The results that stand, by the facts since the last snapshot: what the files of trials are brought in step with."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from tuner.experiment import events as ev


@dataclass(slots=True)
class Standing:
    """Of one trial."""

    results: dict[int, msgspec.Raw] = field(default_factory=dict)
    """Iteration -> result as tagged JSON, as far as it is known."""
    void_after: float = math.inf
    """The trial went back there: what came after it was void then."""
    fetched: bool = False
    """Its files came from a replica, which may have them from before it went back."""

    @property
    def doubtful_after(self) -> float:
        """A row beyond it counts only if `results` says the same. What was always here was cut when it went back."""
        return self.void_after if self.fetched else math.inf


class Results:
    """Notes by trial what facts say of results. A trial is in `by_trial` when anything was done to its files."""

    def __init__(self) -> None:
        self.by_trial: dict[str, Standing] = {}

    def noting(self, facts: Iterable[ev.AnyFact]) -> Iterator[ev.AnyFact]:
        """Pass facts on, noted."""
        for fact in facts:
            self.note(fact)
            yield fact

    def note(self, fact: ev.AnyFact) -> None:
        if isinstance(fact, ev.ResultReported):
            self._of(fact.trial).results[fact.iteration] = fact.metrics
        elif isinstance(fact, ev.RolledBack):
            found, after = self._of(fact.trial), fact.iteration
            found.results = {reached: raw for reached, raw in found.results.items() if reached <= after}
            found.void_after = min(found.void_after, after)
        elif isinstance(fact, (ev.CheckpointDeleted, ev.PublishFailed)):
            self._of(fact.ref.trial_id)
        elif isinstance(fact, ev.CheckpointPublished) and fact.metrics != ev.NO_RAW:
            # It was found with its result in its manifest; the journal may have lost that, or never had it.
            self._of(fact.ref.trial_id).results.setdefault(fact.ref.iteration, fact.metrics)

    def _of(self, trial: str) -> Standing:
        return self.by_trial.setdefault(trial, Standing())


def gaps(known: Collection[int], last: int) -> list[int]:
    """The iterations between the first that is known and `last` that are not."""
    return [iteration for iteration in range(min(known, default=last + 1), last + 1) if iteration not in known]
