"""`Callback`: the hooks of a run, and the list that calls them.

The loop knows one `CallbackList`; loggers, progress and users' own callbacks are all `Callback`s in it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from trainables.checkpoint import Checkpoint
from tuner.error import SettingError
from tuner.experiment.trial import Trial
from tuner.slow_calls import timed

Trials = Sequence[Trial]
"""All trials in order of creation, live and read-only: it grows while it is looked at, and is never a copy."""


class Callback:
    """Base of all callbacks. Override what is of interest; every method does nothing here.

    Every hook runs in the loop's thread and holds it up: the reports and starts of all trials wait for it. One that
    takes over a second is logged once; do what takes long in a thread. What a hook raises ends the run, and the run can
    be resumed. Arguments are given by name; take `**info` too, so that later ones do no harm. `iteration` counts the
    loop's turns.

    A result may be changed in `on_trial_result`: `result["should_checkpoint"] = True` asks for a save in this step.
    When a trial goes back to a checkpoint and reports iterations again, only a callback that defines `on_rollback` is
    told of them again.

    Example:
        >>> class Best(tune.Callback):
        ...     def on_trial_result(self, iteration, trials, trial, result, **info):
        ...         print(trial.name, result["loss"])
    """

    changes_results = True
    """False promises that `on_trial_result` only reads; then nobody has to look whether it did, and rows of one turn of
    the loop get into `result.json` and `progress.csv` at its end."""

    def setup(
        self,
        stop: Any = None,
        num_samples: int | None = None,
        total_num_samples: int | None = None,
        **info: Any,
    ) -> None:
        """Before the first trial.

        Args:
            stop: the stop criteria.
            num_samples: how often the search space is sampled; -1: without end.
            total_num_samples: how many trials there will be in all, every combination of grids counted; -1: no end is
                known.
        """

    def on_step_begin(self, iteration: int, trials: Trials, **info: Any) -> None:
        """Before each turn of the loop."""

    def on_step_end(self, iteration: int, trials: Trials, **info: Any) -> None:
        """After each turn of the loop."""

    def on_trial_start(self, iteration: int, trials: Trials, trial: Trial, **info: Any) -> None:
        """An attempt of a trial was started."""

    def on_trial_clone(self, iteration: int, trials: Trials, trial: Trial, **info: Any) -> None:
        """A trial is to go on from another one's checkpoint: the last of `trial.clones`, with `trial.config`."""

    def on_trial_restore(self, iteration: int, trials: Trials, trial: Trial, **info: Any) -> None:
        """The attempt that starts now continues from a checkpoint."""

    def on_trial_save(self, iteration: int, trials: Trials, trial: Trial, **info: Any) -> None:
        """A checkpoint of a trial was published."""

    def on_trial_result(
        self, iteration: int, trials: Trials, trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        """A trial reported; nothing has been decided on it yet. `trial.last_result` is the one before."""

    def on_trial_complete(self, iteration: int, trials: Trials, trial: Trial, **info: Any) -> None:
        """A trial came to a good end."""

    def on_trial_recover(self, iteration: int, trials: Trials, trial: Trial, **info: Any) -> None:
        """An attempt failed, and there will be another."""

    def on_trial_error(self, iteration: int, trials: Trials, trial: Trial, **info: Any) -> None:
        """A trial failed for good; `trial.error` says why."""

    def on_checkpoint(self, iteration: int, trials: Trials, trial: Trial, checkpoint: Checkpoint, **info: Any) -> None:
        """A checkpoint of a trial was published."""

    def on_experiment_end(self, trials: Trials, **info: Any) -> None:
        """After the last trial, also when the run ends early."""

    def on_rollback(self, trial: Trial, iteration: int) -> None:
        """Results of `trial` after `iteration` are void; they will be reported again."""

    def next_refresh(self) -> float | None:
        """Seconds until the loop should turn once more even if nothing happens; None: no wish."""
        return None

    def is_preempted(self) -> bool:
        """True ends the run as a SIGTERM does; asked after each turn of the loop. See `tuner.preemption`."""
        return False

    def get_state(self) -> dict[str, Any] | None:
        """What a resume gives back to `set_state`; None: nothing.

        A callback that defines it is brought up to date at a resume: its last stored state, then the hooks of trials
        (start, clone, result, save, complete, error) for what was journaled after that, in order and before `setup`.
        """
        return None

    def set_state(self, state: dict[str, Any]) -> None:
        """Take up the state of an interrupted run; before `setup`."""

    @property
    def takes_back(self) -> bool:
        """True if it can forget results, so that it may be told of an iteration again."""
        return type(self).on_rollback is not Callback.on_rollback


_Hooks = tuple[tuple[Callback, Callable[..., Any]], ...]
_ResultHooks = tuple[tuple[Callback, Callable[..., Any], bool], ...]


def _about_trial(hook: str) -> Callable[[CallbackList, int, Trials, Trial], None]:
    """The method of a list that calls a hook which is about one trial."""

    def tell(callbacks: CallbackList, iteration: int, trials: Trials, trial: Trial) -> None:
        callbacks._call(hook, iteration=iteration, trials=trials, trial=trial)

    return tell


class CallbackList:
    """Calls several callbacks in their order, and only those that override the hook in question."""

    def __init__(self, callbacks: Iterable[Callback] = ()) -> None:
        self.callbacks = list(callbacks)
        for callback in self.callbacks:
            _check(callback)
        self._overridden()

    def append(self, callback: Callback) -> None:
        """Add one at the end."""
        _check(callback)
        self.callbacks.append(callback)
        self._overridden()

    def __len__(self) -> int:
        return len(self.callbacks)

    @property
    def changes_results(self) -> bool:
        """Whether somebody in it may."""
        return bool(self._changing)

    on_trial_start = _about_trial("on_trial_start")
    on_trial_clone = _about_trial("on_trial_clone")
    on_trial_restore = _about_trial("on_trial_restore")
    on_trial_save = _about_trial("on_trial_save")
    on_trial_complete = _about_trial("on_trial_complete")
    on_trial_recover = _about_trial("on_trial_recover")
    on_trial_error = _about_trial("on_trial_error")

    def setup(self, **info: Any) -> None:
        self._call("setup", **info)

    def on_step_begin(self, iteration: int, trials: Trials) -> None:
        self._call("on_step_begin", iteration=iteration, trials=trials)

    def on_step_end(self, iteration: int, trials: Trials) -> None:
        self._call("on_step_end", iteration=iteration, trials=trials)

    def on_trial_result(self, iteration: int, trials: Trials, trial: Trial, result: dict[str, Any]) -> bool:
        """Show a result to those that may change it; True if somebody did. `after_trial_result` has the others."""
        if not self._changing:
            return False
        before = _copied(result)
        self._tell_of_result(self._changing, iteration, trials, trial, result)
        return _differs(before, result)

    def after_trial_result(self, iteration: int, trials: Trials, trial: Trial, result: dict[str, Any]) -> None:
        """Show a result that was decided on to those that only read it: the trial has its answer and goes on."""
        self._tell_of_result(self._reading, iteration, trials, trial, result)

    @staticmethod
    def _tell_of_result(
        hooks: _ResultHooks, iteration: int, trials: Trials, trial: Trial, result: dict[str, Any]
    ) -> None:
        if not hooks:
            return
        again = result.get("training_iteration", trial.told + 1) <= trial.told
        for callback, hook, takes_back in hooks:
            if again and not takes_back:
                continue  # it was told of this iteration before the trial went back
            CallbackList._call_one(
                "on_trial_result", callback, hook, iteration=iteration, trials=trials, trial=trial, result=result
            )

    def on_checkpoint(self, iteration: int, trials: Trials, trial: Trial, checkpoint: Checkpoint) -> None:
        self._call("on_checkpoint", iteration=iteration, trials=trials, trial=trial, checkpoint=checkpoint)

    def on_experiment_end(self, trials: Trials) -> None:
        """Everybody is told, also when one of them fails; the first error is raised then."""
        first: Exception | None = None
        for pair in self._hooks["on_experiment_end"]:
            try:
                self._call_one("on_experiment_end", *pair, trials=trials)
            except Exception as error:
                first = first or error
        if first is not None:
            raise first

    def on_rollback(self, trial: Trial, iteration: int) -> None:
        self._call("on_rollback", trial=trial, iteration=iteration)

    def next_refresh(self) -> float | None:
        """The soonest wish, in seconds; None if nobody has one."""
        wishes = [wish for _, hook in self._hooks["next_refresh"] if (wish := hook()) is not None]
        return min(wishes) if wishes else None

    def is_preempted(self) -> bool:
        """Whether somebody has seen that this machine is about to be taken away."""
        return any(self._call_one("is_preempted", *pair) for pair in self._hooks["is_preempted"])

    def get_state(self) -> dict[str, Any]:
        """The states of those that have one, by class name and number among its like."""
        states = {key: self._call_one("get_state", each, each.get_state) for key, each in self._named()}
        return {key: state for key, state in states.items() if state is not None}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Give every callback that is there again its state back."""
        for key, callback in self._named():
            if key in state:
                callback.set_state(state[key])

    def stateful(self) -> CallbackList:
        """Those that keep a state: at a resume they are told again what happened after their state was stored."""
        return CallbackList(c for c in self.callbacks if type(c).get_state is not Callback.get_state)

    def _named(self) -> list[tuple[str, Callback]]:
        seen: dict[str, int] = {}
        named = []
        for callback in self.callbacks:
            name = type(callback).__qualname__
            seen[name] = seen.get(name, 0) + 1
            named.append((f"{name}#{seen[name]}", callback))
        return named

    def _overridden(self) -> None:
        """Look once who overrides what: a hook that nobody overrides costs nothing per event."""
        self._hooks: dict[str, _Hooks] = {}
        for name, base in vars(Callback).items():
            if callable(base) and not name.startswith("_"):
                found = [(callback, getattr(callback, name)) for callback in self.callbacks]
                self._hooks[name] = tuple(pair for pair in found if getattr(pair[1], "__func__", pair[1]) is not base)
        told = [(callback, hook, callback.takes_back) for callback, hook in self._hooks["on_trial_result"]]
        self._changing = tuple(entry for entry in told if entry[0].changes_results)
        self._reading = tuple(entry for entry in told if not entry[0].changes_results)

    def _call(self, name: str, **arguments: Any) -> None:
        for callback, hook in self._hooks[name]:
            self._call_one(name, callback, hook, **arguments)

    @staticmethod
    def _call_one(name: str, callback: Callback, hook: Callable[..., Any], **arguments: Any) -> Any:
        try:
            with timed(lambda: f"{type(callback).__qualname__}.{name}"):
                return hook(**arguments)
        except Exception as error:
            _explain(error, callback, name)
            raise


def _check(callback: object) -> None:
    if isinstance(callback, Callback):
        return
    if isinstance(callback, type) and issubclass(callback, Callback):
        raise SettingError(f"callbacks: {callback.__name__} is a class; give an object of it: {callback.__name__}()")
    raise SettingError(f"callbacks: {callback!r:.80} is not accepted; accepted are objects of a tune.Callback subclass")


def _explain(error: Exception, callback: Callback, hook: str) -> None:
    """Say in the traceback whose hook it was; the error itself stays what the user knows."""
    note = f"raised by {type(callback).__qualname__}.{hook}, a callback of this run"
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)


def _copied(result: dict[str, Any]) -> dict[str, Any]:
    """A copy to compare with: values that can be changed in place are copied too."""
    return {
        key: copy.deepcopy(value) if isinstance(value, (dict, list, set)) else value for key, value in result.items()
    }


def _differs(before: dict[str, Any], after: dict[str, Any]) -> bool:
    try:
        return before != after
    except ValueError:
        return True  # arrays that were replaced: they compare by element
