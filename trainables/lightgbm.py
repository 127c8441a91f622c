"""LightGBM: a callback that reports every round, with a checkpoint of the model as often as wanted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from trainables import session
from trainables.checkpoint import Checkpoint
from trainables.reporting import Metrics, checked_metrics, chosen, library, not_here, report_saved, saved_file
from trainables.settings import whole_number

_lightgbm = library("lightgbm", extra="lightgbm")

__all__ = ["RayTrainReportCallback"]

_ALONE = "call lightgbm.train in a function, with RayTrainReportCallback: one process, with the CPUs it is given"
__getattr__ = not_here(__name__, dict.fromkeys(("LightGBMTrainer", "LightGBMConfig", "get_network_params"), _ALONE))


class RayTrainReportCallback:
    """Reports the evaluation of each round of `lightgbm.train`, and checkpoints the model.

    A trial that was interrupted goes on from its model with the rounds that are left:

        >>> checkpoint = train.get_checkpoint()
        >>> model = RayTrainReportCallback.get_model(checkpoint) if checkpoint else None
        >>> left = 100 - (model.current_iteration() if model else 0)
        >>> if left:  # 0: it was killed after its last round
        ...     lightgbm.train(
        ...         params, data, left, valid_sets=[valid], valid_names=["valid"], init_model=model,
        ...         callbacks=[RayTrainReportCallback({"loss": "valid-binary_logloss"}, frequency=10)],
        ...     )

    It ends with the same model as without interruption, unless rows or columns are drawn at random
    (`bagging_fraction`, `feature_fraction`): LightGBM draws anew for the rounds that are left.

    Args:
        metrics: Which to report, such as "valid-auc"; a dict renames; None for all.
        filename: The model's name in the checkpoint.
        frequency: Rounds between two checkpoints, counted over all attempts; 0: none before the end.
        checkpoint_at_end: Save with the last round that was asked for. A training that `early_stopping` ends has none:
            give a frequency there.
        results_postprocessing_fn: Gets the metrics that are to be reported, returns those that are.

    In a group only rank 0 saves. Raises MetricError for a metric that no evaluation has.
    """

    CHECKPOINT_NAME: ClassVar[str] = "model.txt"

    def __init__(
        self,
        metrics: Metrics = None,
        filename: str = CHECKPOINT_NAME,
        frequency: int = 0,
        checkpoint_at_end: bool = True,
        results_postprocessing_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        self._metrics = checked_metrics("RayTrainReportCallback", metrics)
        self._filename = filename
        self._frequency = whole_number("RayTrainReportCallback: frequency", frequency, least=0)
        self._checkpoint_at_end = checkpoint_at_end
        self._postprocess = results_postprocessing_fn

    @classmethod
    def get_model(cls, checkpoint: Checkpoint, filename: str = CHECKPOINT_NAME) -> Any:
        """The `lightgbm.Booster` in a checkpoint that this callback reported under that `filename`.

        Raises CheckpointNotFoundError when there is none in it.
        """
        with checkpoint.as_directory() as directory:
            return _lightgbm.Booster(model_file=str(saved_file(checkpoint, directory, filename)))

    def __call__(self, env: Any) -> None:
        """Report the round, with a checkpoint if its turn has come."""
        metrics = chosen(self._metrics, _evaluated(env), "lightgbm's evaluations")
        if self._postprocess:
            metrics = self._postprocess(metrics)
        done = env.iteration + 1
        due = bool(self._frequency) and done % self._frequency == 0
        if (due or (self._checkpoint_at_end and done == env.end_iteration)) and _is_model(env.model):
            report_saved(metrics, lambda directory: env.model.save_model(directory / self._filename))
        else:
            session.report(metrics)


def _is_model(model: Any) -> bool:
    """`lightgbm.cv` has several, none of which is the model."""
    return isinstance(model, _lightgbm.Booster)


def _evaluated(env: Any) -> dict[str, Any]:
    """ "<data set>-<metric>" -> value; of `lightgbm.cv` its mean and deviation."""
    found: dict[str, Any] = {}
    for data, name, value, _, *deviation in env.evaluation_result_list or ():
        if deviation and deviation[0] is not None:
            found |= {f"{data}-{name}-mean": value, f"{data}-{name}-stdv": deviation[0]}
        else:
            found[f"{data}-{name}"] = value
    return found
