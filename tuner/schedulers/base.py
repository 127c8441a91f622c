"""`TrialScheduler`: the interface of what decides which trials go on, its decisions and its obligations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, fields
from enum import Enum
from pathlib import Path
from types import NoneType
from typing import Any, ClassVar, Protocol, TypeVar

from trainables.quick_dataclass import dataclass
from tuner.error import SettingError, require
from tuner.experiment import unpickling
from tuner.experiment.reason import Reason, ReasonKind
from tuner.schedulers.hook_arity import look_at_hooks
from tuner.search.arguments import check_mode
from tuner.search.pickled_state import Stateful
from tuner.search.searcher import DEFAULT_METRIC, Metric, check_metric_and_mode


class Decision(Enum):
    """What happens to a trial after a result."""

    CONTINUE = "continue"
    """It trains on. A checkpoint that came with the result is published, and retention decides what it replaces."""
    SAVE = "save"
    """It trains on, and a checkpoint is made first: of a class trainable; a function sees `should_checkpoint()`."""
    PAUSE = "pause"
    """It gives its resources back and waits. It is saved first: a class trainable now; a function runs on to its next
    save, and its results until then are told too. Its latest checkpoint stays until it goes on."""
    STOP = "stop"
    """It has ended, TERMINATED. A checkpoint that came with the result is published; a class trainable saves once more
    if `checkpoint_at_end` says so; retention keeps the best ones and the latest."""


def _set_state(self: Any, state: list[Any]) -> None:
    """Read a state that was saved when the class had no reason yet: schedulers' states are kept with an experiment."""
    # Each class names it in its body: with frozen and slots, `dataclass` hides one that is inherited.
    for each, value in zip(fields(self), [*state, None], strict=False):
        object.__setattr__(self, each.name, value)


@dataclass(frozen=True, slots=True)
class Exploit:
    """It goes on as a clone: from the donor's newest published checkpoint, with another config.

    Its own results stand, and its count of iterations goes on. A donor that has no checkpoint is none: nothing happens.
    """

    donor: str
    """The donor's trial_id."""
    config: dict[str, Any]
    """The whole config from here on."""
    reason: Reason | None = field(default=None, compare=False)
    """Why; None: the scheduler's class is named."""

    __setstate__ = _set_state


@dataclass(frozen=True, slots=True)
class Reallocate:
    """It goes on with other resources: saved, ended, and started again when they are free."""

    resources: dict[str, float]
    """{"cpu": 2.0, "gpu": 0.5}: all that it gets."""
    reason: Reason | None = field(default=None, compare=False)
    """Why; None: the scheduler's class is named."""

    __setstate__ = _set_state


Verdict = Decision | Exploit | Reallocate
"""What happens to a trial."""


@dataclass(frozen=True, slots=True, eq=False)
class Reasoned:
    """A decision and why it was made, for people: the journal keeps it.

    It equals the bare verdict, so that who extends a scheduler can go on comparing: the reason changes nothing.
    """

    verdict: Decision
    reason: Reason
    """`by` and `iteration` may be left out: they are the scheduler's class and the result's."""

    def __post_init__(self) -> None:
        if isinstance(self.verdict, Reasoned):  # who extends a scheduler gave what that one decided a reason of its own
            object.__setattr__(self, "verdict", self.verdict.verdict)

    def __eq__(self, other: object) -> bool:
        return self.verdict == (other.verdict if isinstance(other, Reasoned) else other)

    def __hash__(self) -> int:
        return hash(self.verdict)

    @property
    def name(self) -> str:
        """As of the bare decision."""
        return self.verdict.name

    @property
    def value(self) -> str:
        """As of the bare decision."""
        return self.verdict.value


def split(answer: Verdict | Reasoned, by: str, iteration: int) -> tuple[Verdict, Reason | None]:
    """The verdict, and why: a bare one is named by who gave it, and to go on needs no reason."""
    if answer is Decision.CONTINUE:
        return Decision.CONTINUE, None
    verdict = answer.verdict if isinstance(answer, Reasoned) else answer
    reason = None if isinstance(answer, Decision) else getattr(answer, "reason", None)
    if not isinstance(verdict, Verdict) or not isinstance(reason, (Reason, NoneType)):
        raise SettingError(
            f"{by} decided {answer!r:.200}, which is not accepted; accepted are TrialScheduler.CONTINUE, PAUSE and "
            "STOP, Decision.SAVE, Exploit, Reallocate, and Reasoned(one of these, Reason(...))"
        )
    if reason is None:
        reason = Reason(_KINDS.get(type(verdict), ReasonKind.DECIDED))
    return verdict, reason.filled(by, iteration)


