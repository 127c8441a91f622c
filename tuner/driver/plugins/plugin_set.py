"""Searcher, scheduler, stopper and callbacks of one experiment, and what they decide on a result."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from trainables.metrics import with_paths
from tuner.callback import CallbackList
from tuner.driver.plugins.calling import call, label
from tuner.driver.plugins.directives import Directives
from tuner.driver.plugins.ordered_trials import learn_of_ordered
from tuner.driver.plugins.required import RequiredMetrics
from tuner.driver.plugins.trial_source import TrialSource
from tuner.executors.base import Resources
from tuner.experiment.blobs import Blobs
from tuner.experiment.reason import Reason, ReasonKind
from tuner.experiment.trial import Trial
from tuner.experiment.trials import Trials
from tuner.schedulers import Decision, TrialScheduler
from tuner.schedulers.base import Reasoned, Verdict, split
from tuner.schedulers.written_for_ray import join
from tuner.search import Searcher
from tuner.search.searcher import Metric
from tuner.stopper import Stopper

log = logging.getLogger(__name__)

_NEVER = 2**53
"""No trial comes to that iteration."""


class PluginSet:
    """The plug-ins, and what is remembered beside their own states.

    Args:
        source: makes trials of the searcher's suggestions.
        blobs: hold the plug-ins' states; None: they are not stored.
        metric: the run's own, which has to be in the results if a plug-in goes by it.
        strict_metrics: False: nothing has to be.
        fits: raises ResourceError for resources that no trial can ever have here.
    """

    def __init__(
        self,
        *,
        searcher: Searcher,
        scheduler: TrialScheduler,
        stopper: Stopper | None,
        callbacks: CallbackList,
        source: TrialSource,
        blobs: Blobs | None,
        metric: Metric = None,
        strict_metrics: bool = True,
        fits: Callable[[Resources], object] = lambda resources: None,
    ) -> None:
        self.searcher, self.scheduler, self.stopper, self.callbacks = searcher, scheduler, stopper, callbacks
        self.source, self.blobs = source, blobs
        self.fits = fits
        self.directives = Directives(scheduler, fits)
        self.required = RequiredMetrics(
            metric, searcher=searcher, scheduler=scheduler, stopper=stopper, strict=strict_metrics
        )
        self.has_room: Callable[[Trial], bool] = lambda trial: True
        """Whether a trial that waits would start if it were chosen; whoever starts them says so."""
        self.paused: set[str] = set()
        """Trials of which the searcher was told that they pause, and not yet that they go on."""
        self.warmed = False
        """The searcher has learned from earlier experiments, which no fact says: a snapshot is to keep it."""
        self._asked: dict[str, int] = {}
        """Trial -> iteration at which the scheduler first wanted a checkpoint of it."""
        self._spoke_of_saving = False

    def join(self, trials: Trials) -> None:
        """Show the run's trials to a scheduler that looks at all of them."""
        join(self.scheduler, trials, search_alg=self.searcher, has_room=lambda trial: self.has_room(trial))

    def choose(self, pending: Sequence[Trial]) -> Trial | None:
        """Which of the waiting trials runs next."""
        chosen: Trial | None = call(self.scheduler, "choose_trial_to_run", pending)
        self.directives.collect()
        return chosen

    # --- results ------------------------------------------------------------------------------------------

    def decide(
        self, trial: Trial, result: dict[str, Any], iteration: int, again: bool
    ) -> tuple[Verdict, Reason | None]:
        """Tell everybody of a result, and say what the trial does next, and why if that is not to go on.

        With `again` it was told before a rollback: only who can go back hears it, and the journaled answer stands.
        """
        journaled = trial.told_then if iteration == trial.told else "continue"
        reason = Reason(ReasonKind.DONE, trial.trainable_name, iteration) if result.get("done") else None
        if self.required.missing:
            self.required.look_for_missing(trial, result)
        if self.stopper is not None and (self.source.stopped or not again or _goes_back(self.stopper)):
            reason = self._stops(self.stopper, trial, result, iteration, again) or reason
        stop = reason is not None
        answer: Verdict | Reasoned = Decision.CONTINUE
        learns = not trial.order and (not again or _goes_back(self.searcher))
        if learns and self.required.has_metric(self.searcher, result):
            call(self.searcher, "on_trial_result", trial.trial_id, with_paths(result))
        if not stop and (not again or _goes_back(self.scheduler)):
            if self.required.has_metric(self.scheduler, result):
                self.required.check_time(self.scheduler, result)
                answer = call(self.scheduler, "on_trial_result", trial, result)
        if again and journaled == "stop":
            return Decision.STOP, trial.told_reason
        if stop:
            return Decision.STOP, reason
        if answer is Decision.CONTINUE and not (again and journaled == "pause"):  # what nearly every one is
            return Decision.CONTINUE, None
        verdict, reason = split(answer, label(self.scheduler), iteration)
        if verdict is not Decision.CONTINUE and verdict is not Decision.STOP:
            self._asked.setdefault(trial.trial_id, iteration)
        if again and journaled == "pause" and verdict is not Decision.STOP:
            return Decision.PAUSE, trial.told_reason
        return verdict, reason

    def free_until(self, trial: Trial, iteration: int) -> int:
        """The first iteration after this one about which somebody decides, or has decided before a rollback: callbacks
        that may change results do so about each.
        """
        if iteration < trial.told or self.callbacks.changes_results:
            return 0
        first = call(self.scheduler, "decides_from", trial, iteration)
        if self.stopper is not None:
            first = min(first, call(self.stopper, "decides_from", trial.trial_id, iteration))
        return int(min(first, _NEVER))

    def _stops(
        self, stopper: Stopper, trial: Trial, result: dict[str, Any], iteration: int, again: bool
    ) -> Reason | None:
        """Why the stopper ends a trial with this result, or None: it goes on."""
        said: bool | Reason = False
        if not again or _goes_back(stopper):
            said = call(stopper, "__call__", trial.trial_id, result)
            self.source.stopped = call(stopper, "stop_all") or self.source.stopped
        if isinstance(said, Reason):
            return said.filled(label(stopper), iteration)
        if self.source.stopped:
            return Reason(ReasonKind.EXPERIMENT, label(stopper), iteration)
        return Reason(ReasonKind.CRITERION, label(stopper), iteration) if said else None

    # --- what happens to trials ----------------------------------------------------------------------------

    def on_pause(self, trial: Trial) -> None:
        if not trial.order:
            self.paused.add(trial.trial_id)
            call(self.searcher, "on_pause", trial.trial_id)

    def on_trial_start(self, trial: Trial, result: dict[str, Any], *, reused: bool) -> None:
        """An attempt begins where this result stood, or goes through those of an earlier experiment."""
        if trial.trial_id in self.paused:
            self.paused.remove(trial.trial_id)
            call(self.searcher, "on_unpause", trial.trial_id)
        call(self.scheduler, "on_trial_start", trial)
        if self.stopper is not None:
            call(self.stopper, "on_trial_start", trial.trial_id, result, reused=reused)

    def on_clone(self, trial: Trial) -> None:
        """What it was to save for is done: it goes on from another one's checkpoint."""
        self._asked.pop(trial.trial_id, None)

    def on_fork(self, trial: Trial, result: dict[str, Any]) -> None:
        """A new trial begins where another one's result stood: who measures by progress begins there too."""
        call(self.scheduler, "on_trial_fork", trial, result)
        if self.stopper is not None:
            call(self.stopper, "on_trial_fork", trial.trial_id, result)

    def on_search_end(self) -> None:
        call(self.searcher, "on_search_end")
        call(self.scheduler, "on_search_end")

    def on_rollback(self, trial: Trial, iteration: int) -> None:
        """Results after `iteration` are void, for those that can go back."""
        for plugin in (self.searcher, self.scheduler, self.stopper):
            if _goes_back(plugin) and not (plugin is self.searcher and trial.order):
                call(plugin, "on_rollback", trial, iteration)

    def on_trial_end(self, trial: Trial, last: dict[str, Any], *, failed: bool) -> None:
        self.paused.discard(trial.trial_id)
        asked_at = self._asked.pop(trial.trial_id, trial.iteration)
        if asked_at < trial.iteration and not (failed or trial.checkpoints or self._spoke_of_saving):
            self._spoke_of_saving = True
            log.warning(
                "%s pauses and clones trials by their checkpoints, and %s ended without one although it was asked to "
                "save: what was decided for it was not done. A function saves when tune.should_save() is true, or at "
                "every report; a class needs save_checkpoint",
                label(self.scheduler),
                trial.name,
            )
        if trial.order:
            learn_of_ordered(self.searcher, trial)
        else:
            call(self.searcher, "on_trial_complete", trial.trial_id, result=with_paths(last) or None, error=failed)
        if failed:
            call(self.scheduler, "on_trial_error", trial)
        else:
            call(self.scheduler, "on_trial_complete", trial, last)


def _goes_back(plugin: object) -> bool:
    return hasattr(plugin, "on_rollback")
