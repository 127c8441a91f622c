"""An attempt that goes on under the next driver is the one that it was; a further one is not."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from trainables import tagged
from trainables.wire import CheckpointRef
from tuner.experiment import events as ev
from tuner.experiment.state import ExperimentState


def raw(**values: object) -> msgspec.Raw:
    return msgspec.Raw(tagged.dumps(values))


@pytest.fixture
def state(tmp_path: Path) -> ExperimentState:
    """Of a trial whose driver was killed while its first checkpoint was on its way."""
    made = ExperimentState(tmp_path)
    made.apply(ev.TrialCreated("a_0", 0, raw(x=1), raw(x=1), "0", "train", "train_a_0", "train_a_0"))
    made.apply(ev.AttemptStarted("a_0", 1, 1, 0.0))
    made.apply(ev.ResultReported("a_0", 1, 1, raw(loss=3), "continue", saves=True))
    made.apply(ev.ResultReported("a_0", 1, 2, raw(loss=2), "continue"))
    made.apply(ev.AttemptEnded("a_0", 1, "halted"))
    return made


def test_what_was_on_its_way_belongs_to_its_own_result(state: ExperimentState) -> None:
    state.apply(ev.AttemptStarted("a_0", 1, 1, 1.0, iteration=2))
    trial = state.trial("a_0")
    assert (trial.status, trial.iteration, trial.lineage) == ("RUNNING", 2, [(1, 1)])
    state.apply(ev.CheckpointPublished(CheckpointRef("a_0", "checkpoint_000001", 1, 1, 1, 1), 10, "", 2.0))
    (record,) = trial.own_checkpoints
    assert record.metrics == {"loss": 3}
    assert (record.summary["loss"][0], trial.metric_summary["loss"][0]) == (3, 2)
    assert trial.save_due == 0


def test_of_a_further_attempt_nothing_is_on_its_way(state: ExperimentState) -> None:
    state.apply(ev.RolledBack("a_0", 2, 0))
    state.apply(ev.AttemptStarted("a_0", 2, 2, 1.0))
    trial = state.trial("a_0")
    assert (trial.iteration, trial.unsaved, trial.lineage) == (0, {}, [(2, 2)])
