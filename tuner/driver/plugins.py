"""The plug-ins of an experiment (searcher, scheduler, stopper, callbacks) behind one face for the loop.

It keeps what they are told consistent: each (trial, iteration) is told once, also after a rollback, unless the plug-in
defines `on_rollback(trial, iteration)`; and it brings them back at a resume: their last snapshot, then the journaled
calls after it, in order.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import cloudpickle
import msgspec

from trainables import tagged
from trainables.errors import MetricError
from trainables.metrics import MISSING, as_score, lookup, nearest_keys, score_of
from tuner.callback import CallbackList
from tuner.driver.warm_start import learn_from_earlier
from tuner.error import ExperimentDamagedError, MetricMissingError, ResourceError, SerializationError, SettingError
from tuner.executors.base import Resources
from tuner.executors.pool import parse_resources
from tuner.experiment import events as ev
from tuner.experiment import unpickling
from tuner.experiment.blobs import Blobs
from tuner.experiment.naming import TrialNames, default_dirname
from tuner.experiment.reason import Reason, ReasonKind
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial
from tuner.schedulers import Decision, TrialScheduler
from tuner.schedulers.base import Directive, Exploit, Reallocate, Reasoned, Verdict, split
from tuner.search import Searcher
from tuner.search.searcher import Metric
from tuner.search.space import evaluated_params, merge_constants
from tuner.search.variants import format_tag
from tuner.stopper import Stopper

log = logging.getLogger(__name__)

_STATEFUL = ("searcher", "scheduler", "stopper", "callbacks")


class Plugins:
    """Searcher, scheduler, stopper and callbacks of one experiment.

    A metric that searcher or scheduler needs, and the scheduler's `time_attr`, have to be in the first result: an error
    with the nearest keys else. The run's own metric, where neither of them uses it, is warned of.
    """

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
        names: TrialNames,
        metric: str | Sequence[str] | None = None,
        strict_metrics: bool = True,
        resources_for: Callable[[Mapping[str, Any]], dict[str, float] | None] = lambda config: None,
        fits: Callable[[Resources], object] = lambda resources: None,
    ) -> None:
        self.searcher, self.scheduler, self.stopper, self.callbacks = searcher, scheduler, stopper, callbacks
        self.num_samples = num_samples
        self._blobs, self._space = blobs, space
        self._prefix, self._trainable_name, self._names = trial_prefix, trainable_name, names
        self._strict = strict_metrics
        self._resources_for, self._fits = resources_for, fits
        self._unused = set(_listed(metric)).difference(_listed(searcher.metric), _listed(scheduler.metric))
        self._seen: set[str] = set()
        self._no_number: set[str] = set()
        """Metrics that were warned of because a result had something else there."""
        self._stop_all = False
        self._asked: dict[str, int] = {}
        """Trial -> iteration at which the scheduler first wanted a checkpoint of it."""
        self._spoke_of_saving = False
        self._paused: set[str] = set()
        self.warmed = False
        """The searcher has learned from earlier experiments, which no fact says: a snapshot is to keep it."""
        self.ordered: dict[str, Directive] = {}
        """What is to happen to trials once they wait: decided, and not done yet."""

    # --- creating and choosing ----------------------------------------------------------------------

    def create(self, state: ExperimentState) -> ev.TrialCreated | ev.SearchEnded | None:
        """The next trial, or that there is none any more, or None: not now."""
        samples = self.num_samples
        if not self.more_to_come(state):
            return None
        index = len(state.trials)
        trial_id = f"{self._prefix}_{index:05d}"
        with _blamed(self.searcher, f"suggest({trial_id!r})"):
            suggestion = self.searcher.suggest(trial_id)
        if suggestion is None:
            return None
        if isinstance(suggestion, str) and suggestion == Searcher.FINISHED:
            return ev.SearchEnded(samples)
        if not isinstance(suggestion, dict):
            raise SettingError(
                f"{_label(self.searcher)}.suggest({trial_id!r}) returned {suggestion!r}, which is not accepted; "
                "accepted are a config (a dict), None (none now) and Searcher.FINISHED (never again)"
            )
        self.searcher.prepare(f"{self._prefix}_{index + 1:05d}")
        return self._created(trial_id, index, merge_constants(self._space, suggestion))

    def more_to_come(self, state: ExperimentState) -> bool:
        """False once the searcher has said that there are no more trials, or a stopper has stopped everything."""
        return not self._stop_all and (state.search_ended is None or not 0 <= self.num_samples <= state.search_ended)

    def all_created(self, state: ExperimentState) -> bool:
        """The searcher's next word is that there are no more trials, as far as is known."""
        return 0 <= self.total_samples <= len(state.trials)

    @property
    def total_samples(self) -> int:
        """How many trials there will be in all, grids included, as far as the searcher knows; -1: no end is known."""
        total = getattr(self.searcher, "total", None)
        return total if isinstance(total, int) else -1

    def _created(self, trial_id: str, index: int, suggested: dict[str, Any]) -> ev.TrialCreated:
        with _blamed(self.scheduler, "first_config"):
            config = self.scheduler.first_config(suggested)
        evaluated = evaluated_params(self._space, config)
        evaluated.update({key: value for key, value in config.items() if key not in suggested})
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
            resources=self._resources_for(config),
        )

    def wants_population(self, state: ExperimentState) -> bool:
        """All trials are to be created before one goes on; not of a search without end."""
        return self.scheduler.population and self.num_samples > 0 and self.more_to_come(state)

    def choose(self, pending: Sequence[Trial]) -> Trial | None:
        """Which of the waiting trials runs next."""
        with _blamed(self.scheduler, "choose_trial_to_run"):
            return self.scheduler.choose_trial_to_run(pending)

    # --- results ------------------------------------------------------------------------------------------

    def decide(
        self, trial: Trial, result: dict[str, Any], iteration: int, again: bool
    ) -> tuple[Verdict, Reason | None]:
        """Tell everybody of a result, and say what the trial does next, and why if that is not to go on."""
        journaled = trial.told_then if iteration == trial.told else "continue"
        reason = Reason(ReasonKind.DONE, trial.trainable_name, iteration) if result.get("done") else None
        if self._unused:
            self._look_for_unused(result)
        if self.stopper is not None and (self._stop_all or self._tell(self.stopper, again)):
            reason = self._stops(self.stopper, trial, result, iteration, again) or reason
        stop = reason is not None
        answer: Verdict | Reasoned = Decision.CONTINUE
        if self._tell(self.searcher, again) and self._has_metric(self.searcher, result):
            with _blamed(self.searcher, "on_trial_result"):
                self.searcher.on_trial_result(trial.trial_id, result)
        if self._tell(self.scheduler, again) and not stop and self._has_metric(self.scheduler, result):
            self._has_time(result)
            with _blamed(self.scheduler, "on_trial_result"):
                answer = self.scheduler.on_trial_result(trial, result)
        if again and journaled == "stop":
            return Decision.STOP, trial.told_reason
        if stop:
            return Decision.STOP, reason
        if answer is Decision.CONTINUE and not (again and journaled == "pause"):  # what nearly every one is
            return Decision.CONTINUE, None
        verdict, reason = split(answer, _label(self.scheduler), iteration)
        if verdict is not Decision.CONTINUE and verdict is not Decision.STOP:
            self._asked.setdefault(trial.trial_id, iteration)
        if again and journaled == "pause" and verdict is not Decision.STOP:
            return Decision.PAUSE, trial.told_reason
        return verdict, reason

    def _stops(
        self, stopper: Stopper, trial: Trial, result: dict[str, Any], iteration: int, again: bool
    ) -> Reason | None:
        """Why the stopper ends a trial with this result, or None: it goes on."""
        said: bool | Reason = False
        before = self._stop_all
        if self._tell(stopper, again):
            with _blamed(stopper, "__call__"):
                said = stopper(trial.trial_id, result)
                self._stop_all = stopper.stop_all() or before
        if isinstance(said, Reason):
            return said.filled(_label(stopper), iteration)
        if self._stop_all:
            return Reason(ReasonKind.EXPERIMENT, _label(stopper), iteration)
        return Reason(ReasonKind.CRITERION, _label(stopper), iteration) if said else None

    def why_ordered(self, order: Directive, iteration: int) -> Reason | None:
        """Why the scheduler ordered what it did."""
        said = split(order.what, _label(self.scheduler), iteration)[1]
        return said if order.reason is None else order.reason.filled(_label(self.scheduler), iteration)

    def _look_for_unused(self, result: dict[str, Any]) -> None:
        """Warn once of a metric of the run that the first result lacks: "best" would go by nothing."""
        for metric in sorted(name for name in self._unused if lookup(result, name) is MISSING):
            log.warning(
                "metric=%r: the first result does not have it, so no trial is the best until it comes; there are: %s",
                metric,
                ", ".join(nearest_keys(result, metric)),
            )
        self._unused.clear()

    @staticmethod
    def _tell(plugin: object, again: bool) -> bool:
        return not again or hasattr(plugin, "on_rollback")

    def _has_metric(self, plugin: Searcher | TrialScheduler, result: dict[str, Any]) -> bool:
        for metric in _listed(plugin.metric):
            value = lookup(result, metric)
            if type(value) is float and metric in self._seen:  # what nearly every one is
                continue
            if value is not MISSING:
                self._seen.add(metric)
                if as_score(value) is None and metric not in self._no_number:
                    self._no_number.add(metric)
                    log.warning(
                        "%s goes by the metric %r, and a result has %.60r, a %s and no number: such a result decides "
                        "nothing",
                        _label(plugin),
                        metric,
                        value,
                        type(value).__name__,
                    )
                continue
            if metric not in self._seen and self._strict and getattr(plugin, "require_attrs", True):
                raise MetricMissingError(
                    f"{_label(plugin)} needs the metric {metric!r}, which the first result does not have; "
                    f"reported were: {', '.join(nearest_keys(result, metric))}"
                )
            return False
        return True

    def _has_time(self, result: dict[str, Any]) -> None:
        name = self.scheduler.time_attr
        if name is None or name in self._seen:
            return
        if score_of(result, name) is not None:
            self._seen.add(name)
        elif self._strict and getattr(self.scheduler, "require_attrs", True):
            there = lookup(result, name)
            problem = "does not have" if there is MISSING else f"has as {there!r}, which is no number"
            raise MetricMissingError(
                f"{_label(self.scheduler)} measures progress by time_attr={name!r}, which the first result {problem}; "
                f"reported were: {', '.join(nearest_keys(result, name))}"
            )

    def on_trial_add(self, trial: Trial) -> None:
        with _blamed(self.scheduler, "on_trial_add"):
            self.scheduler.on_trial_add(trial)

    def on_pause(self, trial: Trial) -> None:
        """A trial was paused by the scheduler."""
        self._paused.add(trial.trial_id)
        with _blamed(self.searcher, "on_pause"):
            self.searcher.on_pause(trial.trial_id)

    def on_trial_start(self, trial: Trial) -> None:
        if trial.trial_id in self._paused:
            self._paused.remove(trial.trial_id)
            with _blamed(self.searcher, "on_unpause"):
                self.searcher.on_unpause(trial.trial_id)
        with _blamed(self.scheduler, "on_trial_start"):
            self.scheduler.on_trial_start(trial)

    def on_search_end(self) -> None:
        with _blamed(self.searcher, "on_search_end"):
            self.searcher.on_search_end()
        with _blamed(self.scheduler, "on_search_end"):
            self.scheduler.on_search_end()

    def on_idle(self) -> None:
        with _blamed(self.scheduler, "on_idle"):
            self.scheduler.on_idle()

    def on_checkpoint(self, trial: Trial, iteration: int) -> None:
        """A checkpoint of the trial was published."""
        with _blamed(self.scheduler, "on_checkpoint"):
            self.scheduler.on_checkpoint(trial, iteration)

    def collect(self) -> bool:
        """Take what the scheduler has ordered since the last time into `ordered`; True: there was something."""
        with _blamed(self.scheduler, "orders"):
            ordered = self.scheduler.orders()
        if not ordered:
            return False
        self.ordered.update((order.trial_id, order) for order in ordered)
        return True

    def order(self, trial: Trial, what: Verdict, reason: Reason | None) -> None:
        """Note what is to happen to a trial once it waits; what is noted already comes first, but for resources."""
        noted = self.ordered.get(trial.trial_id)
        if noted is None or (isinstance(noted.what, Reallocate) and isinstance(what, Reallocate)):
            self.ordered[trial.trial_id] = Directive(trial.trial_id, what, reason)

    def granted(self, trial: Trial, wanted: Reallocate) -> dict[str, float]:
        """What a trial gets from now on. Raises ResourceError, with the scheduler's name, if that can never run."""
        try:
            amounts = parse_resources(wanted.resources)
            self._fits(amounts)
        except ResourceError as error:
            self.ordered.pop(trial.trial_id, None)  # a resume with a scheduler that is mended is not to find it noted
            name = type(self.scheduler).__name__
            raise ResourceError(f"{name} gives {trial.name} {wanted.resources!r}: {error}") from error
        return amounts

    def tagged(self, config: dict[str, Any]) -> msgspec.Raw:
        """A config as it stands in a fact."""
        return _tagged(config, self._blobs)

    def on_trial_end(self, trial: Trial, last: dict[str, Any], *, failed: bool) -> None:
        self._paused.discard(trial.trial_id)
        asked_at = self._asked.pop(trial.trial_id, trial.iteration)
        if asked_at < trial.iteration and not (failed or trial.checkpoints or self._spoke_of_saving):
            self._spoke_of_saving = True
            log.warning(
                "%s pauses and clones trials by their checkpoints, and %s ended without one although it was asked to "
                "save: what was decided for it was not done. A function saves when get_context().should_checkpoint() "
                "is true, or at every report; a class needs save_checkpoint",
                _label(self.scheduler),
                trial.name,
            )
        with _blamed(self.searcher, "on_trial_complete"):
            self.searcher.on_trial_complete(trial.trial_id, result=last or None, error=failed)
        with _blamed(self.scheduler, "on_trial_error" if failed else "on_trial_complete"):
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
        plugins = {name: plugin for name in _STATEFUL if (plugin := getattr(self, name)) is not None}
        states = {name: {"kind": _kind(plugin), "state": plugin.get_state()} for name, plugin in plugins.items()}
        seen = {"seen": sorted(self._seen), "unused": sorted(self._unused), "ordered": self.ordered}
        seen["paused"] = sorted(self._paused)
        states["metrics"] = {"kind": "", "state": seen}
        return {name: self._blobs.put(cloudpickle.dumps(state)) for name, state in states.items()}

    def discard(self, hashes: Collection[str]) -> None:
        """Remove the blobs of states that no snapshot names any more."""
        if self._blobs is not None and hashes:
            self._blobs.gc((), among=hashes)

    def load(self, state: ExperimentState) -> None:
        """Bring the plug-ins to the state of a snapshot.

        A searcher or scheduler that is another one now, or goes by another metric, cannot use that state: it is told of
        the trials that there are, and how they ended.
        """
        if "searcher" not in state.plugins:
            self.warmed = learn_from_earlier(self.searcher)
        for name, digest in state.plugins.items():
            if self._blobs is None:
                return
            saved = unpickling.loads(self._blobs.get(digest))
            if name == "metrics":
                self._seen.update(saved["state"]["seen"])
                self._unused.intersection_update(saved["state"]["unused"])
                self.ordered.update(saved["state"]["ordered"])
                self._paused.update(saved["state"].get("paused", ()))
                continue
            plugin = getattr(self, name, None)
            if plugin is not None and saved["kind"] == _kind(plugin):
                plugin.set_state(saved["state"])
            elif plugin is self.searcher or plugin is self.scheduler:
                if plugin is self.searcher:
                    self.warmed = learn_from_earlier(self.searcher)
                self._tell_of(state.trials, plugin)
                if plugin is self.scheduler and state.search_ended is not None:
                    self.scheduler.on_search_end()

    def _tell_of(self, trials: Iterable[Trial], plugin: Searcher | TrialScheduler) -> None:
        for trial in trials:
            last, failed = trial.last_result, trial.status == Trial.ERROR
            if isinstance(plugin, Searcher):
                plugin.replay_suggest(trial.trial_id, trial.config)
                trial.release()
                if trial.is_finished():
                    plugin.on_trial_complete(trial.trial_id, result=last or None, error=failed)
                continue
            plugin.on_trial_add(trial)
            if failed:
                plugin.on_trial_error(trial)
            elif trial.is_finished():
                plugin.on_trial_complete(trial, last)

    def replay(self, state: ExperimentState, facts: Iterable[ev.AnyFact]) -> None:
        """Apply the facts after a snapshot to `state`, and tell the plug-ins what they were told then."""
        warned = False
        told = self.callbacks.stateful()
        for fact in facts:
            if isinstance(fact, ev.ResultReported):
                trial = self._trial(state, fact.trial)
                result: dict[str, Any] = tagged.loads(bytes(fact.metrics))
                ended = fact.then == "stop" and not fact.done  # by one of those who are told of it now
                shown = {**result, "done": False} if ended else dict(result)
                if len(told):
                    told.on_trial_result(0, state.trials, trial, shown)
                verdict, reason = self.decide(trial, shown, fact.iteration, fact.iteration <= trial.told)
                if isinstance(verdict, Reallocate) or (isinstance(verdict, Exploit) and fact.then == "pause"):
                    self.order(trial, verdict, reason)  # a fact of its own follows, if the driver came to that
                if len(told):
                    told.after_trial_result(0, state.trials, trial, result if ended else shown)
                state.add_result(trial, fact, result)
                self.collect()
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
                trial.release()
            elif isinstance(fact, ev.AttemptStarted):
                self.on_trial_start(self._trial(state, fact.trial))
                told.on_trial_start(0, state.trials, self._trial(state, fact.trial))
            elif isinstance(fact, ev.AttemptEnded):
                if fact.why == "paused":
                    self.on_pause(self._trial(state, fact.trial))
            elif isinstance(fact, ev.CheckpointPublished):
                self.on_checkpoint(self._trial(state, fact.ref.trial_id), fact.ref.iteration)
                told.on_trial_save(0, state.trials, self._trial(state, fact.ref.trial_id))
            elif isinstance(fact, ev.SearchEnded):
                self.on_search_end()
            elif isinstance(fact, ev.Idle):
                self.on_idle()
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
            self.collect()
            if isinstance(fact, (ev.Exploited, ev.Reallocated, ev.TrialEnded)):
                self._done(fact)
        self._stop_all = self.stopper is not None and self.stopper.stop_all()

    def _done(self, fact: ev.Exploited | ev.Reallocated | ev.TrialEnded) -> None:
        """What was ordered has happened."""
        kind = {ev.Exploited: Exploit, ev.Reallocated: Reallocate}.get(type(fact), object)
        order = self.ordered.get(fact.trial)
        if order is not None and isinstance(order.what, kind):
            del self.ordered[fact.trial]

    @staticmethod
    def _trial(state: ExperimentState, trial_id: str) -> Trial:
        trial = state.trials.get(trial_id)
        if trial is None:
            raise ExperimentDamagedError(f"the journal names trial {trial_id!r}, which it never created")
        return trial


