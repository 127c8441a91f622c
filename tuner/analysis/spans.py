"""Intervals of a trial's life: running, paused, failed, waiting, computed from the journal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from tuner.experiment.trial import Trial

SpanKind = Literal["running", "paused", "failed", "waiting"]
_KINDS: dict[str, SpanKind] = {
    "failed": "failed",
    "lost": "failed",
    "preempted": "paused",
    "paused": "paused",
    "halted": "paused",
}


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a trial's time."""

    trial_id: str
    index: int
    kind: SpanKind
    start: float
    end: float
    """Seconds since the epoch."""
    said: str
    why: str = ""
    """Of a stretch in which it did not run: how the attempt before it ended, as the fact says it."""


def last_heard_of(trials: Iterable[Trial]) -> float:
    """When anything was last heard of an experiment, in seconds since the epoch."""
    times = [0.0]
    for trial in trials:
        times += [trial.started_at or 0.0, trial.ended_at or 0.0]
        times += [max(rest.since, rest.until or 0.0) for rest in trial.rests[-1:]]
        if not trial.is_finished():
            times.append(trial.last_heard_of)
    return max(times)


def spans_of(trial: Trial, until: float) -> Iterator[Span]:
    """The stretches of one trial, oldest first, up to `until`; nothing for one that has not started.

    The times are those of the driver's clock. Only where a driver was killed, its trials ran as far as is known until
    their last result, which is told in whole seconds.
    """
    if trial.started_at is None:
        return
    start, first = trial.started_at, 0
    for rest in trial.rests:
        if rest.since > start:
            yield _span(trial, "running", start, rest.since, _iterations(first, rest.reached))
        end = until if rest.until is None else rest.until
        if end > rest.since:
            why = rest.why if rest.until is not None else f"{rest.why}, until the end"
            yield replace(_span(trial, _KINDS.get(rest.why, "waiting"), rest.since, end, why), why=rest.why)
        if rest.until is None:
            return
        start, first = rest.until, rest.iteration
    end = trial.ended_at if trial.ended_at is not None and trial.is_finished() else max(start, trial.last_heard_of)
    if end > start or not trial.rests:
        yield _span(trial, "running", start, end, _iterations(first, trial.iteration))


def _span(trial: Trial, kind: SpanKind, start: float, end: float, said: str) -> Span:
    return Span(trial.trial_id, trial.index, kind, start, end, f"{kind}: {said}")


def _iterations(before: int, last: int) -> str:
    return f"iterations {before + 1}-{last}" if last > before else "no results"
