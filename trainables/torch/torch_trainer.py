"""`TorchTrainer`: data-parallel training with torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trainables.checkpoint import Checkpoint
from trainables.config import RunConfig, ScalingConfig
from trainables.data_parallel_trainer import DataParallelTrainer
from trainables.errors import MissingExtraError
from trainables.extras import how_to_install
from trainables.group.framework import Framework
from trainables.torch.launch import TorchBackend
from trainables.torch.torch_config import TorchConfig
from trainables.validation import checked_names, instance_of


@checked_names
class TorchTrainer(DataParallelTrainer):
    """Runs `train_loop_per_worker` in `scaling_config.num_workers` processes that form a torch process group.

    In it, `trainables.torch.prepare_model` wraps the model, `prepare_data_loader` gives each process its share of the
    data, and `report(metrics, checkpoint=)` is called by all of them, equally often. The names of a wrapped model's
    parameters lose DDP's `module.` in a dict checkpoint.

    Args:
        train_loop_per_worker: a function of no argument, or of the config.
        train_loop_config: its config; in a Tuner `param_space={"train_loop_config": {...}}` is laid over it.
        torch_config: how the processes find each other, and how long they wait for one another.
        scaling_config: how many workers there are, and what each gets; `use_gpu=True` gives each a GPU.
        run_config: name, storage, checkpoints, failures.
        resume_from_checkpoint: what `get_checkpoint()` returns at first.
        metadata: what `get_context().get_metadata()` returns in the workers.

    Raises InvalidSettingError, MissingExtraError where torch is not installed.

    Example:
        >>> scaling = ScalingConfig(num_workers=2)
        >>> trainer = TorchTrainer(train_func, train_loop_config={"lr": 0.1}, scaling_config=scaling)
        >>> result = trainer.fit()
        >>> result.metrics, result.checkpoint
    """

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        *,
        train_loop_config: Mapping[str, Any] | None = None,
        torch_config: TorchConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        resume_from_checkpoint: Checkpoint | None = None,
        metadata: Mapping[str, Any] | None = None,
        datasets: None = None,
    ) -> None:
        import importlib.util

        if importlib.util.find_spec("torch") is None:
            raise MissingExtraError(f"TorchTrainer needs torch: {how_to_install('torch')}")
        super().__init__(
            train_loop_per_worker,
            train_loop_config=train_loop_config,
            backend_config=TorchConfig() if torch_config is None else torch_config,
            scaling_config=scaling_config,
            run_config=run_config,
            resume_from_checkpoint=resume_from_checkpoint,
            metadata=metadata,
            datasets=datasets,
        )

    def backend_of(self, scaling: ScalingConfig) -> Framework:
        instance_of("TorchTrainer: torch_config", self.backend_config, (TorchConfig,))
        return TorchBackend(self.backend_config, scaling.num_gpus_per_worker)
