"""`TrainContext`: trial, rank and resources of the running code, as `get_context()` returns them."""

from __future__ import annotations

from typing import Any

from trainables.bundles import TrialResources
from trainables.job import Job


class TrainContext:
    """Facts about the trial and its place among the workers of a training.

    Outside a trial the facts are None, the rank is 0 of 1, and nothing is asked for, so that the same function runs
    as a plain script too.

    Example:
        >>> TrainContext().get_world_size()
        1
    """

    def __init__(self, job: Job | None = None) -> None:
        self._job = job

    def get_experiment_name(self) -> str | None:
        """The experiment's name."""
        return self._job.experiment_name if self._job else None

    def get_trial_name(self) -> str | None:
        """`<trainable>_<trial id>`, or what `trial_name_creator` made of it."""
        return self._job.trial_name if self._job else None

    def get_trial_id(self) -> str | None:
        """The trial's id, unique in its experiment."""
        return self._job.trial_id if self._job else None

    def get_trial_resources(self) -> TrialResources | None:
        """What the trial was given: {"cpu": 1.0, "gpu": 0.5}."""
        return TrialResources(self._job.resources or {}) if self._job else None

    def get_trial_dir(self) -> str | None:
        """The trial's own directory: results, logs and checkpoints lie there."""
        return str(self._job.directory) if self._job else None

    def get_storage(self) -> None:
        """Nothing: there is no storage object here; `get_trial_dir` says where things lie."""
        return None

    def get_metadata(self) -> dict[str, Any]:
        """What a trainer was given as `metadata=`; a plain trial has none."""
        return {}

    def get_world_size(self) -> int:
        """Workers in this training."""
        return 1

    def get_world_rank(self) -> int:
        """This worker's number among all, from 0."""
        return 0

    def get_local_rank(self) -> int:
        """This worker's number on its host, from 0."""
        return 0

    def get_local_world_size(self) -> int:
        """Workers of this training on this host."""
        return 1

    def get_node_rank(self) -> int:
        """This host's number among the hosts of this training, from 0."""
        return 0

    def get_seed(self) -> int | None:
        """The 64-bit seed that this attempt's generators started from; None outside a trial."""
        return None

    def should_checkpoint(self) -> bool:
        """True when the next report is to come with a checkpoint; the same as `session.should_save()`."""
        return False

    def should_stop(self) -> bool:
        """True once the trial was told to leave: save with `report(..., checkpoint=)` if you can, and return.

        A function that asks decides itself when it returns, and its trial stays unfinished, to be continued. One that
        never asks is ended at its next checkpoint, or after the grace time with its latest one.
        """
        return False