def _listed(metric: Metric) -> Sequence[str]:
    if metric is None:
        return ()
    return (metric,) if isinstance(metric, str) else tuple(metric)


def _kind(plugin: object) -> str:
    """What has to be the same for a saved state to fit: the classes, and what is optimised."""
    names = [type(plugin).__qualname__]
    inner = plugin
    while (inner := vars(inner).get("searcher") or vars(inner).get("scheduler")) is not None:
        names.append(type(inner).__qualname__)
    if isinstance(plugin, (Searcher, TrialScheduler)):
        names += [str(_listed(plugin.metric)), str(plugin.mode)]
    return " ".join(names)


def _label(plugin: object) -> str:
    """The class of a plug-in, under whatever wraps it."""
    return type(getattr(plugin, "unwrapped", plugin)).__name__


class _blamed:
    """Lets an error that a plug-in raises say whose it is; it stays the one that was raised.

    A class, for it is entered several times per result: a generator's context costs thrice as much.
    """

    __slots__ = ("_call", "_plugin")

    def __init__(self, plugin: object, call: str) -> None:
        self._plugin, self._call = plugin, call

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, Exception):
            error.add_note(f"raised by {_label(self._plugin)}.{self._call}")


def _tagged(config: dict[str, Any], blobs: Blobs | None) -> msgspec.Raw:
    try:
        data = tagged.dumps(config, blobs=blobs)
        if b'"$":"blob"' in data:
            tagged.loads(data, blobs=blobs)  # what can be pickled and not unpickled is found before a trial has it
        return msgspec.Raw(data)
    except MetricError as error:  # of the same text for all that is written down; it begins with the key
        raise SerializationError(
            f"config value {error}. Create it inside the trainable, or give what it is made from"
        ) from error.__cause__
