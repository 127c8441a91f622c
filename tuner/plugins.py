"""The plug-ins of an experiment (searcher, scheduler, stopper, callbacks) behind one face for the loop.

It keeps what they are told consistent: each (trial, iteration) is told once, also after a rollback, unless the plug-in
defines `on_rollback(trial, iteration)`; and it brings them back at a resume: their last snapshot, then the journaled
calls after it, in order.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Literal

import cloudpickle
import msgspec

from trainables import tagged
from trainables.metrics import MISSING, lookup, nearest_keys
from tuner.callback import CallbackList
from tuner.error import MetricMissingError
from tuner.experiment import events as ev
from tuner.experiment.blobs import Blobs
from tuner.experiment.naming import Names, default_dirname
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial
from tuner.schedulers import Decision, TrialScheduler
from tuner.search import Searcher
from tuner.search.space import evaluated_params, merge_constants
from tuner.search.variants import format_tag
from tuner.stopper import Stopper

log = logging.getLogger(__name__)


class Plugins:
    """Searcher, scheduler, stopper and callbacks of one experiment."""

    def __init__(
        self,
        *,
        searcher: Searcher,
        scheduler: TrialScheduler,
        stopper: Stopper | None,
        callbacks: CallbackList,
        blobs: Blobs | None,
        space: dict[str, Any],
        num_samples: int,
        trial_prefix: str,
        trainable_name: str,
        names: Names,
        strict_metrics: bool = True,
    ) -> None:
        self.searcher, self.scheduler, self.stopper, self.callbacks = searcher, scheduler, stopper, callbacks
        self.num_samples = num_samples
        self._blobs, self._space = blobs, space
        self._prefix, self._trainable_name, self._names = trial_prefix, trainable_name, names
        self._strict = strict_metrics
        self._seen: set[str] = set()
        self._stop_all = False

    # --- creating and choosing ----------------------------------------------------------------------

    def create(self, state: ExperimentState) -> ev.TrialCreated | ev.SearchEnded | None:
        """The next trial, or that there is none any more, or None: not now."""
        samples = self.num_samples
        if not self.more_to_come(state):
            return None
        index = len(state.trials)
        trial_id = f"{self._prefix}_{index:05d}"
        suggestion = self.searcher.suggest(trial_id)
        if suggestion is None:
            return None
        if suggestion is Searcher.FINISHED:
            return ev.SearchEnded(samples)
        assert isinstance(suggestion, dict)
        return self._created(trial_id, index, merge_constants(self._space, suggestion))

    def more_to_come(self, state: ExperimentState) -> bool:
        """False once the searcher has said that there are no more trials, or a stopper has stopped everything."""
        return not self._stop_all and (state.search_ended is None or not 0 <= self.num_samples <= state.search_ended)

    def _created(self, trial_id: str, index: int, config: dict[str, Any]) -> ev.TrialCreated:
        evaluated = evaluated_params(self._space, config)
        trial = Trial(
            trial_id=trial_id,
            index=index,
            trainable_name=self._trainable_name,
            name=f"{self._trainable_name}_{trial_id}",
            dirname=default_dirname(self._trainable_name, trial_id),
            raw_config=_tagged(config, self._blobs),
            raw_evaluated=_tagged(evaluated, self._blobs),
            experiment_tag=format_tag(index, evaluated),
        )
        trial.__dict__["config"] = config
        name, dirname = self._names.of(trial)
        return ev.TrialCreated(
            trial=trial_id,
            index=index,
            config=trial.raw_config,
            evaluated=trial.raw_evaluated,
            tag=trial.experiment_tag,
            trainable=self._trainable_name,
            name=name,
            dirname=dirname,
        )

    def choose(self, pending: Sequence[Trial]) -> Trial | None:
        """Which of the waiting trials runs next."""
        return self.scheduler.choose_trial_to_run(pending)

    # --- results ------------------------------------------------------------------------------------------

    def decide(
        self, trial: Trial, result: dict[str, Any], iteration: int, again: bool
    ) -> Literal["continue", "stop", "pause"]:
        """Tell everybody of a result, and say what the trial does next."""
        journaled = trial.told_then if iteration == trial.told else "continue"
        stop = bool(result.get("done")) or self._stop_all
        if self.stopper is not None and self._tell(self.stopper, again):
            stop = self.stopper(trial.trial_id, result) or stop
            if self.stopper.stop_all():
                self._stop_all = stop = True
        decision = Decision.CONTINUE
        if self._tell(self.searcher, again) and self._has_metric(self.searcher, result):
            self.searcher.on_trial_result(trial.trial_id, result)
        if self._tell(self.scheduler, again) and not stop and self._has_metric(self.scheduler, result):
            decision = self.scheduler.on_trial_result(trial, result)
        if stop or decision is Decision.STOP or (again and journaled == "stop"):
            return "stop"
        return "pause" if decision is Decision.PAUSE else "continue"

    @staticmethod
    def _tell(plugin: object, again: bool) -> bool:
        return not again or hasattr(plugin, "on_rollback")

    def _has_metric(self, plugin: Searcher | TrialScheduler, result: dict[str, Any]) -> bool:
        for metric in _metrics_of(plugin):
            if metric in self._seen and metric in result:
                continue
            if lookup(result, metric) is not MISSING:
                self._seen.add(metric)
                continue
            if metric not in self._seen and self._strict:
                label = type(getattr(plugin, "unwrapped", plugin)).__name__
                raise MetricMissingError(
                    f"{label} needs the metric {metric!r}, which the first result does not have; "
                    f"reported were: {', '.join(nearest_keys(result, metric))}"
                )
            return False
        return True

    def on_trial_add(self, trial: Trial) -> None:
        self.scheduler.on_trial_add(trial)

    def on_trial_end(self, trial: Trial, last: dict[str, Any], *, failed: bool) -> None:
        self.searcher.on_trial_complete(trial.trial_id, result=last or None, error=failed)
        if failed:
            self.scheduler.on_trial_error(trial)
        else:
            self.scheduler.on_trial_complete(trial, last)

    def on_rollback(self, trial: Trial, iteration: int) -> None:
        """Results after `iteration` are void."""
        for plugin in (self.searcher, self.scheduler, self.stopper):
            tell = getattr(plugin, "on_rollback", None)
            if tell is not None:
                tell(trial, iteration)
        self.callbacks.on_rollback(trial, iteration)

    # --- coming back ----------------------------------------------------------------------------------------

    def save(self) -> dict[str, str]:
        """Store every plug-in's state as a blob; returns plug-in -> hash."""
        if self._blobs is None:
            return {}
        states = {
            "searcher": self.searcher.get_state(),
            "scheduler": self.scheduler.get_state(),
            "callbacks": self.callbacks.get_state(),
        }
        if self.stopper is not None:
            states["stopper"] = self.stopper.get_state()
        return {name: self._blobs.put(cloudpickle.dumps(state)) for name, state in states.items()}

    def discard(self, hashes: Collection[str]) -> None:
        """Remove the blobs of states that no snapshot names any more."""
        if self._blobs is not None and hashes:
            self._blobs.gc((), among=hashes)

    def load(self, saved: dict[str, str]) -> None:
        """Bring the plug-ins to the state of a snapshot."""
        for name, digest in saved.items():
            plugin = getattr(self, name, None)
            if plugin is not None and self._blobs is not None:
                plugin.set_state(cloudpickle.loads(self._blobs.get(digest)))

    def replay(self, state: ExperimentState, facts: Iterable[ev.AnyFact]) -> None:
        """Apply the facts after a snapshot to `state`, and tell the plug-ins what they were told then."""
        warned = False
        told = self.callbacks.stateful()
        for fact in facts:
            if isinstance(fact, ev.ResultReported):
                trial = self._trial(state, fact.trial)
                result: dict[str, Any] = tagged.loads(bytes(fact.metrics))
                if len(told):
                    shown = dict(result)
                    told.on_trial_result(0, state.trials, trial, shown)
                    told.after_trial_result(0, state.trials, trial, shown)
                self.decide(trial, result, fact.iteration, fact.iteration <= trial.told)
                state.add_result(trial, fact, result)
                continue
            last = self._trial(state, fact.trial).last_result if isinstance(fact, ev.TrialEnded) else {}
            state.apply(fact)
            if isinstance(fact, ev.TrialCreated):
                trial = state.trials[-1]
                if not self.searcher.replay_suggest(trial.trial_id, trial.config) and not warned:
                    warned = True
                    log.warning(
                        "the searcher would now suggest another config for %s; the journal's stands", trial.name
                    )
                self.scheduler.on_trial_add(trial)
            elif isinstance(fact, ev.AttemptStarted):
                told.on_trial_start(0, state.trials, self._trial(state, fact.trial))
            elif isinstance(fact, ev.CheckpointPublished):
                told.on_trial_save(0, state.trials, self._trial(state, fact.ref.trial_id))
            elif isinstance(fact, ev.RolledBack):
                trial = self._trial(state, fact.trial)
                told.on_rollback(trial, fact.iteration)
                for plugin in (self.searcher, self.scheduler, self.stopper):
                    tell = getattr(plugin, "on_rollback", None)
                    if tell is not None:
                        tell(trial, fact.iteration)
            elif isinstance(fact, ev.TrialEnded):
                trial, failed = self._trial(state, fact.trial), fact.status == "ERROR"
                self.on_trial_end(trial, last, failed=failed)
                (told.on_trial_error if failed else told.on_trial_complete)(0, state.trials, trial)
        self._stop_all = self.stopper is not None and self.stopper.stop_all()

    @staticmethod
    def _trial(state: ExperimentState, trial_id: str) -> Trial:
        trial = state.trials.get(trial_id)
        assert trial is not None, trial_id
        return trial


def _metrics_of(plugin: Searcher | TrialScheduler) -> Sequence[str]:
    metric = plugin.metric
    if metric is None:
        return ()
    return (metric,) if isinstance(metric, str) else tuple(metric)


def _tagged(value: Any, blobs: Blobs | None) -> msgspec.Raw:
    return msgspec.Raw(tagged.dumps(value, blobs=blobs))
