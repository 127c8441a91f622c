"""XGBoost: a callback that reports every round, with a checkpoint of the model as often as wanted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from trainables import session
from trainables.checkpoint import Checkpoint
from trainables.reporting import Metrics, checked_metrics, chosen, library, not_here, report_saved, saved_file
from trainables.settings import whole_number

_xgboost = library("xgboost", extra="xgboost")
_Base: Any = _xgboost.callback.TrainingCallback

__all__ = ["RayTrainReportCallback"]

_ALONE = "call xgboost.train in a function, with RayTrainReportCallback: one process, with the CPUs it is given"
__getattr__ = not_here(__name__, dict.fromkeys(("XGBoostTrainer", "XGBoostConfig"), _ALONE))


class RayTrainReportCallback(_Base):  # type: ignore[misc] # its package may be absent
    """Reports the evaluation of each round of `xgboost.train`, and checkpoints the model.

    A trial that was interrupted goes on from its model with the rounds that are left:

        >>> checkpoint = train.get_checkpoint()
        >>> model = RayTrainReportCallback.get_model(checkpoint) if checkpoint else None
        >>> left = 100 - (model.num_boosted_rounds() if model else 0)
        >>> xgboost.train(
        ...     params, data, left, evals=[(valid, "valid")], xgb_model=model,
        ...     callbacks=[RayTrainReportCallback({"loss": "valid-logloss"}, frequency=10)],
        ... )

    It ends with the same model as without interruption, unless rows or columns are drawn at random (`subsample`,
    `colsample_bytree`): `xgboost.train` draws anew for the rounds that are left.

    Args:
        metrics: Which to report, such as "valid-logloss"; a dict renames; None for all.
        filename: The model's name in the checkpoint; its ending says the format, ".ubj" or ".json".
        frequency: Rounds between two checkpoints, counted over all attempts; 0: none before the end.
        checkpoint_at_end: Save when training ends, unless the last round was saved. The last metrics are then reported
            once more with it: that it was the last round is known afterwards only.
        results_postprocessing_fn: Gets the metrics that are to be reported, returns those that are.

    In a group only rank 0 saves. Raises MetricError for a metric that no evaluation has.
    """

    CHECKPOINT_NAME: ClassVar[str] = "model.ubj"

    def __init__(
        self,
        metrics: Metrics = None,
        filename: str = CHECKPOINT_NAME,
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
        self._last: dict[str, Any] | None = None
        self._saved = False

    @classmethod
    def get_model(cls, checkpoint: Checkpoint, filename: str = CHECKPOINT_NAME) -> Any:
        """The `xgboost.Booster` in a checkpoint that this callback reported under that `filename`.

        Raises CheckpointNotFoundError when there is none in it.
        """
        with checkpoint.as_directory() as directory:
            return _xgboost.Booster(model_file=str(saved_file(checkpoint, directory, filename)))

    def before_training(self, model: Any) -> Any:
        """Begin anew: one callback may serve several trainings."""
        self._last, self._saved = None, False
        return model

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Report the round, with a checkpoint if its turn has come."""
        found = {
            f"{data}-{name}": values[-1] for data, metrics in evals_log.items() for name, values in metrics.items()
        }
        found = {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}
        picked = chosen(self._metrics, found, "xgboost's evaluations")
        self._last = self._postprocess(picked) if self._postprocess else picked
        one = isinstance(model, _xgboost.Booster)  # xgboost.cv has several, none of which is the model
        self._saved = one and bool(self._frequency) and model.num_boosted_rounds() % self._frequency == 0
        self._report(model)
        return False

    def after_training(self, model: Any) -> Any:
        """Save the end."""
        if self._checkpoint_at_end and self._last is not None and not self._saved:
            self._saved = isinstance(model, _xgboost.Booster)
            if self._saved:
                self._report(model)
        return model

    def _report(self, model: Any) -> None:
        assert self._last is not None
        if self._saved:
            report_saved(self._last, lambda directory: model.save_model(str(directory / self._filename)))
        else:
            session.report(self._last)
