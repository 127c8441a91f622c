"""A session around scikit-learn's cross_val_score: fold by fold, so that a killed search goes on with the next fold."""

from __future__ import annotations

from sklearn.datasets import load_digits
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.svm import SVC

import tuner as tune

x, y = load_digits(return_X_y=True)
folds = list(StratifiedKFold(n_splits=5, shuffle=True, random_state=0).split(x, y))


if __name__ == "__main__":
    with tune.open_session(
        "session_cross_val_score",
        config={"C": tune.loguniform(0.1, 100), "gamma": tune.loguniform(1e-5, 1e-2)},
        metric="mean_accuracy",
        mode="max",
        num_samples=6,
        seed=0,
    ) as session:
        while (trial := session.ask(wait=True)) is not None:
            scores = [] if trial.checkpoint is None else trial.checkpoint.to_dict()["scores"]
            for fold in folds[len(scores) :]:
                scores += list(cross_val_score(SVC(**trial.config), x, y, cv=[fold]))
                mean = sum(scores) / len(scores)
                trial.report({"mean_accuracy": mean}, tune.Checkpoint.from_dict({"scores": scores}))
            trial.finish()
    analysis = tune.ExperimentAnalysis(session.path, metric="mean_accuracy", mode="max")
    print("best config:", analysis.best_config)
    print("its accuracy over the folds:", analysis.best_result["mean_accuracy"])
