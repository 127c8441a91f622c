"""`ShownTrial`: a trial as a scheduler sees it that was written for Ray."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from trainables.config import CheckpointConfig
from trainables.quick_dataclass import dataclass
from tuner.experiment.trial import Trial

if TYPE_CHECKING:
    from typing import Protocol

    class Shower(Protocol):
        """Who knows what such a scheduler has decided."""

        def status_of(self, trial: Trial) -> str: ...
        def set_status(self, trial: Any, status: str) -> None: ...
        def config_of(self, trial: Trial) -> dict[str, Any]: ...
        def clone(self, trial: Any, *, config: Mapping[str, Any] | None, saved: Any) -> None: ...


@dataclass(frozen=True)
class SavedBy:
    """Stands for a checkpoint of a trial that a scheduler has made, or takes: its newest, when it is used."""

    trial_id: str

    @property
    def checkpoint(self) -> SavedBy:
        """It."""
        return self


def trial_of(saved: Any, trials: Mapping[str, str]) -> str | None:
    """The id of the trial that a checkpoint belongs to; None: it is none of them.

    Args:
        saved: a `SavedBy`, or a checkpoint in the directory of a trial.
        trials: name of the directory -> id.
    """
    saved = getattr(saved, "checkpoint", saved)  # of a record of Ray's, beside its metrics
    if isinstance(saved, SavedBy):
        return saved.trial_id
    path = getattr(saved, "path", None)
    return None if path is None else trials.get(Path(str(path)).parent.name)


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

    @property
    def config(self) -> dict[str, Any]:
        """The config, as the scheduler has set it."""
        return self._controller.config_of(self._trial)

    def set_config(self, config: Mapping[str, Any]) -> None:
        """Go on with another config, from its newest checkpoint or from the one of which `on_checkpoint` was told."""
        self._controller.clone(self, config=config, saved=None)

    def on_checkpoint(self, checkpoint: Any) -> None:
        """Go on from the newest checkpoint of the trial that this one belongs to."""
        self._controller.clone(self, config=None, saved=checkpoint)

    def set_experiment_tag(self, tag: str) -> None:
        """Nothing: a trial keeps its tag, and `trial.clones` tells what was changed."""

    @property
    def latest_checkpoint_result(self) -> SavedBy | None:
        """What `on_checkpoint` of another trial takes; None: it has no checkpoint."""
        return SavedBy(self._trial.trial_id) if self._trial.has_checkpoint() else None

    @property
    def run_metadata(self) -> SimpleNamespace:
        """Has the `checkpoint_manager`."""
        return SimpleNamespace(checkpoint_manager=CheckpointsShown(self))

    @property
    def temporary_state(self) -> SimpleNamespace:
        """No save of its is in the way of anything."""
        return SimpleNamespace(saving_to=None, restoring_from=None)

    saving_to = restoring_from = None

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


class CheckpointsShown:
    """A trial's checkpoint manager, as far as schedulers for Ray use it: they set from where the trial goes on."""

    checkpoint_config = CheckpointConfig()

    def __init__(self, trial: ShownTrial) -> None:
        self._trial = trial

    @property
    def latest_checkpoint_result(self) -> SavedBy | None:
        """What `on_checkpoint` of another trial takes."""
        return self._trial.latest_checkpoint_result

    @property
    def _latest_checkpoint_result(self) -> SavedBy | None:
        return self._trial.latest_checkpoint_result

    @_latest_checkpoint_result.setter
    def _latest_checkpoint_result(self, saved: Any) -> None:
        self._trial.on_checkpoint(saved)
