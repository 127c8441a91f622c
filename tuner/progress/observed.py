"""The live view of a run as somebody sees it from outside: drawn from what its journal says, without its driver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainables.metrics import MISSING, lookup
from trainables.printable import one_line
from tuner.experiment.liveness import LastDriver, Liveness
from tuner.experiment.outcome import ENDS, outcome
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial
from tuner.progress import formatting
from tuner.progress.counts import LastScores, ProgressFacts, UnsavedWork
from tuner.progress.estimate import Pace
from tuner.progress.front import standing_of
from tuner.progress.run_view import HeadLine, RunView
from tuner.progress.table import Columns
from tuner.progress.view_builder import ViewBuilder

SHOWN_EVENTS = 10
"""Lines of one look at most; the others are counted."""


@dataclass(frozen=True, slots=True)
class ObservedRun:
    """What was read of a run."""

    state: ExperimentState
    settings: Mapping[str, Any]
    driver: LastDriver
    silent_s: float = 0.0
    """So long nothing was heard of a driver that cannot be seen from here."""

    @property
    def has_ended(self) -> bool:
        """The driver has ended in order, and is done with what comes after the last trial."""
        return self.state.run_ended is not None and self.driver.liveness is not Liveness.RUNNING

    @property
    def is_dead(self) -> bool:
        return not self.has_ended and self.driver.liveness in (Liveness.KILLED, Liveness.ENDED)

    @property
    def went_well(self) -> bool:
        return self.state.run_ended == "finished" and not self.state.counts[Trial.ERROR]

    def standing(self) -> HeadLine:
        """How the run stands, in one line."""
        why = self.state.run_ended
        if self.has_ended:
            said = ENDS.get(why or "", why)
            return HeadLine(f"the run has ended: {said}", "green" if self.went_well else "red")
        if self.is_dead:
            gone = "was killed" if self.driver.liveness is Liveness.KILLED else "ended without a word"
            return HeadLine(f"the driver {gone}{_who(self.driver)}; a resume goes on from the checkpoints", "red")
        if self.silent_s:
            quiet = formatting.duration(self.silent_s)
            return HeadLine(f"no sign of life for {quiet}: the driver{_who(self.driver)} seems dead", "red")
        if why is not None:
            return HeadLine("all trials have ended; the driver ends what is left to do, as copies")
        return HeadLine(f"driver{_who(self.driver)}", "dim")


def _who(driver: LastDriver) -> str:
    return "" if driver.record is None else f" (pid {driver.record.owner.pid} on {driver.record.owner.host})"


def view(seen: ObservedRun, *, now: float, rows: int) -> RunView:
    """What is drawn.

    Args:
        now: seconds since the epoch.
        rows: of trials, at most.
    """
    state, settings = seen.state, seen.settings
    metrics, modes = _goal(settings)
    standing = standing_of(metrics or None, modes or None)
    for trial in state.trials:
        standing.again(trial)
    builder = ViewBuilder(Columns.of(metrics or None, modes or None), standing)
    builder.total = len(state.trials) if seen.has_ended else state.planned(settings.get("trials_in_all")) or 0
    builder.results = sum(trial.iteration - (trial.fork.iteration if trial.fork else 0) for trial in state.trials)
    running = [trial for trial in state.trials if trial.status == Trial.RUNNING]
    until = now if running and not seen.is_dead else _last_heard(state) or now
    builder.pace = pace_of(state.trials, until)
    failed = [trial for trial in state.trials if trial.status == Trial.ERROR]
    elapsed = max(until - _began(state, until), 0.0)
    made = builder.build(
        state.trials,
        _facts(seen, running),
        _shown(state, standing, running, rows),
        sorted(failed, key=lambda trial: trial.ended_at or 0.0),
        now=until,
        elapsed=elapsed,
        notes={trial.trial_id: "its driver is dead" for trial in running} if seen.is_dead else None,
    )
    head = [*made.head, seen.standing()]
    if seen.is_dead:
        head[1] = HeadLine(formatting.duration(elapsed))  # how long it still takes, nobody can say
    return replace(made, head=head)


def _goal(settings: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """The run's metrics and their modes, else those of the searcher."""
    goal = settings.get("searches_for") or {}
    found: list[list[str]] = []
    for name in ("metric", "mode"):
        given = settings.get(name)
        listed = list(given) if isinstance(given, list) else [given]
        if not listed or listed[0] is None:
            listed = [goal.get(name)]
        found.append([each for each in listed if isinstance(each, str)])
    return found[0], found[1]


