"""`TrackerCallback`: tells a tracker of trials, from the hooks of a run."""

from __future__ import annotations

import abc
from typing import Any

from tuner.callback import Trials
from tuner.error import require
from tuner.experiment.continuing import resume_words, starter_of
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.reader import read_settings
from tuner.experiment.trial import Trial
from tuner.logger.base import LoggerCallback
from tuner.tracking.delivery import Delivery
from tuner.tracking.due import About, Due, SaveDue
from tuner.tracking.sender import Sender
from tuner.tracking.tracker import RunEnding, Tracker


class TrackerCallback(LoggerCallback):
    """Base of the callbacks for trackers. Each trial is one run there, also when the driver is killed and resumed.

    Hooks only note what is due; a thread reads the results from the trial's `result.json` and sends them, so that a
    tracker that is slow or down holds up nothing, takes no memory, and gets everything when it is back. What it still
    lacks at the end of the run is waited for, for `upload_timeout` seconds; a resume sends the rest.

    Args:
        hold_back: True sends a result when a checkpoint or the end of its trial covers it: nothing that was sent
            becomes void. If a trial that had failed is then continued from before its end, it gets another run with
            all that stands. False sends results at once; what a rollback makes void is sent again, and what the
            tracker makes of that is in docs/integrations.md.
        upload_timeout: seconds to wait at the end of the run.
        saves: store checkpoints as artifacts.

    To send less or something else than what was reported, override `to_send`. Raises SettingError.
    """

    changes_results = False
    reads_result_json = True

    def __init__(self, *, hold_back: bool = True, upload_timeout: float = 300.0, saves: bool = False) -> None:
        require(isinstance(hold_back, bool), "hold_back", hold_back, "accepted are True and False")
        timed = isinstance(upload_timeout, (int, float)) and upload_timeout >= 0
        require(timed, "upload_timeout", upload_timeout, "accepted are seconds from 0 on")
        self.hold_back, self.upload_timeout = hold_back, float(upload_timeout)
        self._saves = saves
        self._sender: Sender | None = None
        self._begun: set[str] = set()
        """Trials that have a run that was not yet told to end."""
        self._stored: set[str] | None = None
        """Trials of which something was due when the state was stored; None: it never was."""
        self._taken_up = False

    @abc.abstractmethod
    def make_tracker(self) -> Tracker:
        """The adapter of the library; called in the sender's thread when something is due, again if it raises."""

    def to_send(self, result: dict[str, Any]) -> dict[str, Any]:
        """What is sent of a result; called in the sender's thread."""
        return result

    # --- state: whose run may lack something ------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_sender": None, "_begun": set(), "_stored": None, "_taken_up": False}

    def get_state(self) -> dict[str, Any]:
        due = self._sender.pending() if self._sender is not None else []
        return {"due": sorted({*self._begun, *due, *(self._stored or ())})}

    def set_state(self, state: dict[str, Any]) -> None:
        self._stored = set(state["due"])

    def setup(self, *args: Any, **info: Any) -> None:
        self._sender = Sender(self.make_name(), self._make_delivery)
        self._taken_up = False

    def make_name(self) -> str:
        """In messages, and of the thread."""
        return type(self).__name__

    def _make_delivery(self) -> Delivery:
        return Delivery(self.make_tracker(), hold_back=self.hold_back, shape=self.to_send)

    # --- hooks ------------------------------------------------------------------------------------------------

    def on_trial_start(self, iteration: int, trials: Trials, trial: Trial, **info: Any) -> None:
        self._begun.add(trial.trial_id)
        self._take_up(trials)
        super().on_trial_start(iteration, trials, trial, **info)

    def on_trial_complete(self, iteration: int, trials: Trials, trial: Trial, **info: Any) -> None:
        self._take_up(trials)
        super().on_trial_complete(iteration, trials, trial, **info)

    def on_trial_error(self, iteration: int, trials: Trials, trial: Trial, **info: Any) -> None:
        self._take_up(trials)
        super().on_trial_error(iteration, trials, trial, **info)

    def on_trial_clone(self, iteration: int, trials: Trials, trial: Trial, **info: Any) -> None:
        self._tell(trial, covered=self._sendable(trial), cloned_at=trial.clone_iteration)

    def on_experiment_end(self, trials: Trials, **info: Any) -> None:
        sender = self._sender
        if sender is None:
            return
        self._take_up(trials)
        for trial in trials if self._begun else ():
            if trial.trial_id in self._begun:
                self._tell(trial, covered=self._sendable(trial), ending=RunEnding.UNFINISHED)
        sender.drain(self.upload_timeout, _resume_words(trials) if trials else "")
        self._stored, self._sender = set(sender.pending()), None
        self._begun.clear()

    def log_trial_start(self, trial: Trial) -> None:
        self._tell(trial, covered=self._sendable(trial), standing=trial.iteration)

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        if not self.hold_back:
            self._tell(trial, covered=result.get("training_iteration", iteration))

    def log_trial_save(self, trial: Trial) -> None:
        if self._sender is None or not trial.checkpoints:
            return
        due = self._due(trial, covered=self._sendable(trial))
        if self._saves:
            newest = trial.checkpoints[-1]
            due.saves.append(SaveDue(trial.saves, newest.ref.iteration, trial.open_checkpoint(newest)))
        self._sender.tell(due)

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        if self._sender is not None:
            self._begun.discard(trial.trial_id)
        self._tell(trial, covered=trial.iteration, ending=RunEnding.FAILED if failed else RunEnding.FINISHED)

    def log_trial_rollback(self, trial: Trial, iteration: int) -> None:
        pass  # the next attempt's start says from where it goes on; to have it says that iterations come again

    # --- telling ----------------------------------------------------------------------------------------------

    def _take_up(self, trials: Trials) -> None:
        """After a resume: have what the last driver's tracker may lack looked at. Its marks say what that is."""
        if self._taken_up or self._sender is None:
            return
        self._taken_up = True
        known = None if self._stored is None else self._stored | self._begun
        self._stored = None
        for trial in trials:
            if not trial.attempt or (known is not None and trial.trial_id not in known):
                continue
            if trial.is_finished():
                self.log_trial_end(trial, failed=trial.status == trial.ERROR)
            elif trial.trial_id not in self._begun or trial.status != trial.RUNNING:
                self._begun.add(trial.trial_id)
                self._tell(trial, covered=self._sendable(trial))

    def _sendable(self, trial: Trial) -> int:
        """Up to where results of the trial may be sent now."""
        return _covered(trial) if self.hold_back else trial.iteration

    def _tell(self, trial: Trial, **what: Any) -> None:
        if self._sender is not None:  # else the journal is replayed
            self._sender.tell(self._due(trial, **what))

    def _due(self, trial: Trial, **what: Any) -> Due:
        about = About(trial.trial_id, trial.name, trial.directory, trial.config, trial.evaluated_params)
        return Due(about, **what)


def _resume_words(trials: Trials) -> str:
    paths = ExperimentPaths(trials[0].directory.parent)
    return resume_words(paths.root, starter_of(paths, read_settings(paths)))


def _covered(trial: Trial) -> int:
    """Up to where a trial's results stand whatever happens: its end, its newest checkpoint, where it became a clone."""
    if trial.is_finished():
        return trial.iteration
    if own := trial.own_checkpoints:
        return min(own[-1].iteration, trial.iteration)
    start = trial.next_start or trial.started_from
    borrowed = start is not None and start.trial_id != trial.trial_id
    return min(trial.clone_iteration, trial.iteration) if borrowed else 0
