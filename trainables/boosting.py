"""Base of the XGBoost and LightGBM callbacks: report every round, checkpoint the model every so many."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from trainables import session
from trainables.checkpoint import Checkpoint
from trainables.reporting import Metrics, checked_metrics, chosen, report_saved, saved_file
from trainables.validation import whole_number


def boosting_callback(checkpoint_name: str, model_class: Any) -> Any:
    """The base class of a library's callback, which says what the arguments mean there.

    Args:
        checkpoint_name: the model's name in a checkpoint where no `filename` is given.
        model_class: the library's class of models.
    """

    class BoostingCallback:
        CHECKPOINT_NAME: ClassVar[str] = checkpoint_name
        booster: ClassVar[Any] = model_class

        def __init__(
            self,
            metrics: Metrics = None,
            filename: str = checkpoint_name,
            frequency: int = 0,
            checkpoint_at_end: bool = True,
            results_postprocessing_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
        ) -> None:
            super().__init__()
            self._metrics = checked_metrics("RayTrainReportCallback", metrics)
            self._filename = filename
            self._frequency = whole_number("RayTrainReportCallback: frequency", frequency, least=0)
            self._checkpoint_at_end = checkpoint_at_end
            self._postprocess = results_postprocessing_fn

        @classmethod
        def get_model(cls, checkpoint: Checkpoint, filename: str = checkpoint_name) -> Any:
            """The library's `Booster` in a checkpoint that this callback reported under that `filename`.

            Raises CheckpointNotFoundError when there is none in it.
            """
            with checkpoint.as_directory() as directory:
                return cls.booster(model_file=str(saved_file(checkpoint, directory, filename)))

        def _picked(self, found: Mapping[str, Any], said_by: str) -> dict[str, Any]:
            """What is to be reported of an evaluation."""
            picked = chosen(self._metrics, found, said_by)
            return self._postprocess(picked) if self._postprocess else picked

        def _due(self, rounds: int) -> bool:
            return bool(self._frequency) and rounds % self._frequency == 0

        def _report(self, metrics: Mapping[str, Any], model: Any, *, save: bool) -> None:
            if save:
                report_saved(metrics, lambda directory: model.save_model(str(directory / self._filename)))
            else:
                session.report(dict(metrics))

    return BoostingCallback
