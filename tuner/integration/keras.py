"""Keras's callbacks under Ray Tune's names; `trainables.keras` says how a model is continued."""

from __future__ import annotations

from trainables.keras import KerasEventCallback, frequencies
from trainables.reporting import Metrics

__all__ = ["TuneReportCallback", "TuneReportCheckpointCallback"]


class TuneReportCallback(KerasEventCallback):
    """Reports the logs at the hooks that `on` names (without `on_`), and saves nothing."""

    def __init__(self, metrics: Metrics = None, on: str | list[str] = "epoch_end") -> None:
        super().__init__(metrics, report_on=on)


class TuneReportCheckpointCallback(KerasEventCallback):
    """Reports the logs at the hooks that `on` names (without `on_`), and checkpoints the model.

    Args:
        metrics: Which of the logs to report; a dict of name to report -> Keras's name renames; None for all.
        filename: The model's name in the checkpoint; one without an ending gets ".keras".
        frequency: How many calls, or epochs, lie between two checkpoints; a list has one number for each hook.
        on: "epoch_end", "train_end", ..., or several.
        checkpoint_on, report_metrics_on: the same for each of the two, as today's Ray has it; None: as `on` says.
    """

    def __init__(
        self,
        metrics: Metrics = None,
        filename: str = KerasEventCallback.CHECKPOINT_NAME,
        frequency: int | list[int] = 1,
        on: str | list[str] = "epoch_end",
        *,
        checkpoint_on: str | list[str] | None = None,
        report_metrics_on: str | list[str] | None = None,
    ) -> None:
        save = frequencies(on if checkpoint_on is None else checkpoint_on, frequency)
        report = on if report_metrics_on is None else report_metrics_on
        super().__init__(metrics, filename=filename, report_on=report, save_on=save)
