"""What workers do together, without a process group; with one: torch/test_torch_trainer.py."""

from __future__ import annotations

import pytest

import trainables as train
from trainables.collective import barrier, broadcast_from_rank_zero
from trainables.data_parallel_trainer import DataParallelTrainer
from trainables.errors import TrainingFailedError


def test_alone_there_is_nobody_to_wait_for() -> None:
    barrier()
    value = {"a": 1}
    assert broadcast_from_rank_zero(value) is value


def test_workers_without_a_process_group_are_told(tmp_path: object) -> None:
    scaling = train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5})
    run = train.RunConfig(storage_path=str(tmp_path), name="e", verbose=0)
    with pytest.raises(TrainingFailedError) as failed:
        DataParallelTrainer(barrier, scaling_config=scaling, run_config=run).fit()
    assert "barrier(): these workers have no process group; a TorchTrainer's have one" in str(failed.value.__cause__)
