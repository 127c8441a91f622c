"""scikit-learn: an estimator with `partial_fit` and its batches; a killed trial goes on with the next batch."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split

import tuner as tune
from trainables.sklearn import PartialFitTrainable, SklearnCheckpoint

digits = load_digits()
x, x_held, y, y_held = train_test_split(digits.data / 16, digits.target, random_state=0)


def batches(config: dict, epoch: int) -> list:
    order = np.random.default_rng(epoch).permutation(len(x))
    return [(x[part], y[part]) for part in np.array_split(order, 20)]


Digits = PartialFitTrainable.of(
    SGDClassifier(random_state=0), batches, "accuracy", validation=(x_held, y_held), classes=range(10)
)


if __name__ == "__main__":
    analysis = tune.run(
        Digits,
        name="partial_fit",
        config={"alpha": tune.grid_search([1e-5, 1e-3])},
        metric="score",
        mode="max",
        stop={"epoch": 5},
        checkpoint_freq=1,
        keep_checkpoints_num=1,
        checkpoint_score_attr="score",
        resume="AUTO",
    )
    print("best config:", analysis.best_config)
    estimator = SklearnCheckpoint.of(analysis.best_checkpoint).get_estimator()
    print("accuracy of its estimator on held-out data:", estimator.score(x_held, y_held))