def pace_of(trials: Sequence[Trial], until: float) -> Pace:
    """How long they took: the starts, rests and ends that the journal has, one after another."""
    moments: list[tuple[float, int, str]] = []
    for trial in trials:
        if trial.started_at is None:
            continue
        moments.append((trial.started_at, 1, trial.trial_id))
        for rest in trial.rests:
            moments.append((rest.since, 0, trial.trial_id))
            if rest.until is not None and rest.until != trial.ended_at:
                moments.append((rest.until, 1, trial.trial_id))
        if trial.is_finished() and trial.ended_at is not None:
            moments.append((trial.ended_at, 2, trial.trial_id))
    pace = Pace()
    tell = (pace.rested, pace.started, pace.ended)
    for at, kind, trial_id in sorted(moments):
        tell[kind](trial_id, min(at, until))
    return pace


def _facts(seen: ObservedRun, running: Sequence[Trial]) -> ProgressFacts:
    state = seen.state
    kept = [record for trial in state.trials for record in trial.checkpoints]
    waiting = [record for record in kept if not record.copies] if seen.settings.get("upload_dir") else []
    return ProgressFacts.by_status(
        state.counts,
        checkpoints=state.checkpoint_count,
        checkpoint_bytes=state.checkpoint_bytes,
        to_copy=len(waiting),
        bytes_to_copy=sum(record.bytes for record in waiting),
        unsaved=None if seen.is_dead else UnsavedWork.of(running),
    )


def _shown(state: ExperimentState, standing: LastScores, running: Sequence[Trial], rows: int) -> list[Trial]:
    """Running trials, and the best of the others, else the newest: as many as fit."""
    shown = {trial.trial_id: trial for trial in running[:rows]}
    best = standing.top(rows + len(running)) if standing.metric is not None else []
    others = [*map(state.trial, best), *reversed(state.trials)]
    for trial in others:
        if len(shown) >= rows:
            break
        if trial.status != Trial.ERROR:
            shown.setdefault(trial.trial_id, trial)
    return list(shown.values())


def _began(state: ExperimentState, until: float) -> float:
    return min((trial.started_at for trial in state.trials if trial.started_at is not None), default=until)


def _last_heard(state: ExperimentState) -> float:
    times = [trial.ended_at or trial.last_heard_of or trial.started_at or 0.0 for trial in state.trials]
    return max(times, default=0.0)


class ObservedEvents:
    """What has happened to trials between two looks, as lines; what was before the first look is none."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, int]] | None = None
        self._driver: str | None = None

    def since(self, seen: ObservedRun) -> list[str]:
        """The lines since the last call, at most ten, and how many more there were."""
        before, now = self._known, {one.trial_id: (one.status, one.attempt) for one in seen.state.trials}
        told, self._driver = self._driver, seen.standing().text if seen.is_dead else ""
        self._known = now
        if before is None:
            return [self._driver] if self._driver else []
        changed = [one for one in seen.state.trials if before.get(one.trial_id) != now[one.trial_id]]
        lines = [line for trial in changed for line in _line(trial, seen)]
        more = [f"... and {len(lines) - SHOWN_EVENTS} more"] if len(lines) > SHOWN_EVENTS else []
        return [*lines[:SHOWN_EVENTS], *more, *([self._driver] if self._driver and self._driver != told else [])]


def _line(trial: Trial, seen: ObservedRun) -> Iterator[str]:
    if trial.status == Trial.PENDING and not trial.attempt:
        return  # it was made, and waits
    metrics, _ = _goal(seen.settings)
    values = {metric: lookup(trial.last_result, metric) for metric in metrics}
    scores = [f"{metric} {formatting.value(value)}" for metric, value in values.items() if value is not MISSING]
    came_to = f"; {', '.join(scores)}{' ' if scores else ''}at iteration {trial.iteration}" if trial.iteration else ""
    yield one_line(f"trial {trial.index}: {outcome(trial)}{came_to}")
