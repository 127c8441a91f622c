"""XGBoost: a callback that reports every round, with a checkpoint of the model as often as wanted."""

from __future__ import annotations

from typing import Any

from trainables.boosting import boosting_callback
from trainables.reporting import library, not_here

_xgboost = library("xgboost", extra="xgboost")
_Callback: Any = boosting_callback("model.ubj", _xgboost.Booster)
_Base: Any = _xgboost.callback.TrainingCallback

__all__ = ["RayTrainReportCallback"]

_ALONE = "call xgboost.train in a function, with RayTrainReportCallback: one process, with the CPUs it is given"
__getattr__ = not_here(__name__, dict.fromkeys(("XGBoostTrainer", "XGBoostConfig"), _ALONE))


class RayTrainReportCallback(_Callback, _Base):  # type: ignore[misc] # its package may be absent
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

    _last: dict[str, Any] | None = None
    _saved = False

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
        self._last = self._picked(found, "xgboost's evaluations")
        one = isinstance(model, self.booster)  # xgboost.cv has several, none of which is the model
        self._saved = one and self._due(model.num_boosted_rounds())
        self._report(self._last, model, save=self._saved)
        return False

    def after_training(self, model: Any) -> Any:
        """Save the end."""
        if self._checkpoint_at_end and self._last is not None and not self._saved:
            self._saved = isinstance(model, self.booster)
            if self._saved:
                self._report(self._last, model, save=True)
        return model
