"""LightGBM: a callback that reports every round, with a checkpoint of the model as often as wanted."""

from __future__ import annotations

from typing import Any

from trainables.boosting import boosting_callback
from trainables.reporting import library, not_here

_lightgbm = library("lightgbm", extra="lightgbm")

__all__ = ["RayTrainReportCallback"]

_ALONE = "call lightgbm.train in a function, with RayTrainReportCallback: one process, with the CPUs it is given"
__getattr__ = not_here(__name__, dict.fromkeys(("LightGBMTrainer", "LightGBMConfig", "get_network_params"), _ALONE))


_Callback: Any = boosting_callback("model.txt", _lightgbm.Booster)


class RayTrainReportCallback(_Callback):  # type: ignore[misc] # its package may be absent
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

    def __call__(self, env: Any) -> None:
        """Report the round, with a checkpoint if its turn has come."""
        metrics = self._picked(_evaluated(env), "lightgbm's evaluations")
        done = env.iteration + 1
        due = self._due(done) or (self._checkpoint_at_end and done == env.end_iteration)
        # `lightgbm.cv` has several models, none of which is the model.
        self._report(metrics, env.model, save=due and isinstance(env.model, self.booster))


def _evaluated(env: Any) -> dict[str, Any]:
    """ "<data set>-<metric>" -> value; of `lightgbm.cv` its mean and deviation."""
    found: dict[str, Any] = {}
    for data, name, value, _, *deviation in env.evaluation_result_list or ():
        if deviation and deviation[0] is not None:
            found |= {f"{data}-{name}-mean": value, f"{data}-{name}-stdv": deviation[0]}
        else:
            found[f"{data}-{name}"] = value
    return found
