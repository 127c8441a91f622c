"""`ShownTrial`: a trial as a scheduler sees it that was written for Ray."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tuner.experiment.trial import Trial

if TYPE_CHECKING:
    from typing import Protocol

    class Shower(Protocol):
        """Who knows what such a scheduler has decided."""

        def status_of(self, trial: Trial) -> str: ...
        def set_status(self, trial: Any, status: str) -> None: ...


class ShownTrial:
    """A trial whose status is what the scheduler has made of it: PAUSED as soon as it said so, not when that is done.

    It equals the trial, and has all that this has.

    Args:
        trial: the run's.
        controller: knows the status, and is told one that is set.
    """

    def __init__(self, trial: Trial, controller: Shower) -> None:
        self._trial, self._controller = trial, controller

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return Trial  # code asks whether it is one

    @property
    def status(self) -> str:
        """PENDING, RUNNING, PAUSED, TERMINATED or ERROR."""
        return self._controller.status_of(self._trial)

    @status.setter
    def status(self, status: str) -> None:
        self._controller.set_status(self, status)

    @property
    def actual_status(self) -> str:
        """What it is in the run."""
        return self._trial.status

    def set_status(self, status: str) -> None:
        """Set it."""
        self._controller.set_status(self, status)

    def is_finished(self) -> bool:
        """True for TERMINATED and ERROR."""
        return self.status in (Trial.TERMINATED, Trial.ERROR)

    def __getattr__(self, name: str) -> Any:
        if name in ("_trial", "_controller"):
            raise AttributeError(name)
        return getattr(self._trial, name)

    def __eq__(self, other: object) -> bool:
        return other is self or other is self._trial

    def __hash__(self) -> int:
        return hash(self._trial)

    def __repr__(self) -> str:
        return repr(self._trial)

    def __str__(self) -> str:
        return str(self._trial)
