"""What is drawn of a run from its journal alone."""

from __future__ import annotations

from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tuner.experiment import events as ev
from tuner.experiment.generations import GenerationRecord
from tuner.experiment.liveness import LastDriver, Liveness
from tuner.experiment.processes import Identity
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial
from tuner.progress.observed import SHOWN_EVENTS, ObservedEvents, ObservedRun, pace_of, view

RECORD = GenerationRecord(1, "id", Identity("node7", "boot", 1, 42, 1), since=0.0)
SETTINGS = {"metric": ["loss"], "mode": ["min"], "trials_in_all": 40}


def run_of(
    *trials: str, liveness: Liveness = Liveness.RUNNING, ended: str | None = None, silent: float = 0
) -> ObservedRun:
    """A run of trials with these states: r running, d done, f failed, w waiting."""
    state = ExperimentState(Path("/nowhere"))
    for index, kind in enumerate("".join(trials)):
        name = f"t{index}"
        state.apply(ev.TrialCreated(name, index, msgspec.Raw(b'{"x":1}'), name=name, dirname=name))
        if kind == "w":
            continue
        state.apply(ev.AttemptStarted(name, 1, 1, at=100.0))
        state.apply(ev.ResultReported(name, 1, 1, msgspec.Raw(b'{"loss":%d,"timestamp":103}' % index)))
        if kind == "d":
            state.apply(ev.TrialEnded(name, "TERMINATED", 110.0))
        if kind == "f":
            state.apply(ev.TrialEnded(name, "ERROR", 110.0, ev.ErrorInfo("ValueError", "no\nmore", "")))
    if ended:
        state.apply(ev.RunEnded(ended, 120.0))
    return ObservedRun(state, SETTINGS, LastDriver(liveness, RECORD), silent)


def heads(seen: ObservedRun) -> list[str]:
    return [line.text for line in view(seen, now=112.0, rows=5).head]


def test_the_head_says_how_all_of_it_stands() -> None:
    counts, time, best, failed, *_, driver = heads(run_of("rdfw"))
    assert counts == "2 of 40 trials done, 1 running, 37 waiting, 1 failed, 3 results"
    assert time.startswith("12.0 s, about ") and " left" in time
    assert (
        best.startswith("best loss 0: trial 0, iteration 1") and failed == "1 failed, the last: trial 2: ValueError: no"
    )
    assert driver == "driver (pid 42 on node7)"


def test_the_last_line_says_whether_anybody_is_at_work() -> None:
    assert heads(run_of("r", liveness=Liveness.KILLED))[-1].startswith(
        "the driver was killed (pid 42 on node7); a resume"
    )
    assert heads(run_of("r", liveness=Liveness.UNKNOWN, silent=75))[-1] == (
        "no sign of life for 1:15 min: the driver (pid 42 on node7) seems dead"
    )
    assert heads(run_of("d", liveness=Liveness.ENDED, ended="finished"))[-1] == "the run has ended: finished"
    assert heads(run_of("r", liveness=Liveness.KILLED, ended="interrupted"))[-1] == "the run has ended: stopped by you"
    assert "ends what is left to do" in heads(run_of("d", ended="finished"))[-1], "it copies still"


def test_how_long_a_dead_run_still_takes_nobody_says() -> None:
    assert heads(run_of("rd", liveness=Liveness.KILLED))[1] == "10.0 s"


def test_a_run_is_well_only_when_it_has_finished_without_failures() -> None:
    ends = [("d", "finished"), ("df", "finished"), ("d", "interrupted")]
    assert [run_of(trials, liveness=Liveness.ENDED, ended=why).went_well for trials, why in ends] == [
        True,
        False,
        False,
    ]


def test_events_are_lines_once_and_many_are_counted() -> None:
    events = ObservedEvents()
    assert events.since(run_of("ddr")) == [], "what was before is no event"
    assert events.since(run_of("ddf")) == ["trial 2: failed: ValueError: no; loss 2 at iteration 1"]
    assert events.since(run_of("ddf")) == []
    lines = events.since(run_of("ddf" + "d" * 30))
    assert len(lines) == SHOWN_EVENTS + 1 and lines[-1] == "... and 20 more"
    dead = run_of("ddf" + "d" * 30, liveness=Liveness.KILLED)
    assert len(events.since(dead)) == 1 and events.since(dead) == []


@given(st.lists(st.lists(st.floats(0.1, 50), min_size=1, max_size=7), min_size=1, max_size=6))
def test_a_trial_took_the_time_in_which_it_ran(stretches: list[list[float]]) -> None:
    """Each trial runs and rests in turn, for these seconds."""
    state, took = ExperimentState(Path("/nowhere")), []
    for index, times in enumerate(stretches):
        name, now = f"t{index}", 10.0 * index
        state.apply(ev.TrialCreated(name, index, msgspec.Raw(b"{}"), name=name, dirname=name))
        for number, seconds in enumerate(times):
            if number % 2 == 0:
                state.apply(ev.AttemptStarted(name, number + 1, 1, at=now))
            else:
                state.apply(ev.AttemptEnded(name, number, "paused", at=now))
            now += seconds
        state.apply(ev.TrialEnded(name, "TERMINATED", now))
        took.append(sum(times[::2]))
    pace = pace_of(state.trials, until=1e6)
    assert sorted(round(one, 6) for one in pace._took) == sorted(round(one, 6) for one in took)
    assert all(trial.status == Trial.TERMINATED for trial in state.trials)
