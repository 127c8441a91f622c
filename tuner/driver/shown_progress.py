"""What the live view shows of a run, gathered from its parts when it is drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from tuner.driver.attempts import LiveAttempt
from tuner.driver.plugins import TrialSource
from tuner.executors.base import Executor
from tuner.experiment.state import ExperimentState
from tuner.progress import ProgressFacts
from tuner.progress.counts import UnsavedWork
from tuner.resources import memory_in_use
from tuner.syncer.sink import ReplicaSink


def progress_facts(
    source: TrialSource,
    state: ExperimentState,
    copies: ReplicaSink,
    executor: Executor,
    running: Mapping[str, LiveAttempt],
) -> ProgressFacts:
    """How the run stands now.

    Args:
        running: the attempts that run.
    """
    backlog = copies.backlog
    used: Counter[str] = Counter()
    for run in running.values():
        used.update(run.resources)
    there = executor.total()
    return ProgressFacts.by_status(
        state.counts,
        checkpoints=state.checkpoint_count,
        checkpoint_bytes=state.checkpoint_bytes,
        to_copy=backlog.checkpoints,
        bytes_to_copy=backlog.bytes,
        copy_error=backlog.error,
        used=used,
        total={name: amount for name, amount in there.items() if used.get(name) or (name == "cpu" and amount)},
        memory=memory_in_use(),
        unsaved=UnsavedWork.of(run.trial for run in running.values()),
        planned=max(0, source.planned(state)),
    )
