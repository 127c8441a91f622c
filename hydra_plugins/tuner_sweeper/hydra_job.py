"""One job of a multirun, run in a trial's process as Hydra's own launcher runs it in its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any

from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, run_job, setup_globals
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict

from hydra_plugins.tuner_sweeper.swept_space import overrides_of

OBJECTIVE = "objective"
"""The metric of a function that returns a number, where no other name is given."""


def trainable_of(
    context: HydraContext, task: TaskFunction, config: DictConfig, metric: str | Sequence[str] | None
) -> Callable[[Mapping[str, Any]], None]:
    """A trainable whose trials are the jobs of a multirun.

    Args:
        context: Of the sweep.
        task: What `@hydra.main` is around.
        config: Of the sweep, with its `hydra`.
        metric: The settings' `metric`.
    """
    state = Singleton.get_state()  # what is registered with Hydra, which a process of its own has not
    directory = os.path.abspath(config.hydra.sweep.dir)

    def job(values: Mapping[str, Any]) -> None:
        import tuner as tune
        from trainables import session

        attempt: Any = session.current()
        Singleton.set_state(state)
        setup_globals()
        job_config = context.config_loader.load_sweep_config(config, overrides_of(values))
        with open_dict(job_config):
            job_config.hydra.job.id = job_config.hydra.job.num = attempt.job.index
            job_config.hydra.sweep.dir = directory
        done: JobReturn = run_job(
            task_function=task,
            config=job_config,
            job_dir_key="hydra.sweep.dir",
            job_subdir_key="hydra.sweep.subdir",
            hydra_context=context,
        )
        result = done.return_value  # raises what the job raised
        if attempt.keys.iteration == 0 and (metrics := metrics_of(result, metric)) is not None:
            tune.report(metrics)

    job.__name__ = job.__qualname__ = str(config.hydra.job.name)
    return job


def metrics_of(returned: Any, metric: str | Sequence[str] | None) -> dict[str, Any] | None:
    """What a job's function returned, as metrics: a number is the metric, several are all of them, a dict is itself.

    None where it says nothing. Raises TypeError for something else, where a metric is wanted.
    """
    names = [metric or OBJECTIVE] if isinstance(metric, str | None) else list(metric)
    if isinstance(returned, Mapping):
        return {str(key): value for key, value in returned.items()}
    values = list(returned) if isinstance(returned, list | tuple) else [returned]
    values = [value.item() if callable(getattr(value, "item", None)) else value for value in values]
    if len(values) == len(names) and all(isinstance(value, Real) for value in values):
        return dict(zip(names, values, strict=True))
    if returned is None or metric is None:
        return None
    raise TypeError(
        f"the job's function returned {returned!r}; accepted are a dict with {' and '.join(names)}, "
        + ("a number" if len(names) == 1 else f"{len(names)} numbers, in that order")
        + ", and None where it calls tune.report itself"
    )
