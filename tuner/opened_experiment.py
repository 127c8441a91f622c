"""`tuner.open_experiment`: an experiment that somebody else runs, or nobody: to read it, and to order something."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from tuner.addresses import ordered
from tuner.error import OrderError
from tuner.experiment.paths import ExperimentPaths, is_elsewhere
from tuner.experiment.reader import load_state
from tuner.experiment.trial import Trial
from tuner.inspection.experiment_reader import ExperimentReader, TrialName
from tuner.opening.forking import fork_into, place_of
from tuner.orders import order as words
from tuner.orders.giving import GivenOrder, give


class OpenedExperiment(ExperimentReader):
    """All that is known of an experiment (`ExperimentReader`), and the words of `tuner stop`, ...

    Each order returns at once; its `.state` is "waiting", "taken", "done" or "refused", `.why` says why, and
    `.wait(timeout_s)` waits. Every one takes `order_id` (8 to 64 characters of A-Z a-z 0-9 -: the same id again is the
    same order) and `if_dead` ("refuse", or "wait" for the next driver), and raises OrderError where it is not accepted.
    """

    def __init__(self, place: str | PathLike[str], **more: Any) -> None:
        super().__init__(place, **more)
        self._more = more

    def refreshed(self) -> OpenedExperiment:
        """The same experiment as it is now."""
        return type(self)(self.experiment_path, **self._more)

    # --- orders ---------------------------------------------------------------------------------------------

    def order(
        self, order: Mapping[str, Any] | words.OrderBody, *, order_id: str | None = None, if_dead: str = "refuse"
    ) -> GivenOrder:
        """Any order, as in JSON: {"order": "stop", "trial": "3"}."""
        return give(self.experiment_path, order, order_id=order_id, if_dead=if_dead)

    def stop(self, trial: TrialName, **how: Any) -> GivenOrder:
        """End a trial, or "all", as if a stopper had said so."""
        return self.order(words.StopOrder(_name(trial)), **how)

    def pause(self, trial: TrialName, **how: Any) -> GivenOrder:
        """Save a trial, free its slot, and let it wait, over resumes too, for `go`."""
        return self.order(words.PauseOrder(_name(trial)), **how)

    def go(self, trial: TrialName, **how: Any) -> GivenOrder:
        """Let a paused trial go on."""
        return self.order(words.GoOrder(_name(trial)), **how)

    def save(self, trial: TrialName, *, pin: bool = False, **how: Any) -> GivenOrder:
        """Have a trial save a checkpoint at its next step, and keep it whatever the settings say if `pin`."""
        return self.order(words.SaveOrder(_name(trial), pin), **how)

    def add(self, config: Mapping[str, Any] | None = None, **how: Any) -> GivenOrder:
        """Make a trial beside `num_samples`: {"lr": 0.01, "model/width": 64}; what it lacks is drawn from the space."""
        return self.order(words.made(words.AddOrder, config=_plain(config)), **how)

    def fork(
        self, checkpoint: str, config: Mapping[str, Any] | None = None, *, into: str | None = None, **how: Any
    ) -> GivenOrder:
        """Make a trial that starts from a checkpoint, TRIAL@ITERATION or its tag, with an edited config.

        Args:
            config: what is changed, key or path as "model/lr" -> value; all keys are the other trial's.
            into: makes an experiment of that name for it, beside this one (of a URI: under the default storage, named
                NAME-fork where nothing is said), which begins with it when it is resumed; or its path.
        """
        if into is not None or is_elsewhere(self.experiment_path):
            source = str(self.experiment_path)
            return fork_into(source, checkpoint, config, place_of(source, into), how.get("order_id"))
        trial, iteration = self._checkpoint(checkpoint)
        start = {"trial": trial, "iteration": iteration, "config": _plain(config)}
        return self.order(words.made(words.ForkOrder, **start), **how)

    def pin(self, checkpoint: str, **how: Any) -> GivenOrder:
        """Keep a checkpoint, TRIAL@ITERATION (as "3@40") or its tag, whatever the settings say."""
        return self.order(words.PinOrder(*self._checkpoint(checkpoint)), **how)

    def unpin(self, checkpoint: str, **how: Any) -> GivenOrder:
        """Leave a checkpoint, TRIAL@ITERATION or its tag, to the settings again; all its tags go."""
        return self.order(words.UnpinOrder(*self._checkpoint(checkpoint)), **how)

    def tag(self, checkpoint: str, tag: str, **how: Any) -> GivenOrder:
        """Give a checkpoint, TRIAL@ITERATION, a name in the experiment, and keep it: EXPERIMENT@TAG is its address.

        Args:
            tag: 1 to 60 characters of A-Z a-z 0-9 . _ -
        """
        trial, iteration = self._checkpoint(checkpoint)
        return self.order(words.made(words.TagOrder, trial=trial, iteration=iteration, tag=tag), **how)

    def set(self, name: str, value: Any, **how: Any) -> GivenOrder:
        """Change "num_samples" (-1: without end), "max_concurrent" (trials at once; None: as many as fit) or
        "time_budget_s" (since the start of its driver; None: none) of the run, from now on and over resumes: until the
        script says something else than it did now.
        """
        return self.order(words.made(words.SetOrder, name=name, value=value), **how)

    def set_resources(self, trial: TrialName, resources: Mapping[str, float], **how: Any) -> GivenOrder:
        """Give a trial other resources, {"cpu": 2}: it is saved, and goes on with them; what is not named stays."""
        return self.order(words.made(words.SetOrder, trial=_name(trial), name="resources", value=resources), **how)

    def retry(self, trial: TrialName, **how: Any) -> GivenOrder:
        """Try a failed trial again, from its newest checkpoint."""
        return self.order(words.RetryOrder(_name(trial)), **how)

    def note(self, trial: TrialName, text: str, **how: Any) -> GivenOrder:
        """Keep a text with a trial."""
        return self.order(words.made(words.NoteOrder, trial=_name(trial), text=text), **how)

    def _checkpoint(self, given: str) -> tuple[str, int]:
        there = is_elsewhere(self.experiment_path)
        return ordered(given, lambda: self.trials if there else load_state(self._paths()).trials)

    def _paths(self) -> ExperimentPaths:
        if is_elsewhere(self.experiment_path):
            raise OrderError(
                f"{self.experiment_path} is a copy: its driver and changes are in the directory where it runs"
            )
        return ExperimentPaths(Path(self.experiment_path))


def open_experiment(
    place: str | PathLike[str], *, metric: str | None = None, mode: str | None = None
) -> OpenedExperiment:
    """Open an experiment to read it, and to steer it where it runs.

    Args:
        place: its directory or URI, or its name under the default storage.
        metric, mode: what is best; None: as the run had it.

    Raises ExperimentNotFoundError if there is none.

    Example:
        >>> experiment = tune.open_experiment("my_run")
        >>> experiment.pause(3).wait(60)
        'done'
    """
    return OpenedExperiment(place, metric=metric, mode=mode)


def _plain(config: Mapping[str, Any] | None) -> Any:
    """As a dict; what is no mapping is refused by the order."""
    return dict(config or {}) if isinstance(config, Mapping | None) else config


def _name(trial: TrialName) -> str:
    return trial.trial_id if isinstance(trial, Trial) else str(trial)
