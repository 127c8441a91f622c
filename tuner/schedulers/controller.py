"""`RunController`: what a scheduler that was written for Ray reads of the run, and asks of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, overload

from trainables.metrics import with_paths
from tuner.error import NoSuchAttributeError, SettingError
from tuner.experiment.reason import Reason, ReasonKind
from tuner.experiment.trial import Trial
from tuner.schedulers.base import Decision, Directive, Exploit
from tuner.schedulers.shown_trial import SavedBy, ShownTrial, trial_of


class RunController(Sequence[Trial]):
    """The first argument of a hook that was written for Ray: `tune_controller`, or `trial_runner`.

    Nothing that is asked of it happens inside the call: a trial that runs stops or pauses at its next result, one that
    waits is ended right after the hook. The scheduler sees it as done at once, and hears of it as with Ray: inside the
    call. As a sequence it is the trials that wait, from which the next one is chosen.

    Args:
        trials: all of the run, in order of creation; live.
        search_alg, scheduler_alg: who proposes, and who decides.
        has_room: whether there is room for one more trial, and this one.
    """

    def __init__(
        self,
        trials: Sequence[Trial] = (),
        *,
        search_alg: Any = None,
        scheduler_alg: Any = None,
        has_room: Callable[[Trial], bool] = lambda trial: True,
    ) -> None:
        self.search_alg, self.scheduler_alg = search_alg, scheduler_alg
        self.offered: Sequence[Any] = ()
        """Those that wait, while one is to be chosen."""
        self.wishes: dict[str, Decision] = {}
        """What is to happen to trials at their next result, or when they wait."""
        self.statuses: dict[str, str] = {}
        """What trials are to the scheduler, where that is more than what they are yet."""
        self.clones: dict[str, Exploit] = {}
        """Trials that are to go on with another config, or from another one's checkpoint."""
        self.deciding: tuple[str, dict[str, Any]] | None = None
        """The trial that a hook is asked about, and its result."""
        self._trials, self._has_room = trials, has_room
        self._shown: list[ShownTrial] = []
        self._by_id: dict[str, ShownTrial] = {}

    # --- what is read -------------------------------------------------------------------------------------------

    def get_trials(self) -> list[Any]:
        """All trials so far, in order of creation."""
        for number in range(len(self._shown), len(self._trials)):
            self._shown.append(self.shown(self._trials[number]))
        return self._shown

    def get_live_trials(self) -> list[Any]:
        """Those that have not ended."""
        return [trial for trial in self.get_trials() if not trial.is_finished()]

    def get_trial(self, tid: str) -> Any:
        """The trial of that id, or None."""
        if tid not in self._by_id:
            self.get_trials()
        return self._by_id.get(tid)

    def shown(self, trial: Trial) -> ShownTrial:
        """A trial of the run as the scheduler sees it; always the same object."""
        found = self._by_id.get(trial.trial_id)
        if found is None:
            found = self._by_id[trial.trial_id] = ShownTrial(trial, self)
        return found

    def status_of(self, trial: Trial) -> str:
        """What a trial is to the scheduler."""
        return trial.status if trial.is_finished() else self.statuses.get(trial.trial_id, trial.status)

    def has_resources_for_trial(self, trial: Any) -> bool:
        """Whether it would be started at once."""
        return self._has_room(trial)

    def has_resources(self, resources: Any = None) -> bool:
        """True: nothing is chosen while there is no room."""
        return True

    def is_finished(self) -> bool:
        """Every trial so far has ended."""
        return not self.get_live_trials()

    @property
    def trial_executor(self) -> ExecutorShown:
        """Ray's object that starts and stops the processes of trials."""
        return ExecutorShown(self)

    _trial_executor = trial_executor

    def debug_string(self) -> str:
        """How many trials there are."""
        return f"{len(self._trials)} trials, {len(self.get_live_trials())} of them live"

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return self.offered[index]

    def __len__(self) -> int:
        return len(self.offered)

    def __bool__(self) -> bool:
        return True  # also where nobody waits: code asks whether it has got a controller

    def get(self, trial_id: str) -> Any:
        """Whoever waits under that id."""
        return next((one for one in self.offered if one.trial_id == trial_id), None)

    # --- what is asked ------------------------------------------------------------------------------------------

    def pause_trial(self, trial: Any, should_checkpoint: bool = True) -> None:
        """Have a running trial saved, and wait."""
        if trial.status == Trial.RUNNING:
            self.wishes.setdefault(trial.trial_id, Decision.PAUSE)
            self.statuses[trial.trial_id] = Trial.PAUSED

    def stop_trial(self, trial: Any, *_: Any, **__: Any) -> None:
        """Have a trial end, TERMINATED. The scheduler hears at once that it is complete, or removed if it waits."""
        if trial.is_finished():
            return
        waits = trial.status != Trial.RUNNING
        self.wishes[trial.trial_id] = Decision.STOP
        self.statuses[trial.trial_id] = Trial.TERMINATED
        trial = self.get_trial(trial.trial_id) or trial
        if self.scheduler_alg is None:
            return
        if waits:
            self.scheduler_alg.on_trial_remove(self, trial)
        else:
            now = self.deciding is not None and self.deciding[0] == trial.trial_id
            result = self.deciding[1] if now and self.deciding else with_paths(trial.last_result)
            self.scheduler_alg.on_trial_complete(self, trial, result)

    request_stop_trial = stop_trial

    def save(self, trial: Any, *_: Any, **__: Any) -> SavedBy:
        """Have a checkpoint made with this result, or the next; what `on_checkpoint` of a trial takes."""
        if trial.status == Trial.RUNNING:
            self.wishes.setdefault(trial.trial_id, Decision.SAVE)
        return SavedBy(trial.trial_id)

    _schedule_trial_save = save

    def config_of(self, trial: Trial) -> dict[str, Any]:
        """The config of a trial, as the scheduler has set it."""
        clone = self.clones.get(trial.trial_id)
        return trial.config if clone is None else clone.config

    def clone(self, trial: Any, *, config: Mapping[str, Any] | None, saved: Any) -> None:
        """Have a trial go on with another config, from a checkpoint: its own newest, or that of another one."""
        before = self.clones.get(trial.trial_id) or Exploit(trial.trial_id, trial.config)
        donor = None if saved is None else trial_of(saved, {one.dirname: one.trial_id for one in self.get_trials()})
        if saved is not None and donor is None:
            raise SettingError(f"{trial}.on_checkpoint({saved!r:.100}): it is no checkpoint of a trial of this run")
        made = Exploit(donor or before.donor, before.config if config is None else dict(config))
        self.clones[trial.trial_id] = made

    def set_status(self, trial: Any, status: str) -> None:
        """What code says of a trial that it pauses, lets go on, or ends."""
        if status == Trial.TERMINATED:
            self.stop_trial(trial)
        elif status == Trial.PAUSED and self.statuses.get(trial.trial_id) == Trial.TERMINATED:
            self.wishes[trial.trial_id] = Decision.PAUSE  # its process was to end, and not the trial
            self.statuses[trial.trial_id] = Trial.PAUSED
        elif status == Trial.PAUSED:
            self.pause_trial(trial)
        elif status in (Trial.PENDING, Trial.RUNNING):
            if self.wishes.get(trial.trial_id) is Decision.PAUSE:
                del self.wishes[trial.trial_id]
            self.statuses[trial.trial_id] = status
        else:
            raise SettingError(
                f"set_status({trial}, {status!r}): what fails is found out here; a scheduler stops trials"
            )

    _set_trial_status = set_status

    def queue_trial(self, trial: Any) -> None:
        """Nothing: a trial that waits is started when it is chosen and there is room."""

    start_trial = continue_training = unpause_trial = mark_trial_to_checkpoint = queue_trial

    def force_reconcilation_on_next_step_end(self) -> None:
        """Nothing: there are no resources that have to be given back by hand."""

    def on_step_begin(self, *_: Any) -> None:
        """Nothing: turns of the loop are told to callbacks."""

    on_step_end = cleanup = on_step_begin

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NoSuchAttributeError(
            f"the controller of a run has no {name!r} here; instead: {_INSTEAD.get(name, _OTHERWISE)}"
        )

    # --- for the scheduler's hooks ------------------------------------------------------------------------------

    def wished(self, trial: Trial, answer: Any) -> Any:
        """What happens to a trial on which a hook has answered, once it has asked things of this object too."""
        wish = self.wishes.pop(trial.trial_id, None)
        if isinstance(answer, str):
            answer = _ANSWERS.get(answer, answer)
        decided = answer if wish is None or answer == Decision.STOP else wish
        clone = self.clones.pop(trial.trial_id, None)
        if clone is not None and decided != Decision.STOP:
            self.statuses[trial.trial_id] = Trial.PAUSED
            return clone
        if decided == Decision.PAUSE:
            self.statuses[trial.trial_id] = Trial.PAUSED
        elif decided in (Decision.CONTINUE, Decision.SAVE):
            self.statuses.pop(trial.trial_id, None)
        return decided

    def ordered(self) -> list[Directive]:
        """The ends of trials that wait, of those that were asked for."""
        made: list[Directive] = []
        for trial_id in list(self.clones):
            trial = self.get_trial(trial_id)
            if trial is not None and trial.actual_status in (Trial.PENDING, Trial.PAUSED):
                made.append(Directive(trial_id, self.clones.pop(trial_id)))
        for trial_id, wish in list(self.wishes.items()):
            trial = self.get_trial(trial_id)
            actual = Trial.TERMINATED if trial is None else trial.actual_status
            if actual in (Trial.TERMINATED, Trial.ERROR):
                del self.wishes[trial_id]
            elif wish is Decision.STOP and actual != Trial.RUNNING:
                del self.wishes[trial_id]
                made.append(Directive(trial_id, Decision.STOP, Reason(ReasonKind.DECIDED)))
        return made


