"""Reads an experiment as tables, then what is said of it: EXPERIMENT EXPRESSION."""

import logging
import sys

import tuner as tune
from trainables import Result

logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(message)s")
found = tune.ExperimentAnalysis(sys.argv[1], default_metric="loss", default_mode="min")
tables = found.results_df, found.dataframe(), found.best_result, found.results
searched = [trial.evaluated_params for trial in found.trials]
config = Result.from_path(found.trials[0].path).config
print("read", flush=True)
print(len(eval(sys.argv[2])["d"]), flush=True)
