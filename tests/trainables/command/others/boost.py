"""XGBoost with a model file per round."""

import argparse
import os
import time

import numpy as np
import xgboost as xgb

parser = argparse.ArgumentParser()
parser.add_argument("--eta", type=float)
parser.add_argument("--model-dir")
parser.add_argument("--model-in")
args = parser.parse_args()
x = np.random.default_rng(0).normal(size=(200, 4))
data = xgb.DMatrix(x, x[:, 0] * x[:, 1])


class Save(xgb.callback.TrainingCallback):
    def after_iteration(self, model, epoch, evals_log):
        time.sleep(0.3)
        half = os.path.join(args.model_dir, "half.json")
        model.save_model(half)
        os.rename(half, os.path.join(args.model_dir, f"round-{model.num_boosted_rounds()}.json"))


rounds = 0
if args.model_in:
    rounds = xgb.Booster(model_file=args.model_in).num_boosted_rounds()
xgb.train(
    {"eta": args.eta, "max_depth": 2},
    data,
    num_boost_round=6 - rounds,
    evals=[(data, "train")],
    xgb_model=args.model_in,
    callbacks=[Save()],
)
