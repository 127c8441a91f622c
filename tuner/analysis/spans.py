"""When a trial ran and when it did not, as its history tells; why it did not, as the journal does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from trainables.metrics import as_score
from tuner.analysis import scopes
from tuner.experiment import events as ev
from tuner.experiment.trial import Trial

_KINDS = {"failed": "failed", "lost": "failed", "preempted": "paused", "paused": "paused", "halted": "paused"}


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a trial's time."""

    trial_id: str
    index: int
    kind: str
    """"running", "paused", "failed" or "waiting"."""
    start: float
    end: float
    """Seconds since the epoch."""
    said: str


@dataclass(frozen=True, slots=True)
class Restart:
    """A trial goes on, or ends, after an attempt that had ended."""

    at: float
    why: str
    """Why the attempt before it had ended, as the journal's `attempt_ended` says it."""


def restarts_of(facts: Iterable[ev.AnyFact]) -> dict[str, list[Restart]]:
    """Trial -> its restarts, oldest first, and its end if it did not run then; none before the last compaction."""
    ended: dict[str, str] = {}
    found: dict[str, list[Restart]] = {}
    for fact in facts:
        if isinstance(fact, ev.AttemptEnded):
            ended[fact.trial] = fact.why
        elif isinstance(fact, (ev.AttemptStarted, ev.TrialEnded)) and fact.trial in ended:
            found.setdefault(fact.trial, []).append(Restart(fact.at, ended.pop(fact.trial)))
    return found


def last_heard_of(trials: Iterable[Trial]) -> float:
    """When anything was last heard of an experiment, in seconds since the epoch."""
    times = [0.0]
    for trial in trials:
        times += [trial.started_at or 0.0, trial.ended_at or 0.0]
        if not trial.is_finished():
            times.append(as_score(trial.last_result.get("timestamp")) or 0.0)
    return max(times)


def spans_of(trial: Trial, restarts: Sequence[Restart], until: float) -> Iterator[Span]:
    """The stretches of one trial, oldest first, up to `until`; nothing for one that has not started.

    An attempt is seen by its results (`iterations_since_restore` begins again with each), one without results not at
    all. The times of the results are whole seconds; how long an attempt took is known better.
    """
    if trial.started_at is None:
        return
    attempts = list(_attempts(trial))
    if not attempts:
        end = trial.ended_at if trial.ended_at is not None else trial.started_at
        yield _span(trial, "running", trial.started_at, end, "no results")
        return
    # Whole seconds, and the clock of another host: nothing is earlier than the start, nor than what came before.
    floor = trial.started_at
    stopped = restarts[-1] if restarts and restarts[-1].at == trial.ended_at else None
    for number, (start, end, iterations) in enumerate(attempts):
        start = floor if number == 0 else max(start, floor)
        if number and start > floor:
            again = next((each for each in restarts if floor - 1 <= each.at <= start + 1), None)
            yield _span(trial, _KINDS.get(again.why if again else "", "waiting"), floor, start, "between two attempts")
        last = number == len(attempts) - 1
        floor = max(end, start, trial.ended_at or 0.0 if last and stopped is None else 0.0)
        yield _span(trial, "running", start, floor, f"iterations {iterations}")
    if stopped is not None and stopped.at > floor:
        yield _span(trial, _KINDS[stopped.why], floor, stopped.at, "until it was ended")
    kind = {Trial.PAUSED: "paused", Trial.PENDING: "failed" if trial.error else "waiting"}.get(trial.status)
    if kind is not None and until > floor:
        yield _span(trial, kind, floor, until, "until the end")


def _span(trial: Trial, kind: str, start: float, end: float, said: str) -> Span:
    return Span(trial.trial_id, trial.index, kind, start, end, f"{kind}: {said}")


def _attempts(trial: Trial) -> Iterator[tuple[float, float, str]]:
    """(start, end, "first-last iteration") of each attempt that reported."""
    rows: list[dict[str, Any]] = []
    for row in scopes.history(trial):
        if rows and row.get("iterations_since_restore") == 1:
            yield from _bounds(rows)
            rows = []
        rows.append(row)
    yield from _bounds(rows)


def _bounds(rows: list[dict[str, Any]]) -> Iterator[tuple[float, float, str]]:
    first, last = (as_score(rows[number].get("timestamp")) for number in (0, -1)) if rows else (None, None)
    if first is None or last is None:
        return
    took = [as_score(rows[number].get("time_since_restore")) or 0.0 for number in (0, -1)]
    start = first - took[0]
    iterations = f"{rows[0].get('training_iteration')}-{rows[-1].get('training_iteration')}"
    yield start, min(max(start + took[1], last), last + 1), iterations
