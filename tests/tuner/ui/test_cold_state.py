"""The state of a large experiment is the state: the same facts, the same trials, whatever was put away meanwhile."""

from __future__ import annotations

from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from trainables import tagged
from trainables.wire import CheckpointRef
from tuner.experiment import events as ev
from tuner.experiment.hostile import UNREADABLE
from tuner.experiment.state import ExperimentState
from tuner.ui.cold_state import ColdState, read_snapshot

ROOT = Path("/nowhere")
TRIALS = st.sampled_from(["a", "b", "c"])
RAW = msgspec.Raw(tagged.dumps({"lr": 0.1, "deep": {"x": [1, 2]}}))


def ref(trial: str, number: int) -> CheckpointRef:
    return CheckpointRef(trial, f"checkpoint_{number:06d}", 1, 1, number, number)


def result(trial: str, iteration: int) -> ev.ResultReported:
    metrics = msgspec.Raw(tagged.dumps({"loss": 1 / iteration, "timestamp": 5, "training_iteration": iteration}))
    return ev.ResultReported(trial, 1, iteration, metrics, saves=iteration % 2 == 0)


FACTS = st.one_of(
    st.builds(lambda trial: ev.TrialCreated(trial, ord(trial) - 97, RAW, RAW, "", f"t_{trial}", f"t_{trial}"), TRIALS),
    st.builds(lambda trial: ev.AttemptStarted(trial, 1, 1, 2.0), TRIALS),
    st.builds(result, TRIALS, st.integers(1, 6)),
    st.builds(lambda trial, n: ev.CheckpointPublished(ref(trial, n), 10, "d", 3.0), TRIALS, st.integers(1, 6)),
    st.builds(lambda trial, n: ev.CheckpointForgotten(ref(trial, n), "best:1"), TRIALS, st.integers(1, 6)),
    st.builds(lambda trial, n: ev.CheckpointCopied(ref(trial, n), "s3://b/e"), TRIALS, st.integers(1, 6)),
    st.builds(lambda trial, n: ev.CheckpointPinned(ref(trial, n), True, "good"), TRIALS, st.integers(1, 6)),
    st.builds(lambda trial: ev.TrialEnded(trial, "TERMINATED", 9.0), TRIALS),
    st.builds(lambda trial: ev.TrialEnded(trial, "ERROR", 9.0, ev.ErrorInfo("OSError", "no")), TRIALS),
    st.builds(lambda trial: ev.TrialReopened(trial), TRIALS),
    st.builds(lambda trial, n: ev.RolledBack(trial, 1, n), TRIALS, st.integers(0, 4)),
    st.just(ev.RunEnded("interrupted", 9.0)),
)


OF_RUNNING = (ev.AttemptStarted, ev.ResultReported, ev.CheckpointPublished, ev.RolledBack, ev.TrialEnded)


def may_come(fact: ev.AnyFact, state: ExperimentState, known: set[str]) -> bool:
    """Return True if a driver may write this fact next.

    Trials are created in the order of their numbers. A trial that has ended is copied and loses checkpoints, no more.
    """
    about = getattr(fact, "trial", None) or getattr(getattr(fact, "ref", None), "trial_id", None)
    if about is None:
        return True
    if isinstance(fact, ev.TrialCreated) or about not in known:
        return isinstance(fact, ev.TrialCreated) and fact.index == len(known)
    trial = state.trial(about)
    if isinstance(fact, ev.TrialReopened):
        return trial.status == "ERROR"
    return not (trial.is_finished() and isinstance(fact, OF_RUNNING))


@given(st.lists(FACTS, max_size=60), st.integers(0, 60), st.data())
def test_it_is_the_state(facts: list[ev.AnyFact], folded_at: int, data: st.DataObject) -> None:
    plain = ExperimentState(ROOT)
    cold = ColdState(ROOT)
    known: set[str] = set()
    for number, fact in enumerate(facts):
        if not may_come(fact, plain, known):
            continue
        known |= {fact.trial} if isinstance(fact, ev.TrialCreated) else set()
        if number == folded_at:
            plain = ExperimentState.from_snapshot(ROOT, plain.snapshot({}))
            cold, raw = read_snapshot(ROOT, plain.snapshot({}), [])
            cold.cool([cold.read_trial(one).trial_id for one in raw])
        try:
            ExperimentState.from_snapshot(ROOT, plain.snapshot({})).apply(fact)
        except UNREADABLE:
            continue  # it does not fit there
        next_driver = [ev.GenerationStarted(2)] if plain.run_ended is not None else []
        for each in (*next_driver, fact):
            plain.apply(each)
            cold.apply(each)
        if data.draw(st.booleans()):
            cold.cool(list(cold.touched))
            cold.touched.clear()
    assert cold.counts == plain.counts and cold.pinned == plain.pinned
    assert (cold.checkpoint_count, cold.checkpoint_bytes) == (plain.checkpoint_count, plain.checkpoint_bytes)
    assert [one.trial_id for one in cold.unfinished] == [one.trial_id for one in plain.trials if not one.is_finished()]
    for trial in plain.trials:
        seen = cold.trial(trial.trial_id)
        assert msgspec.json.encode(seen) == msgspec.json.encode(trial)
        assert seen.directory == trial.directory and seen.last_result == trial.last_result
        assert trial.is_finished() or vars(seen).get("left") == vars(trial).get("left")
