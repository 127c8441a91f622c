"""An experiment as it was after one of its facts, told from what it is now.

A trial that no later fact is about stands as it did then, and is shared with the present. What the others were is told
by the facts about them alone: so a moment of a hundred thousand trials costs what few of them cost.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from trainables.decoding import decode
from tuner.error import ExperimentNotFoundError
from tuner.experiment import history_format
from tuner.experiment.hostile import UNREADABLE
from tuner.experiment.replacing import standing
from tuner.experiment.state import Snapshot
from tuner.ui.cold_state import ColdState, RawSnapshot
from tuner.ui.fact_index import FactIndex
from tuner.ui.live_experiment import LiveExperiment
from tuner.ui.picture import Picture
from tuner.ui.point_log import FEW, MINUTE_S, Point, PointLog
from tuner.ui.point_log import KEPT as POINTS

KEPT_ROWS = 150_000
"""Rows of all moments in memory, as they were looked at last; one moment has as many as it has."""
_ID = re.compile(rb'\{"trial_id":"((?:[^"\\]|\\.)*)"')


class NoSuchMoment(ExperimentNotFoundError):
    """What was before the history that is kept; `told` says where that begins."""

    def __init__(self, at: int, first: int) -> None:
        super().__init__(f"fact {at} is not recorded any more; the history begins after fact {first}")
        self.told = {"first_seq": first}


def picture_at(live: LiveExperiment, at: int) -> Picture:
    """The picture after that fact. Raises NoSuchMoment if the history does not reach it."""
    index = live.index()
    try:
        return _kept(live, index, at)
    except (FileNotFoundError, ValueError):  # the oldest were dropped meanwhile
        live.forget(index)
        return _kept(live, live.index(), at)


def _kept(live: LiveExperiment, index: FactIndex, at: int) -> Picture:
    if at < index.begins_after:
        raise NoSuchMoment(at, index.begins_after)
    with live.past_lock:
        key = (live.epoch, at)
        if key not in live.past:
            live.past[key] = _made(live, index, at)
            while len(live.past) > 1 and sum(len(one.table) for one in live.past.values()) > KEPT_ROWS:
                live.past.popitem(last=False)
        live.past.move_to_end(key)
        return live.past[key]


@dataclass(frozen=True, slots=True)
class _Beginning:
    """What the facts are applied to: a snapshot, without most of its trials."""

    seq: int
    whole: Snapshot
    trials: Sequence[msgspec.Raw] = ()


def _made(live: LiveExperiment, index: FactIndex, at: int) -> Picture:
    with live.lock:
        index.look()  # what has come since it was asked for
        now = live.picture
        rows = index.rows_until(at, now.table.ids)
        again = _to_tell_again(now, index, rows, at)
        told = set(again)
        settled = now.table.ids[:rows]
        trials = now.state.shared_trials(trial_id for trial_id in settled if trial_id not in told)
        made_for = {order: one for order, one in now.state.made_for.items() if one.trial_id in trials}
        table = now.table.first(rows)
        going = [one.trial_id for one in now.state.unfinished if one.trial_id in trials]
        problems = list(now.problems)
    start = _start(index, again, at)
    state = ColdState.of(standing(live.source.paths).root, trials, start.whole)
    state.made_for |= made_for
    picture = Picture(state.root, now.settings, now.goal, state, table, PointLog(at), at, problems)
    for trial_id in again:
        table.clear(table.row_of[trial_id])
    _take_in(state, start.trials)
    picture.take(_facts(index, again, start.seq, at))
    for trial_id in going:
        state.keep_warm(trial_id)
    for trial_id in (*going, *again):
        _tell(picture, trial_id)
    _add_up(picture)
    picture.points = _newest_points(index, at)
    times = (history_format.time_of(body) for _, body in index.newest(at))
    picture.told_at = next((time for time in times if time is not None), None)
    picture.seq = at
    return picture


def _to_tell_again(now: Picture, index: FactIndex, rows: int, at: int) -> list[str]:
    """The trials that were another then."""
    changed = np.isin(index.hashes_of(now.table.ids)[:rows], index.changed_after(at))
    newest = np.array(now.table.changed[:rows])
    changed |= (newest > at) & (newest > now.points.begun_after)
    changed |= np.isin(index.hashes_of(now.table.ids)[:rows], index.steered(at))
    return [now.table.ids[row] for row in np.flatnonzero(changed).tolist()]


def _start(index: FactIndex, again: Sequence[str], at: int) -> _Beginning:
    """The snapshot from which these trials are told with the fewest facts."""
    base = index.start_for(again, at)
    if not base:
        return _Beginning(0, Snapshot())
    seq, body = index.snapshot(base)
    if body is None:
        return _Beginning(0, Snapshot())
    raw = decode(body, RawSnapshot)
    wanted = set(again)
    found = [one for one in raw.trials if (named := _ID.match(one)) and _plain(named[0] + b"}") in wanted]
    return _Beginning(seq, raw.without(), [msgspec.Raw(bytes(one)) for one in found])


def _plain(head: bytes) -> str:
    return str(msgspec.json.decode(head)["trial_id"])


def _take_in(state: ColdState, trials: Iterable[msgspec.Raw]) -> None:
    for raw in trials:
        try:
            state.cool([state.read_trial(raw).trial_id])
        except UNREADABLE:
            continue  # its row says so


def _facts(index: FactIndex, again: Sequence[str], after: int, at: int) -> list[tuple[int, bytes]]:
    facts = dict(index.bodies(again, after, at))
    facts |= {seq: body for seq, body, _ in index.steering if after < seq <= at}
    return sorted(facts.items())


def _tell(picture: Picture, trial_id: str) -> None:
    if picture.state.has(trial_id):
        picture.table.update(picture.state.trial(trial_id), picture.seq)
    else:
        picture.table.broken(picture.table.row_of[trial_id], "what it was then is not recorded")


def _add_up(picture: Picture) -> None:
    """Count what is counted by facts otherwise."""
    state, table = picture.state, picture.table
    state.counts.update(table.counts())
    state.checkpoint_count = sum(table.integers["checkpoints"])
    state.checkpoint_bytes = sum(table.integers["bytes"])
    for row in np.flatnonzero(np.array(table.integers["pinned"])).tolist():
        trial = state.trial(table.ids[row])
        state.pinned |= {(trial.trial_id, record.order) for record in trial.checkpoints if record.pinned}
    state.sort()
    table.config.drop_empty()
    table.last.drop_empty()


def _newest_points(index: FactIndex, at: int) -> PointLog:
    """When the results came that `PointLog.per_minute` counts."""
    times: list[float] = []
    log = PointLog(index.begins_after)
    for seq, body in _results(index.newest(at)):
        time = history_format.time_of(body)
        if time is not None:
            times.append(time)
            if (time < times[0] - MINUTE_S and len(times) > FEW) or len(times) >= POINTS:
                log.kept_from = seq
                break
    for time in reversed(times):
        log.add(Point(at, "", 0, None, time, {}))
    return log


def _results(facts: Iterator[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    return ((seq, body) for seq, body in facts if b'"kind":"result"' in body[:40])
