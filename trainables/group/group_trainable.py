"""`GroupTrainable`: what a trial of a data-parallel trainer runs: its process leads a group of others."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from trainables import session
from trainables.config import ScalingConfig
from trainables.errors import InvalidSettingError, SessionError
from trainables.group.framework import Framework, GroupSpec
from trainables.job import Job
from trainables.runtime.attempt import Attempt
from trainables.validation import invalid


class GroupTrainer(Protocol):
    """What travels to the trials of a trainer: what runs in its workers, and how many there are."""

    scaling_config: ScalingConfig
    metadata: dict[str, Any]
    train_loop_per_worker: Callable[..., Any]
    train_loop_config: Mapping[str, Any] | None
    before: Callable[[], None] | None

    @property
    def param_space(self) -> dict[str, Any]: ...

    def backend_of(self, scaling: ScalingConfig) -> Framework: ...


class GroupTrainable:
    """A trainer as a function trainable: the trial's process leads the group."""

    def __init__(self, trainer: GroupTrainer) -> None:
        self.trainer = trainer
        self.__name__ = self.__qualname__ = type(trainer).__name__
        self.__module__ = type(trainer).__module__
        self.preload = tuple(trainer.backend_of(trainer.scaling_config).preload)
        self.train_loop = trainer.train_loop_per_worker
        self._tune_resources = trainer.scaling_config.total_resources

    collects = False
    """What every rank reports is part of the result."""

    def checked_space(self, space: Mapping[str, Any]) -> dict[str, Any]:
        """A search space as searchers read it: laid over the trainer's own config; a ScalingConfig is laid open.

        Raises InvalidSettingError for what no worker gets.
        """
        if unknown := sorted(map(str, set(space) - {"train_loop_config", "scaling_config"})):
            raise InvalidSettingError(
                f"{self.__name__} got {', '.join(unknown)} in its config: what its workers get is under "
                '"train_loop_config", as in Tuner(trainer, param_space={"train_loop_config": {...}}), and how many '
                'there are under "scaling_config"'
            )
        given = space.get("train_loop_config", {})
        if given is None or isinstance(given, str | int | float | list | tuple):
            raise invalid(f"{self.__name__}: train_loop_config", given, "a dict")
        found = {**self.trainer.param_space, **space}
        if isinstance(given, Mapping) and "grid_search" not in given:  # of whole dicts there is nothing to lay over
            found |= {key: {**value, **given} for key, value in self.trainer.param_space.items()}
        return {key: laid_open(value) if isinstance(value, ScalingConfig) else value for key, value in found.items()}

    def scaling_of(self, config: Mapping[str, Any]) -> ScalingConfig:
        """How a trial with this config is scaled: its own `scaling_config` is laid over the trainer's."""
        given = config.get("scaling_config")
        if given is None:
            return self.trainer.scaling_config
        if isinstance(given, ScalingConfig):
            scaling = given
        elif isinstance(given, Mapping):
            scaling = ScalingConfig(**{**laid_open(self.trainer.scaling_config), **given})
        else:
            raise invalid(f"{self.__name__}: scaling_config", given, "a ScalingConfig, or a dict of its arguments")
        check_scaling(self.__name__, scaling)
        return scaling

    def resources_for(self, config: Mapping[str, Any]) -> dict[str, float] | None:
        """What a trial with this config gets; None: what all get."""
        return self.scaling_of(config).total_resources if "scaling_config" in config else None

    def __call__(self, config: Mapping[str, Any]) -> None:
        self.lead(config)

    def bundles(self, resources: Mapping[str, float]) -> list[dict[str, float]] | None:
        """What each worker of a trial with these resources needs, the trainer's own with the first; None: who knows.

        Names are lower-case, as executors have them. None too where the group is to be on one node.
        """
        scaling = self.trainer.scaling_config
        if scaling.placement_strategy == "STRICT_PACK":
            return None
        worker, own = _lower(scaling.worker_resources), _lower(scaling.trainer_resources or {})
        left = {name: resources.get(name, 0.0) - own.get(name, 0.0) for name in {*resources, *own, *worker}}
        workers = round(max((left[name] / amount for name, amount in worker.items()), default=0))
        if workers < 1 or any(abs(left[name] - workers * worker.get(name, 0.0)) > 1e-6 for name in left):
            return None
        first = {name: worker.get(name, 0.0) + own.get(name, 0.0) for name in {*worker, *own}}
        return [first, *(dict(worker) for _ in range(workers - 1))]

    @property
    def strategy(self) -> str:
        """How workers are placed on the nodes of a cluster."""
        given = self.trainer.scaling_config.placement_strategy
        return given if isinstance(given, str) else "PACK"

    def follow(self, job: Job) -> None:
        """Start and watch the workers of one of the nodes, where the group is on several."""
        from trainables.group.node_launcher import NodeLauncher

        config = job.config
        trainer, scaling = self.trainer, self.scaling_of(config)
        NodeLauncher(job, self._group(scaling)).run(_bound(trainer, config))

    def lead(self, config: Mapping[str, Any]) -> list[Any]:
        """Run the group; what its ranks returned."""
        from trainables.group.leader import Leader  # the driver needs none of it

        attempt = session.current()
        if not isinstance(attempt, Attempt):
            raise SessionError(f"{self.__name__} has to be run by fit(), by a Tuner, or by tune.run")
        self.checked_space(config)
        trainer, scaling = self.trainer, self.scaling_of(config)
        return Leader(attempt, self._group(scaling)).run(_bound(trainer, config))

    def _group(self, scaling: ScalingConfig) -> GroupSpec:
        return GroupSpec(
            self.trainer.backend_of(scaling),
            scaling.num_workers,
            threads=max(1, int(scaling.num_cpus_per_worker)),
            metadata=self.trainer.metadata,
            collects=self.collects,
        )


