"""Where an experiment is read for the page, and what there is of it besides its journal."""

from __future__ import annotations

import os
from collections.abc import Collection, Generator
from dataclasses import dataclass
from typing import Protocol

from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.replacing import standing
from tuner.experiment.trial import Trial
from tuner.experiment.trial_records import CheckpointRecord
from tuner.orders.lasting import LASTING
from tuner.orders.order import WORDS
from tuner.orders.standstill import is_copy
from tuner.ui import served_files


class ExperimentSource(Protocol):
    """Where an experiment is read."""

    @property
    def paths(self) -> ExperimentPaths: ...

    @property
    def interval(self) -> float:
        """Seconds between two looks."""
        ...

    @property
    def address(self) -> str:
        """As people know it."""
        ...

    @property
    def place(self) -> str:
        """Where orders are given."""
        ...

    @property
    def is_local(self) -> bool:
        """Its files lie at `paths`, checkpoints and all."""
        ...

    @property
    def words(self) -> Collection[str]:
        """The orders that can be given there."""
        ...

    @property
    def files_note(self) -> str | None:
        """What is to be known of the files that it has of trials."""
        ...

    def bring(self) -> None:
        """Have what is new lie at `paths`."""

    def bring_history(self) -> None:
        """Fetch what snapshots have replaced to `paths`; `bring` keeps it up to date from then on."""

    def logs(self, trial: Trial) -> dict[str, int]:
        """A trial's files that are served, and their bytes. Asks nobody elsewhere."""
        ...

    def open_log(self, trial: Trial, name: str) -> int:
        """A descriptor of one of them. Raises ExperimentNotFoundError, TransferError."""
        ...

    def holds(self, trial: Trial, record: CheckpointRecord) -> bool:
        """Whether a checkpoint can be had from here. Asks nobody elsewhere."""
        ...

    def packed(self, trial: Trial, name: str) -> Generator[bytes, None, None]:
        """A checkpoint as a tar file. Raises ExperimentNotFoundError, TransferError before its first piece."""
        ...

    def close(self) -> None:
        """Nothing is asked of it any more."""


@dataclass(frozen=True)
class LocalSource:
    """A directory of this machine, or of a shared disk."""

    paths: ExperimentPaths
    interval: float = 0.1
    is_local: bool = True

    @property
    def address(self) -> str:
        return str(self.paths.root)

    @property
    def place(self) -> str:
        return str(self.paths.root)

    @property
    def words(self) -> Collection[str]:
        return LASTING if is_copy(self.paths.root) else tuple(WORDS)

    @property
    def files_note(self) -> str | None:
        return None

    def bring(self) -> None:
        """It is there."""

    def bring_history(self) -> None:
        """It is there."""

    def logs(self, trial: Trial) -> dict[str, int]:
        return served_files.sizes(standing(self.paths).root, trial)

    def open_log(self, trial: Trial, name: str) -> int:
        return served_files.open_inside(standing(self.paths).root, trial.dirname, name)

    def holds(self, trial: Trial, record: CheckpointRecord) -> bool:
        return os.path.isdir(standing(self.paths).root / trial.dirname / record.ref.name)

    def packed(self, trial: Trial, name: str) -> Generator[bytes, None, None]:
        return served_files.as_tar(standing(self.paths).root, trial, name)

    def close(self) -> None:
        """It holds nothing."""
