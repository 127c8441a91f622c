# ruff: noqa: E401, E402, F401, I001
"""Imports what scripts for Ray 1 import, also from within."""

import tuner.compat, sys

tuner.compat.install()
from ray.tune.suggest import ConcurrencyLimiter
from ray.tune.suggest.optuna import OptunaSearch
from ray.tune.suggest.suggestion import Searcher
from ray.tune.trial import Trial
from ray.tune.sample import Domain
from ray.tune.trainable import Trainable, with_parameters
from ray.tune.tune_config import ResumeConfig, TuneConfig
from ray.tune.execution.placement_groups import PlacementGroupFactory
from ray.tune.result import MEAN_ACCURACY, TIMESTAMP, TRAINING_ITERATION
from ray.tune.logger import pretty_print
from ray.train.context import TrainContext, get_context
from ray import tune
import tuner.search

assert tune.PlacementGroupFactory is PlacementGroupFactory and tune.TuneContext is TrainContext
assert Searcher is tuner.search.Searcher and tune.Trainable is Trainable
print("ok")
