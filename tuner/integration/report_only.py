"""How often Ray Tune's boosting callbacks save: `ReportOnly` never, `SavesInBetween` every five rounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from trainables.reporting import Metrics


class ReportOnly:
    """Goes before a callback that reports and checkpoints, and takes the checkpoints from it."""

    def __init__(
        self,
        metrics: Metrics = None,
        results_postprocessing_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        how = {"frequency": 0, "checkpoint_at_end": False, "results_postprocessing_fn": results_postprocessing_fn}
        super().__init__(metrics, **how)  # type: ignore[call-arg]


class SavesInBetween:
    """Goes before a callback that saves at the end only: a scheduler stops a trial in the middle of its training.

    Five rounds is Ray's default of this callback up to 2.0, 1 that of 2.9, and 0 (none before the end) today's.
    """

    CHECKPOINT_NAME: ClassVar[str]

    def __init__(
        self,
        metrics: Metrics = None,
        filename: str | None = None,
        frequency: int = 5,
        checkpoint_at_end: bool = True,
        results_postprocessing_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        at = (filename or self.CHECKPOINT_NAME, frequency, checkpoint_at_end, results_postprocessing_fn)
        super().__init__(metrics, *at)  # type: ignore[call-arg]
