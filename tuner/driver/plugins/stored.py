"""The states of plug-ins: stored with a snapshot of the journal, and brought back at a resume."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import cloudpickle

from trainables.metrics import with_paths
from tuner.driver.plugins.ordered_trials import learn_of_ordered
from tuner.driver.plugins.plugin_set import PluginSet
from tuner.driver.plugins.required import names_of
from tuner.driver.plugins.used_objects import begin
from tuner.driver.warm_start import learn_from_earlier
from tuner.experiment import unpickling
from tuner.experiment.forks import result_before
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial
from tuner.schedulers import TrialScheduler
from tuner.search import Searcher

_STATEFUL = ("searcher", "scheduler", "stopper", "callbacks")
_BESIDE = "metrics"
"""The entry with what is remembered beside the plug-ins' own states."""


def save(plugins: PluginSet) -> dict[str, str]:
    """Store every plug-in's state as a blob; returns plug-in -> hash."""
    if plugins.blobs is None:
        return {}
    found = {name: plugin for name in _STATEFUL if (plugin := getattr(plugins, name)) is not None}
    states = {name: {"kind": _kind(plugin), "state": plugin.get_state()} for name, plugin in found.items()}
    beside = {
        "seen": sorted(plugins.required.seen),
        "warned": sorted(plugins.required.warned),
        "ordered": plugins.directives.noted,
        "paused": sorted(plugins.paused),
    }
    states[_BESIDE] = {"kind": "", "state": beside}
    return {name: plugins.blobs.put(cloudpickle.dumps(state)) for name, state in states.items()}


def discard(plugins: PluginSet, hashes: Collection[str]) -> None:
    """Remove the blobs of states that no snapshot names any more."""
    if plugins.blobs is not None and hashes:
        plugins.blobs.remove(hashes)


def load(plugins: PluginSet, state: ExperimentState) -> None:
    """Bring the plug-ins to the state of a snapshot.

    A searcher or scheduler that is another one now, or goes by another metric, cannot use that state: it is told of
    the trials that there are, and how they ended.
    """
    begin((plugins.searcher, plugins.scheduler, plugins.stopper), plugins.source.prefix)
    if "searcher" not in state.plugins:
        plugins.warmed = learn_from_earlier(plugins.searcher)
    for name, digest in state.plugins.items():
        if plugins.blobs is None:
            return
        saved = unpickling.loads(plugins.blobs.get(digest))
        if name == _BESIDE:
            plugins.required.has_come(saved["state"]["seen"])
            plugins.required.warned.update(saved["state"].get("warned", ()))
            plugins.directives.noted.update(saved["state"]["ordered"])
            plugins.paused.update(saved["state"].get("paused", ()))
            continue
        plugin = getattr(plugins, name, None)
        if plugin is not None and saved["kind"] == _kind(plugin):
            plugin.set_state(saved["state"])
        elif plugin is plugins.searcher:
            plugins.warmed = learn_from_earlier(plugins.searcher)
            _tell_searcher(plugins.searcher, state.trials)
        elif plugin is plugins.scheduler:
            _tell_scheduler(plugins.scheduler, state.trials)
            if state.search_ended is not None:
                plugins.scheduler.on_search_end()


def _tell_searcher(searcher: Searcher, trials: Iterable[Trial]) -> None:
    for trial in trials:
        if trial.order:
            learn_of_ordered(searcher, trial)
            continue
        searcher.replay_suggest(trial.trial_id, trial.config)
        trial.release()
        if trial.is_finished():
            failed = trial.status == Trial.ERROR
            searcher.on_trial_complete(trial.trial_id, result=with_paths(trial.last_result) or None, error=failed)


def _tell_scheduler(scheduler: TrialScheduler, trials: Sequence[Trial]) -> None:
    for trial in trials:
        scheduler.on_trial_add(trial)
        if trial.forked:
            scheduler.on_trial_fork(trial, result_before(trials, trial))
        if trial.status == Trial.ERROR:
            scheduler.on_trial_error(trial)
        elif trial.is_finished():
            scheduler.on_trial_complete(trial, trial.last_result)


def _kind(plugin: object) -> str:
    """What has to be the same for a saved state to fit: the classes, and what is optimised."""
    names = [type(plugin).__qualname__]
    inner = plugin
    while (inner := vars(inner).get("searcher") or vars(inner).get("scheduler")) is not None:
        names.append(type(inner).__qualname__)
    if isinstance(plugin, (Searcher, TrialScheduler)):
        names += [str(names_of(plugin.metric)), str(plugin.mode)]
    return " ".join(names)