def _lower(resources: Mapping[str, float]) -> dict[str, float]:
    return {{"CPU": "cpu", "GPU": "gpu"}.get(name, name): float(amount) for name, amount in resources.items()}


def check_scaling(owner: str, scaling: ScalingConfig) -> None:
    """Raise InvalidSettingError for one without workers."""
    workers = scaling.num_workers
    if not isinstance(workers, int) or workers < 1:
        raise invalid(
            f"{owner}: ScalingConfig(num_workers)",
            workers,
            'a whole number >= 1; to search for it, Tuner(trainer, param_space={"scaling_config": ScalingConfig(...)})',
        )


def laid_open(scaling: ScalingConfig) -> dict[str, Any]:
    """The arguments that make such a ScalingConfig; those about placement only if given."""
    usual = vars(ScalingConfig())
    always = ("num_workers", "use_gpu", "trainer_resources", "resources_per_worker")
    return {name: value for name, value in vars(scaling).items() if name in always or value != usual[name]}


def check_train_loop(owner: str, function: Any) -> bool:
    """Whether a training function takes a config. Raises InvalidSettingError for one that cannot be called."""
    accepted = "a function of no argument or of the config: def train_func(config)"
    if not callable(function) or inspect.isclass(function):
        raise invalid(f"{owner}: train_loop_per_worker", function, accepted)
    lazy = (inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction)
    if any(kind(function) for kind in lazy):
        raise invalid(
            f"{owner}: train_loop_per_worker", function, "a plain function that calls report(), without yield and async"
        )
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return True  # something built in: the call will say
    required = [p for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if len(required) > 1 or any(p.kind is p.KEYWORD_ONLY for p in required):
        raise invalid(f"{owner}: train_loop_per_worker", function, accepted)
    return any(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL) for p in parameters)


def _bound(trainer: GroupTrainer, config: Mapping[str, Any]) -> Callable[[], Any]:
    """The function with what it takes, and what comes before it."""
    function = trainer.train_loop_per_worker
    if check_train_loop(type(trainer).__name__, function):
        function = partial(function, {**(trainer.train_loop_config or {}), **config.get("train_loop_config", {})})
    return function if trainer.before is None else partial(_after, trainer.before, function)


def _after(before: Callable[[], None], function: Callable[[], Any]) -> Any:
    before()
    return function()
