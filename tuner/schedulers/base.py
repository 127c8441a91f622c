"""The seam between the loop and whatever decides which trials go on."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import cloudpickle

from tuner.error import SettingError
from tuner.search.state import picklable_state

DEFAULT_METRIC = "_metric"
"""The name under which `report(0.3)` reports, and what is compared when only a mode is given."""


class Decision(Enum):
    """What happens to a trial after a result."""

    CONTINUE = "continue"
    """It trains on. A checkpoint that came with the result is published, and retention decides what it replaces."""
    PAUSE = "pause"
    """It gives its resources back and waits. It is saved first, and its latest checkpoint stays until it goes on."""
    STOP = "stop"
    """It has ended, TERMINATED. A checkpoint that came with the result is published; a class trainable saves once more
    if `checkpoint_at_end` says so; retention keeps the best ones and the latest."""


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


T = TypeVar("T", bound=TrialView)


class TrialScheduler:
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

    needs_metric: ClassVar[bool] = False
    """True: it cannot work without metric and mode."""

    _metric: str | None = None
    _mode: str | None = None

    def __init__(self, *, metric: str | None = None, mode: str | None = None) -> None:
        check_metric(type(self).__name__, metric, mode)
        self._metric, self._mode = metric, mode

    @property
    def metric(self) -> str | None:
        """What trials are compared by; None: nothing, any result will do."""
        return self._metric

    @property
    def mode(self) -> str | None:
        """ "min" or "max"."""
        return self._mode

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Take what `tune.run` was given. Returns False if it contradicts what the constructor was given.

        Args:
            metric, mode: fill in what is not set yet.
            spec: what is added later; ignore what you do not know.
        """
        if self._metric is not None and metric is not None and self._metric != metric:
            return False
        if self._mode is not None and mode is not None and self._mode != mode:
            return False
        if self._metric is None:
            self._metric = metric
        if self._mode is None:
            self._mode = mode
        if self._metric is None and self._mode is not None and self.needs_metric:
            self._metric = DEFAULT_METRIC
        check_metric(type(self).__name__, self._metric, self._mode)
        return True

    def on_trial_add(self, trial: TrialView) -> None:
        """A trial was created."""

    def on_trial_result(self, trial: TrialView, result: dict[str, Any]) -> Decision:
        """A trial reported: what happens to it? Not called for a result after which a stopper ends the trial."""
        raise NotImplementedError(f"{type(self).__name__} does not define on_trial_result(trial, result)")

    def on_trial_complete(self, trial: TrialView, result: dict[str, Any]) -> None:
        """A trial has ended well, by itself, by a stopper or by this scheduler; `result` is its last one, or empty."""

    def on_trial_error(self, trial: TrialView) -> None:
        """A trial has failed for good."""

    def on_trial_remove(self, trial: TrialView) -> None:
        """A trial that did not run to its end will not come back."""

    def choose_trial_to_run(self, pending: Sequence[T]) -> T | None:
        """Which of the waiting trials (PENDING and PAUSED, oldest first) runs next; None: none of them, yet."""
        return pending[0] if pending else None

    def debug_string(self) -> str:
        """One line on where it stands, for people."""
        return f"Using {type(self).__name__}"

    def get_state(self) -> dict[str, Any]:
        """Everything that later decisions depend on; what cannot be pickled is left out."""
        return picklable_state(self)

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from what `get_state` returned."""
        self.__dict__.update(state)

    def save(self, checkpoint_path: str | Path) -> None:
        """Write the state to a file."""
        Path(checkpoint_path).write_bytes(cloudpickle.dumps(self.get_state()))

    def restore(self, checkpoint_path: str | Path) -> None:
        """Read the state from a file that `save` wrote. The file is unpickled: only use your own."""
        self.set_state(cloudpickle.loads(Path(checkpoint_path).read_bytes()))


def check_metric(who: str, metric: Any, mode: Any) -> None:
    """Raise SettingError for a metric that is no name, or a mode that is none."""
    if metric is not None and not isinstance(metric, str):
        raise SettingError(
            f"{who}: metric={metric!r} is not accepted; it is one name: a scheduler compares by one number"
        )
    if mode not in (None, "min", "max"):
        raise SettingError(f"{who}: mode={mode!r} is not accepted; accepted are 'min' and 'max'")
