"""A scheduler around another one, that also changes what running trials get to compute with."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from trainables.metrics import score_of
from trainables.validation import checked_names, flag
from trainables.warned import warn
from tuner.error import SettingError
from tuner.executors.pool import parse_resources
from tuner.schedulers.base import (
    Decision,
    Directive,
    Reallocate,
    Reasoned,
    TrialScheduler,
    TrialView,
    Verdict,
    check_metric,
)
from tuner.schedulers.fifo import FIFOScheduler

T = TypeVar("T", bound=TrialView)
Amounts = dict[str, float]

_TINY = 1e-9
"""Shares of a GPU add up to a whole one within this."""


@dataclass(frozen=True)
class LiveTrial:
    """A trial that has not ended, as a function that distributes resources sees it."""

    trial_id: str
    resources: Amounts
    """What it gets, or is about to get."""
    last_result: dict[str, Any]


@dataclass(frozen=True)
class ClusterView:
    """What a function that distributes resources may know: it stands where Ray hands in its controller."""

    total: Amounts
    """All there is to compute with: {"cpu": 16.0, "gpu": 2.0}."""
    live: tuple[LiveTrial, ...]
    """In the order of creation."""

    def get_live_trials(self) -> list[LiveTrial]:
        """The same as a list."""
        return list(self.live)


Cluster = ClusterView
"""Its name in version 0.1.0."""

Allocation = Callable[[ClusterView, TrialView, dict[str, Any], "ResourceChangingScheduler"], Any]


class DistributeResources:
    """Shares all cores and GPUs among the trials, in equal parts; a trial never gets less than it started with.

    Args:
        add_bundles: what is added are multiples of what a trial started with, not single cores or GPUs.
        increase_by: what is added at a time: {"CPU": 2, "GPU": 0.5}. None: one GPU if the trials have any, else a core.
        increase_by_times: at most so often; below 1: without limit.
        reserve_resources: so much is left free.

    Example:
        >>> scheduler = ResourceChangingScheduler(FIFOScheduler(), DistributeResources(increase_by={"cpu": 2}))
    """

    def __init__(
        self,
        add_bundles: bool = False,
        increase_by: Mapping[str, float] | None = None,
        increase_by_times: int = -1,
        reserve_resources: Mapping[str, float] | None = None,
    ) -> None:
        self.add_bundles = flag("add_bundles", add_bundles)
        self.increase_by = parse_resources(dict(increase_by)) if increase_by else {}
        if isinstance(increase_by_times, bool) or not isinstance(increase_by_times, int):
            raise SettingError(f"increase_by_times={increase_by_times!r} is not accepted; it is a whole number")
        self.increase_by_times = increase_by_times
        self.reserve_resources = parse_resources(dict(reserve_resources)) if reserve_resources else {}

    def __call__(
        self, cluster: ClusterView, trial: TrialView, result: dict[str, Any], scheduler: ResourceChangingScheduler
    ) -> Amounts | None:
        """What the trial gets from now on."""
        base = scheduler.base_trial_resources
        step = self._step(base)
        now = next(live.resources for live in cluster.live if live.trial_id == trial.trial_id)
        total = {name: cluster.total.get(name, 0.0) - self.reserve_resources.get(name, 0.0) for name in step}
        used = {name: sum(live.resources.get(name, 0.0) for live in cluster.live) for name in step}
        free = math.floor(min((total[name] - used[name]) / amount + _TINY for name, amount in step.items()))
        times = round(min((now.get(name, 0.0) - base.get(name, 0.0)) / amount for name, amount in step.items()))
        spare = math.floor(
            min((total[n] - base.get(n, 0.0) * len(cluster.live)) / amount + _TINY for n, amount in step.items())
        )
        share = max(0, math.ceil(spare / len(cluster.live)))
        if self.increase_by_times > 0:
            share = min(share, self.increase_by_times)
        wanted = self._times(cluster, trial, scheduler, max(times, 0), free, share)
        if wanted == times:
            return None
        return {name: base.get(name, 0.0) + wanted * step.get(name, 0.0) for name in {**base, **step}}

    def _step(self, base: Amounts) -> Amounts:
        if self.increase_by:
            return self.increase_by
        if self.add_bundles:
            return {name: amount for name, amount in base.items() if amount > 0}
        return {"gpu": 1.0} if base.get("gpu") else {"cpu": 1.0}

    def _times(
        self,
        cluster: ClusterView,
        trial: TrialView,
        scheduler: ResourceChangingScheduler,
        times: int,
        free: int,
        share: int,
    ) -> int:
        """How often a trial gets the step, beyond its base.

        Args:
            times: how often it has it now.
            free: how many steps are left; below 0: so many too many are taken.
            share: an equal part of all that can be had.
        """
        if free == 0:
            return times
        return max(0, times + free) if free < 0 else min(times + free, share)


class DistributeResourcesToTopJob(DistributeResources):
    """Gives all that is free to the best trial; who was best before keeps what it got, unless too much is taken.

    Args:
        add_bundles, increase_by, increase_by_times, reserve_resources: as for `DistributeResources`.
        metric, mode: what best means; None: the scheduler's.
    """

    def __init__(
        self,
        add_bundles: bool = False,
        increase_by: Mapping[str, float] | None = None,
        increase_by_times: int = -1,
        reserve_resources: Mapping[str, float] | None = None,
        metric: str | None = None,
        mode: str | None = None,
    ) -> None:
        super().__init__(add_bundles, increase_by, increase_by_times, reserve_resources)
        check_metric(type(self).__name__, metric, mode)
        self.metric, self.mode = metric, mode

    def _times(
        self,
        cluster: ClusterView,
        trial: TrialView,
        scheduler: ResourceChangingScheduler,
        times: int,
        free: int,
        share: int,
    ) -> int:
        if free < 0:
            return max(0, times + free)
        most = self.increase_by_times if self.increase_by_times > 0 else math.inf
        step = self._step(scheduler.base_trial_resources)
        growing = [live for live in cluster.live if _steps(live, scheduler.base_trial_resources, step) < most]
        best = max(growing, key=lambda live: self._rank(live.last_result, scheduler), default=None)
        if best is None or best.trial_id != trial.trial_id:
            return times
        return int(min(times + free, most))

    def _rank(self, result: dict[str, Any], scheduler: ResourceChangingScheduler) -> tuple[bool, float]:
        metric, mode = self.ranks_by(scheduler)
        score = score_of(result, metric)
        if score is None or math.isnan(score):
            return False, 0.0
        return True, -score if mode == "min" else score

    def ranks_by(self, scheduler: ResourceChangingScheduler) -> tuple[str, str]:
        """Metric and mode: its own, the scheduler's, or the run's. Raises SettingError if there are none."""
        metric = self.metric or scheduler.metric or scheduler.run_metric
        mode = self.mode or scheduler.mode or scheduler.run_mode
        if not isinstance(metric, str) or not isinstance(mode, str):
            raise SettingError(
                f"{type(self).__name__} needs one metric and mode, and has metric={metric!r}, mode={mode!r}: give them "
                "to it, to the scheduler or to the run"
            )
        return metric, mode


def _steps(live: LiveTrial, base: Amounts, step: Amounts) -> float:
    return min((live.resources.get(name, 0.0) - base.get(name, 0.0)) / amount for name, amount in step.items()) + _TINY


@checked_names
class ResourceChangingScheduler(TrialScheduler):
    """Lets another scheduler decide about the trials, and changes what those get that go on.

    A trial whose resources change is saved, ended, and started again from there when the new ones are free.

    Args:
        base_scheduler: decides; None: a FIFOScheduler.
        resources_allocation_function: called as `function(cluster, trial, result, scheduler)` after each result with
            which a trial goes on; returns all that the trial is to get ({"cpu": 2, "gpu": 1}, or another form that
            `resources_per_trial` accepts), or None: what it has. `cluster` is a `ClusterView`;
            `scheduler.base_trial_resources` is what trials start with. The same arguments give the same answer. None:
            nothing is ever changed.

    Example:
        >>> ResourceChangingScheduler().debug_string()
        '(ResourceChangingScheduler) Using FIFOScheduler'
    """

    def __init__(
        self,
        base_scheduler: TrialScheduler | None = None,
        resources_allocation_function: Allocation | None = DistributeResources(),  # noqa: B008 - it has no state
    ) -> None:
        if base_scheduler is not None and not isinstance(base_scheduler, TrialScheduler):
            raise SettingError(f"base_scheduler={base_scheduler!r} is not accepted; it is a TrialScheduler, or None")
        function = resources_allocation_function
        if function is None:
            warn("resources_allocation_function=None: no trial's resources change", stacklevel=3)
        elif not callable(function):
            raise SettingError(
                f"resources_allocation_function={function!r} is not accepted; it is a function of "
                "(cluster, trial, result, scheduler), or None"
            )
        self.scheduler = base_scheduler or FIFOScheduler()
        self._function = function
        self.run_metric: str | None = None
        self.run_mode: str | None = None
        self._total: Amounts | None = None
        self._base: Amounts = {"cpu": 1.0}
        self._live: dict[str, LiveTrial] = {}

    # --- what is the other scheduler's ------------------------------------------------------------------------

    @property
    def unwrapped(self) -> TrialScheduler:
        """The scheduler that decides, for messages."""
        return self.scheduler

    @property
    def _metric(self) -> str | None:
        return self.scheduler._metric

    @_metric.setter
    def _metric(self, metric: str | None) -> None:
        self.scheduler._metric = metric

    @property
    def _mode(self) -> str | None:
        return self.scheduler._mode

    @_mode.setter
    def _mode(self, mode: str | None) -> None:
        self.scheduler._mode = mode

    @property
    def needs_metric(self) -> bool:  # type: ignore[override]
        return self.scheduler.needs_metric

    @property
    def population(self) -> bool:  # type: ignore[override]
        return self.scheduler.population

    @property
    def time_attr(self) -> str | None:  # type: ignore[override]
        return self.scheduler.time_attr

    def __getattr__(self, name: str) -> Any:
        # Also `on_rollback`, which only schedulers have that take results back.
        if name.startswith("__") or name == "scheduler":
            raise AttributeError(name)
        return getattr(self.scheduler, name)

    def first_config(self, config: dict[str, Any]) -> dict[str, Any]:
        return self.scheduler.first_config(config)

    def on_checkpoint(self, trial: TrialView, iteration: int) -> None:
        self.scheduler.on_checkpoint(trial, iteration)

    def on_trial_start(self, trial: TrialView) -> None:
        self.scheduler.on_trial_start(trial)

    def on_search_end(self) -> None:
        self.scheduler.on_search_end()

    def on_idle(self) -> None:
        self.scheduler.on_idle()

    def orders(self) -> Sequence[Directive]:
        return self.scheduler.orders()

    def choose_trial_to_run(self, pending: Sequence[T]) -> T | None:
        return self.scheduler.choose_trial_to_run(pending)

    def debug_string(self) -> str:
        return f"(ResourceChangingScheduler) {self.scheduler.debug_string()}"

    # --- resources ------------------------------------------------------------------------------------------------

    @property
    def base_trial_resources(self) -> Amounts:
        """What a trial starts with."""
        return dict(self._base)

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Take what the run was given.

        Args:
            metric, mode: for the scheduler that decides.
            spec: `total_resources`: all there is; without it nothing is changed. `trial_resources`: what a trial starts
                with. All of it is handed on too.
        """
        if spec.get("total_resources") is not None:
            self._total = dict(spec["total_resources"])
        if spec.get("trial_resources") is not None:
            self._base = parse_resources(dict(spec["trial_resources"]))
        self.run_metric, self.run_mode = metric, mode
        taken = self.scheduler.set_search_properties(metric, mode, **spec)
        if taken and isinstance(self._function, DistributeResourcesToTopJob):
            self._function.ranks_by(self)  # now, and not at the first result
        return taken

    def on_trial_add(self, trial: TrialView) -> None:
        self._see(trial, {})
        self.scheduler.on_trial_add(trial)

    def _see(self, trial: TrialView, result: dict[str, Any]) -> None:
        known = self._live.get(trial.trial_id)
        if known is not None:  # also what it waits for still
            resources = known.resources
        else:
            resources = dict(trial.resources) if trial.resources is not None else self.base_trial_resources
        self._live[trial.trial_id] = LiveTrial(trial.trial_id, resources, dict(result))

    def on_trial_result(self, trial: TrialView, result: dict[str, Any]) -> Verdict | Reasoned:
        self._see(trial, result)
        answer = self.scheduler.on_trial_result(trial, result)
        verdict = answer.verdict if isinstance(answer, Reasoned) else answer
        if verdict is not Decision.CONTINUE and verdict is not Decision.SAVE:
            return answer
        if self._function is None or self._total is None:
            return answer
        cluster = ClusterView(dict(self._total), tuple(self._live.values()))
        asked = self._function(cluster, trial, result, self)
        wanted = None if asked is None else parse_resources(asked)
        if not wanted or wanted == self._live[trial.trial_id].resources:
            return answer
        self._live[trial.trial_id] = LiveTrial(trial.trial_id, wanted, dict(result))
        return Reallocate(wanted)

    def on_trial_complete(self, trial: TrialView, result: dict[str, Any]) -> None:
        self._live.pop(trial.trial_id, None)
        self.scheduler.on_trial_complete(trial, result)

    def on_trial_error(self, trial: TrialView) -> None:
        self._live.pop(trial.trial_id, None)
        self.scheduler.on_trial_error(trial)

    def on_trial_remove(self, trial: TrialView) -> None:
        self._live.pop(trial.trial_id, None)
        self.scheduler.on_trial_remove(trial)

    def get_state(self) -> dict[str, Any]:
        return {"live": dict(self._live), "scheduler": self.scheduler.get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        self._live = dict(state["live"])
        self.scheduler.set_state(state["scheduler"])