_KINDS: dict[type, ReasonKind] = {Exploit: ReasonKind.EXPLOIT, Reallocate: ReasonKind.RESOURCES}


@dataclass(frozen=True, slots=True)
class Directive:
    """Something that happens to a trial which waits, because of what happened to another one."""

    trial_id: str
    what: Verdict
    """STOP: it has ended, TERMINATED. Exploit, Reallocate: it goes on so when it is chosen."""
    reason: Reason | None = field(default=None, compare=False)
    """Why; None: what the verdict itself says, or else the scheduler's class is named."""

    __setstate__ = _set_state


Order = Directive
"""Its name in 0.1: schedulers of users import it, and states that experiments have stored name it."""


class TrialView(Protocol):
    """What a scheduler may look at of a trial."""

    @property
    def trial_id(self) -> str:
        """Tells trials apart; the only thing of a trial that may be kept."""

    @property
    def config(self) -> dict[str, Any]:
        """The trial's config; not to be changed."""

    @property
    def status(self) -> str:
        """PENDING, RUNNING, PAUSED, TERMINATED or ERROR."""

    @property
    def resources(self) -> dict[str, float] | None:
        """What it gets, if that was changed; None: what the run says."""


T = TypeVar("T", bound=TrialView)


class TrialScheduler(Stateful):
    """Decides after each result whether a trial continues, and which waiting trial runs next.

    Obligations of a subclass:

    - Every method is called from one thread, in the order in which things were journaled. A scheduler does no I/O,
      reads no clock, and keeps no trial: trials are told apart by `trial_id`.
    - The same calls give the same decisions, also in another process. Who draws random numbers draws them from a seed.
    - A result and a trial are not changed.
    - `get_state` / `set_state` carry everything that later decisions depend on, but not the arguments of the
      constructor. They are called between any two other calls; the state is pickled.
    - `on_trial_add` comes once per trial, before everything else about it. Each (trial, training_iteration) is told at
      most once. After `on_trial_error` or `on_trial_complete` a trial may come back, if it is continued by a resume:
      its next results follow, without another `on_trial_add`.
    - A metric is looked up with `trainables.metrics`, so that nested names work. A result without the metric, or
      with one that is not a number, decides nothing; NaN is worse than every number.
    """

    CONTINUE: ClassVar[Decision] = Decision.CONTINUE
    PAUSE: ClassVar[Decision] = Decision.PAUSE
    STOP: ClassVar[Decision] = Decision.STOP
    NOOP: ClassVar[str] = "NOOP"
    """Of hooks that were written for Ray: the trial waits, unless the controller was told what becomes of it."""

    needs_metric: ClassVar[bool] = False
    """True: it cannot work without metric and mode."""
    several_metrics: ClassVar[bool] = False
    """True: it may be given a list of metrics, and one mode each."""
    time_attr: str | None = None
    """What progress is measured by: the first result has to have it as a number. None: nothing."""
    sees_new: ClassVar[bool] = False
    """True: trials are created before there is room for them, so that it chooses from new ones, too."""
    population: ClassVar[bool] = False
    """True: it compares all trials with each other all along, so they are created before one of them goes on."""
    changed_params: Sequence[str] = ()
    """Keys of the config, nested ones as "a/b", that it changes while trials run: they are shown as searched ones."""

    _metric: Metric = None
    _mode: Metric = None

    def __init__(self, *, metric: Metric = None, mode: Metric = None) -> None:
        check_metric(type(self).__name__, metric, mode, several=self.several_metrics)
        self._metric, self._mode = _listed(metric), _listed(mode)

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        look_at_hooks(cls, TrialScheduler)

    @property
    def metric(self) -> Metric:
        """What trials are compared by; None: nothing, any result will do."""
        return self._metric

    @property
    def mode(self) -> Metric:
        """ "min" or "max", one per metric."""
        return self._mode

    def set_search_properties(self, metric: Metric, mode: Metric, **spec: Any) -> bool:
        """Take what `tune.run` was given. Returns False if it contradicts what the constructor was given.

        Args:
            metric, mode: fill in what is not set yet.
            spec: what is added later; ignore what you do not know.
        """
        metric, mode = _listed(metric), _listed(mode)
        if self._metric is not None and metric is not None and self._metric != metric:
            return False
        if self._mode is not None and mode is not None and self._mode != mode:
            return False
        if self._metric is None:
            self._metric = metric
        if self._mode is None:
            self._mode = mode
        if self._metric is None and isinstance(self._mode, str) and self.needs_metric:
            self._metric = DEFAULT_METRIC
        check_metric(type(self).__name__, self._metric, self._mode, several=self.several_metrics)
        return True

    def first_config(self, config: dict[str, Any]) -> dict[str, Any]:
        """What a new trial begins with, of what the search gives; asked before it is created, `config` not changed."""
        return config

    def on_trial_add(self, trial: TrialView) -> None:
        """A trial was created."""

    def on_trial_fork(self, trial: TrialView, result: dict[str, Any]) -> None:
        """A trial that was just added begins at a checkpoint of another one, because a user wants so.

        Args:
            result: that one's at the checkpoint: the trial's own results follow on it, so that it was never where the
                others began.
        """

    def on_trial_start(self, trial: TrialView) -> None:
        """An attempt of it begins: its first, one after a pause, or one after a failure."""

    def on_trial_result(self, trial: TrialView, result: dict[str, Any]) -> Verdict | Reasoned:
        """A trial reported: what happens to it? Not called for a result after which a stopper ends the trial.

        A bare verdict is journaled with the scheduler's class as its reason; `Reasoned` says more.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define on_trial_result(trial, result)")

    def decides_from(self, trial: TrialView, iteration: int) -> float:
        """The first `training_iteration` after this one about which it may decide anything but CONTINUE.

        A trial need not wait for the answers to results before it, and a decision about one of them comes late. The
        default is the next one. Asked after `on_trial_result`; nothing is changed by it.
        """
        return iteration + 1

    def on_checkpoint(self, trial: TrialView, iteration: int) -> None:
        """A checkpoint of that iteration of the trial is published: from now on it can be a donor."""

    def orders(self) -> Sequence[Directive]:
        """What is to happen to trials that wait, decided since the last call; asked after every other call."""
        return ()

    def on_trial_complete(self, trial: TrialView, result: dict[str, Any]) -> None:
        """A trial has ended well, by itself, by a stopper or by this scheduler; `result` is its last one, or empty."""

    def on_trial_error(self, trial: TrialView) -> None:
        """A trial has failed for good."""

    def on_trial_remove(self, trial: TrialView) -> None:
        """A trial that did not run to its end will not come back."""

    def on_search_end(self) -> None:
        """No new trials will come: nobody waits for them any longer. A resume may ask for more all the same."""

    def on_trial_held(self, trial: TrialView) -> None:
        """No trial runs, and a user keeps this one waiting: nobody is to wait for it any longer. `on_trial_start` tells
        when it is back. Called before `on_idle`, each time.
        """

    def on_idle(self) -> None:
        """No trial runs, none of those that wait was chosen, and no new one comes now: who waits for others is to go on
        or to be ordered to end. It is called again as long as that changes something.
        """

    def choose_trial_to_run(self, pending: Sequence[T]) -> T | None:
        """Which of the waiting trials runs next; None: none of them, yet. Nothing is changed by it: it is asked again
        and again, and not at all when a run is replayed; `on_trial_start` tells which one really started.

        Args:
            pending: PENDING and PAUSED ones, oldest first: a live view, never a copy, to be read now and not kept. The
                first one and the length cost the same however many wait; so does `pending.get(trial_id)` in a run.
        """
        return pending[0] if pending else None

    @property
    def supports_buffered_results(self) -> bool:
        """False: every result is told when it comes."""
        return False

    def debug_string(self) -> str:
        """One line on where it stands, for people."""
        return f"Using {type(self).__name__}"

    def restore(self, checkpoint_path: str | Path) -> None:
        # Version 0.1.0 named the reasons in it by another module.
        self.set_state(unpickling.loads(Path(checkpoint_path).read_bytes()))


def check_metric(who: str, metric: Any, mode: Any, *, several: bool = False) -> None:
    """Raise SettingError for a metric that is no name, or a mode that is none; `several` may be lists of both."""
    if several:
        check_metric_and_mode(who, metric, mode)
        return
    one = metric is None or isinstance(metric, str)
    require(one, f"{who}: metric", metric, "it is one name: it compares by one number; ASHAScheduler takes several")
    if mode is not None:
        check_mode(mode, f"{who}: mode")


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
