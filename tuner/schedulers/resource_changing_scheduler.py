"""`ResourceChangingScheduler`: wraps a scheduler and reallocates resources among running trials."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainables.bundles import TrialResources
from trainables.validation import checked_names
from trainables.warned import warn
from tuner.error import refused, require
from tuner.resources import parse_resources
from tuner.schedulers.base import Decision, Reallocate, Reasoned, TrialScheduler, TrialView, Verdict
from tuner.schedulers.distribute_resources import Amounts, ClusterView, DistributeResources, LiveTrial
from tuner.schedulers.distribute_resources import DistributeResourcesToTopJob as DistributeResourcesToTopJob
from tuner.schedulers.fifo import FIFOScheduler
from tuner.search.arguments import fitting
from tuner.search.delegation import delegates
from tuner.search.searcher import Metric

Cluster = ClusterView
"""Its name in version 0.1.0."""

Allocation = Callable[[ClusterView, TrialView, dict[str, Any], Any], Any]

_PASSED_ON = (
    "_metric", "_mode", "needs_metric", "several_metrics", "population", "sees_new", "time_attr", "first_config",
    "changed_params",
    "on_checkpoint", "on_trial_start", "on_search_end", "on_trial_held", "on_idle", "orders",
    "choose_trial_to_run",
)  # fmt: skip


@checked_names
@delegates("scheduler", *_PASSED_ON)
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

    _remembered = ("_live", "scheduler")

    def __init__(
        self,
        base_scheduler: TrialScheduler | None = None,
        resources_allocation_function: Allocation | None = DistributeResources(),  # noqa: B008 - it has no state
    ) -> None:
        fits = base_scheduler is None or isinstance(base_scheduler, TrialScheduler)
        require(fits, "base_scheduler", base_scheduler, "it is a TrialScheduler, or None")
        function = resources_allocation_function
        if function is None:
            warn("resources_allocation_function=None: no trial's resources change", stacklevel=3)
        elif not callable(function):
            accepted = "it is a function of (cluster, trial, result, scheduler), or None"
            raise refused("resources_allocation_function", function, accepted)
        self.scheduler = base_scheduler or FIFOScheduler()
        self._function = function
        self.run_metric: Metric = None
        self.run_mode: Metric = None
        self._total: Amounts | None = None
        self._base: Amounts = {"cpu": 1.0}
        self._live: dict[str, LiveTrial] = {}

    def __getattr__(self, name: str) -> Any:
        # Also `on_rollback`, which only schedulers have that take results back.
        if name.startswith("__") or name == "scheduler":
            raise AttributeError(name)
        return getattr(self.scheduler, name)

    def debug_string(self) -> str:
        return f"(ResourceChangingScheduler) {self.scheduler.debug_string()}"

    @property
    def base_trial_resources(self) -> TrialResources:
        """What a trial starts with."""
        return TrialResources(self._base)

    _base_trial_resources = base_trial_resources
    """As functions read it that were written after Ray's example."""

    def set_search_properties(self, metric: Metric, mode: Metric, **spec: Any) -> bool:
        """Take what the run was given, and hand all of it on.

        Of `spec` `total_resources`: all there is, without which nothing is changed; `trial_resources`: what a trial
        starts with.
        """
        if spec.get("total_resources") is not None:
            self._total = dict(spec["total_resources"])
        if spec.get("trial_resources") is not None:
            self._base = parse_resources(dict(spec["trial_resources"]))
        self.run_metric, self.run_mode = metric, mode
        known = fitting(self.scheduler.set_search_properties, spec)
        taken = self.scheduler.set_search_properties(metric, mode, **known)
        if taken and isinstance(self._function, DistributeResourcesToTopJob):
            self._function.ranks_by(self)  # now, and not at the first result
        return taken

    def on_trial_add(self, trial: TrialView) -> None:
        self._see(trial, {})
        self.scheduler.on_trial_add(trial)

    def on_trial_fork(self, trial: TrialView, result: dict[str, Any]) -> None:
        self.scheduler.on_trial_fork(trial, result)

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
