"""Allocation functions: they distribute a cluster's resources among running trials."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

from trainables.metrics import rank_of, score_of
from trainables.quick_dataclass import dataclass
from trainables.validation import flag
from tuner.error import SettingError, require
from tuner.resources import parse_resources
from tuner.schedulers.base import TrialView, check_metric
from tuner.search.arguments import is_whole
from tuner.search.searcher import Metric

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

    def get_num_cpus(self) -> float:
        """All cores there are, whoever uses them."""
        return self.total.get("cpu", 0.0)

    def get_num_gpus(self) -> float:
        """All GPUs there are."""
        return self.total.get("gpu", 0.0)

    @property
    def trial_executor(self) -> ClusterView:
        """The way to what there is that functions written for Ray go."""
        return self

    _resource_updater = trial_executor


class Reallocating(Protocol):
    """What a function that distributes resources may ask of the scheduler."""

    run_metric: Metric
    run_mode: Metric

    @property
    def base_trial_resources(self) -> Amounts:
        """What a trial starts with."""

    @property
    def metric(self) -> Metric:
        """What trials are compared by."""

    @property
    def mode(self) -> Metric:
        """ "min" or "max"."""


@dataclass(frozen=True)
class _Share:
    """How much one trial has, in steps beyond its base."""

    trial_id: str
    times: int
    """How often it has the step now."""
    free: int
    """How many steps are left; below 0: so many too many are taken."""
    fair: int
    """An equal part of all that can be had."""


@dataclass(eq=False, repr=False)
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

    add_bundles: bool = False
    increase_by: Mapping[str, float] | None = None
    increase_by_times: int = -1
    reserve_resources: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        flag("add_bundles", self.add_bundles)
        require(is_whole(self.increase_by_times), "increase_by_times", self.increase_by_times, "it is a whole number")
        self.increase_by = parse_resources(dict(self.increase_by)) if self.increase_by else {}
        self.reserve_resources = parse_resources(dict(self.reserve_resources)) if self.reserve_resources else {}

    def __call__(
        self, cluster: ClusterView, trial: TrialView, result: dict[str, Any], scheduler: Reallocating
    ) -> Amounts | None:
        """What the trial gets from now on."""
        base = scheduler.base_trial_resources
        step = self._step(base)
        now = next(live.resources for live in cluster.live if live.trial_id == trial.trial_id)
        reserved = self.reserve_resources or {}
        total = {name: cluster.total.get(name, 0.0) - reserved.get(name, 0.0) for name in step}
        used = {name: sum(live.resources.get(name, 0.0) for live in cluster.live) for name in step}
        bases = {name: base.get(name, 0.0) * len(cluster.live) for name in step}
        times = round(_steps(now, base, step))
        fair = max(0, math.ceil(math.floor(_steps(total, bases, step) + _TINY) / len(cluster.live)))
        if self.increase_by_times > 0:
            fair = min(fair, self.increase_by_times)
        share = _Share(trial.trial_id, max(times, 0), math.floor(_steps(total, used, step) + _TINY), fair)
        wanted = self._times(share, cluster, scheduler)
        if wanted == times:
            return None
        return {name: base.get(name, 0.0) + wanted * step.get(name, 0.0) for name in {**base, **step}}

    def _step(self, base: Amounts) -> Mapping[str, float]:
        if self.increase_by:
            return self.increase_by
        if self.add_bundles:
            return {name: amount for name, amount in base.items() if amount > 0}
        return {"gpu": 1.0} if base.get("gpu") else {"cpu": 1.0}

    def _times(self, share: _Share, cluster: ClusterView, scheduler: Reallocating) -> int:
        """How often a trial gets the step, beyond its base."""
        if share.free == 0:
            return share.times
        wanted = share.times + share.free
        return max(0, wanted) if share.free < 0 else min(wanted, share.fair)


@dataclass(eq=False, repr=False)
class DistributeResourcesToTopJob(DistributeResources):
    """Gives all that is free to the best trial; who was best before keeps what it got, unless too much is taken.

    Args:
        add_bundles, increase_by, increase_by_times, reserve_resources: as for `DistributeResources`.
        metric, mode: what best means; None: the scheduler's.
    """

    metric: str | None = None
    mode: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_metric(type(self).__name__, self.metric, self.mode)

    def _times(self, share: _Share, cluster: ClusterView, scheduler: Reallocating) -> int:
        wanted = share.times + share.free
        if share.free < 0:
            return max(0, wanted)
        most = self.increase_by_times if self.increase_by_times > 0 else math.inf
        base = scheduler.base_trial_resources
        step = self._step(base)
        growing = [live for live in cluster.live if _steps(live.resources, base, step) + _TINY < most]
        best = max(growing, key=lambda live: self._rank(live.last_result, scheduler), default=None)
        return int(min(wanted, most)) if best is not None and best.trial_id == share.trial_id else share.times

    def _rank(self, result: dict[str, Any], scheduler: Reallocating) -> tuple[bool, float]:
        metric, mode = self.ranks_by(scheduler)
        score = score_of(result, metric)
        return rank_of(math.nan if score is None else score, mode)

    def ranks_by(self, scheduler: Reallocating) -> tuple[str, str]:
        """Metric and mode: its own, the scheduler's, or the run's. Raises SettingError if there are none."""
        metric = self.metric or scheduler.metric or scheduler.run_metric
        mode = self.mode or scheduler.mode or scheduler.run_mode
        if not isinstance(metric, str) or not isinstance(mode, str):
            raise SettingError(
                f"{type(self).__name__} needs one metric and mode, and has metric={metric!r}, mode={mode!r}: give them "
                "to it, to the scheduler or to the run"
            )
        return metric, mode


def _steps(amounts: Mapping[str, float], base: Mapping[str, float], step: Mapping[str, float]) -> float:
    """How many steps lie between two amounts."""
    return min((amounts.get(name, 0.0) - base.get(name, 0.0)) / amount for name, amount in step.items())
