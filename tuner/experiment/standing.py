"""The results that stand, by the facts since the last snapshot: what the files of trials are brought in step with."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import field

import msgspec

from trainables.quick_dataclass import dataclass
from tuner.experiment import events as ev
from tuner.experiment.state import ExperimentState


@dataclass(slots=True)
class StandingResult:
    """Of one trial."""

    results: dict[int, msgspec.Raw] = field(default_factory=dict)
    """Iteration -> result as tagged JSON, as far as it is known."""
    void_after: float = math.inf
    """The trial went back there: what came after it was void then."""
    ahead_of: float = math.inf
    """A checkpoint was found whose result is not the next one after this: those between may be nowhere."""
    fetched: bool = False
    """Its files came from a replica, which may have them from before it went back."""

    @property
    def doubtful_after(self) -> float:
        """A row beyond it counts only if `results` says the same. What was always here was cut when it went back."""
        return self.void_after if self.fetched else math.inf

    def gaps(self, known: Collection[int], last: int) -> list[int]:
        """The iterations up to `last` of which a trial's history lacks the result, of those that are `known`."""
        first = min([*known, self.ahead_of + 1, last + 1])
        return [iteration for iteration in range(int(first), last + 1) if iteration not in known]


class Results:
    """Notes by trial what facts say of results. A trial is in `by_trial` when anything was done to its files."""

    def __init__(self) -> None:
        self.by_trial: dict[str, StandingResult] = {}
        self._began: dict[str, int] = {}
        """Trial -> the iteration that its last attempt went on from."""

    def noting(self, facts: Iterable[ev.AnyFact], state: ExperimentState) -> Iterator[ev.AnyFact]:
        """Pass facts on, noted, each before `state` knows it."""
        for fact in facts:
            trial = state.trials.get(fact.ref.trial_id) if isinstance(fact, ev.CheckpointPublished) else None
            self.note(fact, reached=trial.iteration if trial is not None else 0)
            yield fact

    def note(self, fact: ev.AnyFact, *, reached: int = 0) -> None:
        """Note one; `reached`: the iteration of its trial's last result before it."""
        if isinstance(fact, ev.AttemptStarted):
            self._began[fact.trial] = fact.iteration
        elif isinstance(fact, ev.ResultReported):
            self._of(fact.trial).results[fact.iteration] = fact.metrics
        elif isinstance(fact, ev.RolledBack):
            found, after = self._of(fact.trial), fact.iteration
            found.results = {reached: raw for reached, raw in found.results.items() if reached <= after}
            found.void_after = min(found.void_after, after)
        elif isinstance(fact, (ev.CheckpointDeleted, ev.PublishFailed)):
            self._of(fact.ref.trial_id)
        elif isinstance(fact, ev.CheckpointPublished) and fact.metrics != ev.NO_RAW:
            # It was found with its result in its manifest; the journal may have lost that, or never had it.
            found, reached = self._of(fact.ref.trial_id), max(reached, self._began.get(fact.ref.trial_id, 0))
            found.results.setdefault(fact.ref.iteration, fact.metrics)
            if fact.ref.iteration > reached + 1:
                found.ahead_of = min(found.ahead_of, reached)

    def _of(self, trial: str) -> StandingResult:
        return self.by_trial.setdefault(trial, StandingResult())
