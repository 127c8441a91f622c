"""An experiment as some of its facts add up, as columns; and how that is made of a snapshot and facts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuner.analysis.goal import Goal, goal_of
from tuner.experiment import events as ev
from tuner.experiment.hostile import UNREADABLE, said
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.reader import read_settings
from tuner.experiment.trial import Trial
from tuner.ui.cold_state import ColdState, raw_name, read_snapshot
from tuner.ui.point_log import PointLog, Voided, point_of
from tuner.ui.trial_columns import TrialColumns

CHUNK = 2_000
"""Facts, or trials, between two looks at the progress, in which trials that have ended are put away."""
PROBLEMS = 50
"""Lines of what cannot be read."""


@dataclass
class Picture:
    """An experiment as some of its facts add up."""

    root: Path
    settings: dict[str, Any]
    goal: Goal
    state: ColdState
    table: TrialColumns
    points: PointLog
    seq: int
    problems: list[str]
    told_at: float | None = None
    """The time of the newest fact that has one."""
    most_running: int = 0
    """So many trials have run at once, as far as that was seen."""
    _orders: dict[str, int] = field(default_factory=dict)
    """Order -> the fact that was about it last."""

    def orders_since(self, seq: int) -> list[str]:
        """The ids of orders that facts after that one are about."""
        return [order_id for order_id, at in self._orders.items() if at > seq]

    def take(self, facts: Iterable[tuple[int, bytes]], note: str = "") -> None:
        """Apply facts; what cannot be used is a problem, and the others are."""
        for seq, body in facts:
            self.seq = self.state.seq = seq
            try:
                fact = ev.decode(body)
                self.state.apply(fact)
            except UNREADABLE as error:
                self.complain(f"fact {seq} cannot be used: {said(error)}")
                continue
            at = getattr(fact, "at", None)
            if isinstance(fact, ev.ResultReported):
                point = point_of(seq, fact)
                self.points.add(point)
                at = point.at
            elif isinstance(fact, ev.RolledBack):
                self.points.add(Voided(seq, fact.trial, fact.iteration))
            elif isinstance(fact, (ev.OrderTaken, ev.OrderAnswered)):
                self._orders[fact.id] = seq
            elif isinstance(fact, (ev.TrialNoted, ev.SettingChanged)) and fact.order in self.state.orders:
                self._orders[fact.order] = seq
            self.told_at = self.told_at if at is None else at
        touched = {trial_id: seq for trial_id, seq in self.state.touched.items() if self.state.has(trial_id)}
        self.state.touched.clear()
        for trial_id, seq in touched.items():
            self.table.update(self.state.trial(trial_id), seq, note)
        self.state.cool(touched)
        self.most_running = max(self.most_running, self.state.counts[Trial.RUNNING])

    def complain(self, line: str) -> None:
        if len(self.problems) < PROBLEMS:
            self.problems.append(line)


def picture_of(
    paths: ExperimentPaths,
    snapshot: tuple[int, bytes | None],
    facts: list[tuple[int, bytes]],
    progress: Callable[[float], None] = lambda done: None,
    settings_at: Callable[[ExperimentPaths], dict[str, Any]] = read_settings,
) -> Picture:
    """What a snapshot and the facts after it add up to.

    Args:
        snapshot: the number of its last fact, and its body.
        progress: is told how much is done, from 0 to 1.
        settings_at: reads the settings.
    """
    problems: list[str] = []
    settings = settings_at(paths)
    goal = goal_of(settings)
    seq, body = snapshot
    state, raw_trials = read_snapshot(paths.root, body, problems)
    picture = Picture(
        paths.root, settings, goal, state, TrialColumns(goal.metrics, goal.mode), PointLog(seq), seq, problems
    )
    whole = max(len(raw_trials) + len(facts), 1)
    for number, raw in enumerate(raw_trials):
        try:
            trial = state.read_trial(raw)
            picture.table.update(trial, seq)
            state.cool([trial.trial_id])
        except UNREADABLE as error:
            trial_id, index = raw_name(raw)
            picture.table.broken(picture.table.row(trial_id or f"?{number}", index), f"cannot be read: {said(error)}")
        if number % CHUNK == 0:
            progress(number / whole)
    raw_trials.clear()
    for start in range(0, len(facts), CHUNK):
        picture.take(facts[start : start + CHUNK])
        progress((len(picture.table) + start) / whole if body else start / whole)
    return picture
