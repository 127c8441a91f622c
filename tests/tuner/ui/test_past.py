"""An earlier moment is what the facts up to it add up to, however it is told."""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tuner.ui.test_cold_state import FACTS, may_come
from tuner.clock import Clock, SystemClock
from tuner.experiment import events as ev
from tuner.experiment.history import History
from tuner.experiment.hostile import UNREADABLE
from tuner.experiment.journal_reader import read_journal
from tuner.experiment.journal_writer import JournalWriter
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.state import ExperimentState
from tuner.ui.live_experiment import LiveExperiment
from tuner.ui.past import picture_at
from tuner.ui.picture import Picture, picture_of
from tuner.ui.seen import Seen, as_json
from tuner.ui.sources import LocalSource
from tuner.ui.views.data import _VIEWS
from tuner.ui.views.searched_space import parameters

VIEWS = {**_VIEWS, "parameters": lambda seen, query: parameters(seen, None)}
STILL = cast(Clock, SimpleNamespace(time=lambda: 2e9, monotonic=SystemClock().monotonic))
ORDERS = st.one_of(
    st.just(ev.GenerationStarted(1)),
    st.builds(lambda n: ev.OrderTaken(f"o{n}", ev.NO_RAW, 5.0), st.integers(1, 3)),
    st.builds(lambda n: ev.OrderAnswered(f"o{n}", 6.0), st.integers(1, 3)),
    st.builds(lambda trial, n: ev.TrialNoted(trial, "flat", 7.0, f"o{n}"), st.sampled_from("abc"), st.integers(1, 3)),
    st.builds(lambda trial, held: ev.TrialHeld(trial, held), st.sampled_from("abc"), st.booleans()),
    st.just(ev.SettingChanged("num_samples", 9, 3, 8.0, 9)),
)


def valid(facts: Sequence[ev.AnyFact]) -> list[ev.AnyFact]:
    """Those that a driver may tell one after another."""
    state, known, kept = ExperimentState(Path("/nowhere")), set[str](), []
    for fact in facts:
        if state.run_ended is not None and not isinstance(fact, ev.GenerationStarted):
            state.apply(ev.GenerationStarted(1))
            kept.append(ev.GenerationStarted(1))
        if not may_come(fact, state, known):
            continue
        try:
            ExperimentState.from_snapshot(Path("/nowhere"), state.snapshot({})).apply(fact)
        except UNREADABLE:
            continue
        state.apply(fact)
        known |= {fact.trial} if isinstance(fact, ev.TrialCreated) else set()
        kept.append(fact)
    return kept


def views_of(live: LiveExperiment, picture: Picture, at: int) -> dict[str, Any]:
    made = {name: json.loads(as_json(make(Seen(live, picture, at), {}))) for name, make in VIEWS.items()}
    made["overview"]["disk"] = None
    return made


def is_the_sum(live: LiveExperiment) -> None:
    """Every moment that is recorded is what its facts add up to."""
    paths = live.source.paths
    history = History(paths, read_journal(paths))
    facts = [(fact.seq, fact.body) for fact in history.facts()]
    for at in range(history.begins_after, live.seq):
        summed = picture_of(paths, (history.begins_after, history.base), [fact for fact in facts if fact[0] <= at])
        summed.seq = at
        for trial in summed.state.unfinished:
            summed.table.update(trial, at)  # what ended the run is said of each
        assert views_of(live, picture_at(live, at), at) == views_of(live, summed, at), at


def until(live: LiveExperiment, seq: int) -> None:
    told = threading.Event()
    live.listen(told.set)
    while live.seq < seq:
        assert told.wait(60)
        told.clear()


@pytest.mark.parametrize("history_bytes", [0, 10**6])
@settings(max_examples=12)
@given(st.lists(st.one_of(FACTS, ORDERS), min_size=4, max_size=50), st.integers(0, 50), st.integers(0, 50), st.data())
def test_whatever_was_folded_and_followed(
    history_bytes: int, experiment: Path, facts: list[ev.AnyFact], folded: int, read: int, data: st.DataObject
) -> None:
    told = valid(facts)
    with tempfile.TemporaryDirectory() as folder:
        paths = ExperimentPaths(Path(folder) / "one")
        paths.root.mkdir()
        shutil.copy(experiment / "experiment.json", paths.experiment_json)
        journal = JournalWriter(
            paths, 1, next_seq=1, clock=SystemClock(), sync="inline", history_bytes=history_bytes, parents=()
        )
        journal.append(ev.encode(ev.GenerationStarted(1)))
        live = LiveExperiment("one", LocalSource(paths, interval=0.001), STILL)
        state = ExperimentState(paths.root)
        try:
            for number, fact in enumerate([*told, ev.RunEnded("finished", 9.5)]):
                journal.append(ev.encode(fact))
                state.apply(fact)
                if data.draw(st.booleans()):
                    journal.seal()
                if number in (folded, 2 * folded):
                    journal.compact(state.snapshot({}), grace_s=0.0)
                if number >= read and not live.ready.is_set():
                    journal.flush()
                    live.start()
                    assert live.ready.wait(60)
            journal.close()
            live.start()
            assert live.ready.wait(60)
            until(live, journal.last_seq)
            is_the_sum(live)
        finally:
            live.close()


def test_a_real_run(experiment: Path) -> None:
    live = LiveExperiment("one", LocalSource(ExperimentPaths(experiment)), STILL)
    live.start()
    try:
        assert live.ready.wait(60)
        is_the_sum(live)
    finally:
        live.close()
