"""`ReportOnly`: makes a boosting callback report without saving checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainables.reporting import Metrics


class ReportOnly:
    """Goes before a callback that reports and checkpoints, and takes the checkpoints from it."""

    def __init__(
        self,
        metrics: Metrics = None,
        results_postprocessing_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        how: dict[str, Any] = {"checkpoint_at_end": False, "results_postprocessing_fn": results_postprocessing_fn}
        super().__init__(metrics, **how)  # type: ignore[call-arg]
