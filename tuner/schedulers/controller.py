"""`RunController`: what a scheduler that was written for Ray reads of the run, and asks of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, overload

from tuner.error import NoSuchAttributeError, SettingError
from tuner.experiment.reason import Reason, ReasonKind
from tuner.experiment.trial import Trial
from tuner.schedulers.base import Decision, Directive


class RunController(Sequence[Trial]):
    """The first argument of a hook that was written for Ray: `tune_controller`, or `trial_runner`.

    Nothing that is asked of it happens inside the call: a trial that runs stops or pauses at its next result, one that
    waits is ended right after the hook. As a sequence it is the trials that wait, from which the next one is chosen.

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
        self.offered: Sequence[Trial] = ()
        """Those that wait, while one is to be chosen."""
        self.wishes: dict[str, Decision] = {}
        """What is to happen to trials at their next result, or when they wait."""
        self.removed: set[str] = set()
        """Trials that it had ended while they waited."""
        self._trials, self._has_room = trials, has_room

    # --- what is read -------------------------------------------------------------------------------------------

    def get_trials(self) -> Sequence[Trial]:
        """All trials so far, in order of creation; live and read-only."""
        return self._trials

    def get_live_trials(self) -> list[Trial]:
        """Those that have not ended."""
        return [trial for trial in self._trials if not trial.is_finished()]

    def get_trial(self, tid: str) -> Trial | None:
        """The trial of that id, or None."""
        get: Callable[[str], Trial | None] | None = getattr(self._trials, "get", None)
        return get(tid) if get else next((trial for trial in self._trials if trial.trial_id == tid), None)

    def has_resources_for_trial(self, trial: Trial) -> bool:
        """Whether it would be started at once."""
        return self._has_room(trial)

    def has_resources(self, resources: Any = None) -> bool:
        """True: nothing is chosen while there is no room."""
        return True

    def is_finished(self) -> bool:
        """Every trial so far has ended."""
        return all(trial.is_finished() for trial in self._trials)

    @property
    def trial_executor(self) -> RunController:
        """Ray's object that starts and stops; here it is this one."""
        return self

    _trial_executor = trial_executor

    def debug_string(self) -> str:
        """How many trials there are."""
        return f"{len(self._trials)} trials, {len(self.get_live_trials())} of them live"

    @overload
    def __getitem__(self, index: int) -> Trial: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Trial]: ...
    def __getitem__(self, index: int | slice) -> Trial | Sequence[Trial]:
        return self.offered[index]

    def __len__(self) -> int:
        return len(self.offered)

    def __bool__(self) -> bool:
        return True  # also where nobody waits: code asks whether it has got a controller

    def get(self, trial_id: str) -> Trial | None:
        """Whoever waits under that id."""
        find: Callable[[str], Trial | None] | None = getattr(self.offered, "get", None)
        return find(trial_id) if find else next((one for one in self.offered if one.trial_id == trial_id), None)

    # --- what is asked ------------------------------------------------------------------------------------------

    def pause_trial(self, trial: Trial, should_checkpoint: bool = True) -> None:
        """Have a running trial saved, and wait."""
        if trial.status == Trial.RUNNING:
            self.wishes.setdefault(trial.trial_id, Decision.PAUSE)

    def stop_trial(self, trial: Trial, *_: Any, **__: Any) -> None:
        """Have a trial end, TERMINATED."""
        if not trial.is_finished():
            self.wishes[trial.trial_id] = Decision.STOP

    request_stop_trial = stop_trial

    def save(self, trial: Trial, *_: Any, **__: Any) -> None:
        """Have a checkpoint made at the next result."""
        if trial.status == Trial.RUNNING:
            self.wishes.setdefault(trial.trial_id, Decision.SAVE)

    def set_status(self, trial: Trial, status: str) -> None:
        """What code says of a trial that it pauses, lets go on, or ends."""
        if status == Trial.TERMINATED:
            self.stop_trial(trial)
        elif status == Trial.PAUSED:
            self.pause_trial(trial)
        elif status in (Trial.PENDING, Trial.RUNNING):
            if self.wishes.get(trial.trial_id) is Decision.PAUSE:
                del self.wishes[trial.trial_id]
        else:
            raise SettingError(
                f"set_status({trial}, {status!r}): what fails is found out here; a scheduler stops trials"
            )

    _set_trial_status = set_status

    def queue_trial(self, trial: Trial) -> None:
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
        return answer if wish is None or answer == Decision.STOP else wish

    def ordered(self) -> list[Directive]:
        """The ends of trials that wait, of those that were asked for."""
        made = []
        for trial_id, wish in list(self.wishes.items()):
            trial = self.get_trial(trial_id)
            if trial is None or trial.is_finished():
                del self.wishes[trial_id]
            elif wish is Decision.STOP and trial.status in (Trial.PENDING, Trial.PAUSED):
                del self.wishes[trial_id]
                self.removed.add(trial_id)
                made.append(Directive(trial_id, Decision.STOP, Reason(ReasonKind.DECIDED)))
        return made


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
