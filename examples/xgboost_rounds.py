"""XGBoost: every round is a result, every tenth a checkpoint; a trial that was killed goes on with the rounds left."""

from __future__ import annotations

import xgboost
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import trainables as train
import tuner as tune
from trainables.xgboost import RayTrainReportCallback

ROUNDS = 30


def fit(config: dict) -> None:
    digits = load_digits()
    x, x_held, y, y_held = train_test_split(digits.data, digits.target, random_state=0)
    parameters = {"objective": "multi:softmax", "num_class": 10, "eval_metric": "merror", "nthread": 1, **config}

    checkpoint = train.get_checkpoint()
    model = RayTrainReportCallback.get_model(checkpoint) if checkpoint else None
    left = ROUNDS - (model.num_boosted_rounds() if model else 0)
    xgboost.train(
        parameters,
        xgboost.DMatrix(x, y),
        left,
        evals=[(xgboost.DMatrix(x_held, y_held), "held_out")],
        xgb_model=model,
        callbacks=[RayTrainReportCallback({"error": "held_out-merror"}, frequency=10)],
        verbose_eval=False,
    )


if __name__ == "__main__":
    analysis = tune.run(
        fit,
        name="xgboost_rounds",
        config={"max_depth": tune.grid_search([2, 4]), "eta": 0.3},
        metric="error",
        mode="min",
        keep_checkpoints_num=1,
        checkpoint_score_attr="min-error",
        resume="AUTO",
    )
    print("best config:", analysis.best_config)
    print("rounds of its model:", RayTrainReportCallback.get_model(analysis.best_checkpoint).num_boosted_rounds())