class ExecutorShown:
    """`trial_executor` of a controller: what it is asked the controller is asked."""

    def __init__(self, controller: RunController) -> None:
        self._controller = controller

    def __getattr__(self, name: str) -> Any:
        return getattr(self._controller, name)

    def stop_trial(self, trial: Any, *_: Any, **__: Any) -> None:
        """Have a trial's process end, of which no hook hears; it is over, unless its status is set to PAUSED then."""
        if not trial.is_finished():
            self._controller.wishes[trial.trial_id] = Decision.STOP
            self._controller.statuses[trial.trial_id] = Trial.TERMINATED


_ANSWERS = {"CONTINUE": Decision.CONTINUE, "PAUSE": Decision.PAUSE, "STOP": Decision.STOP, "NOOP": Decision.PAUSE}
"""Ray's words. NOOP leaves a trial where it is: it does not train on until it is chosen."""
_OTHERWISE = (
    "get_trials(), get_live_trials(), get_trial(id), pause_trial(trial), stop_trial(trial), "
    "has_resources_for_trial(trial), search_alg and scheduler_alg; what else a run does is watched by a tuner.Callback"
)
_INSTEAD = {
    "request_stop_experiment": "a tuner.stopper.Stopper whose stop_all() returns True",
    "add_trial": "a tuner.search.Searcher proposes trials: suggest(trial_id)",
    "reset_trial": "return tuner.schedulers.base.Exploit(donor_id, config) from on_trial_result",
    "update_pending_trial_resources": "tuner.schedulers.ResourceChangingScheduler",
}
