# ruff: noqa: E401, E402, F401, I001
"""Installs the names of Ray from within, twice."""

import tuner.compat, sys

tuner.compat.install()
tuner.compat.install()
from ray import tune
import tuner, trainables, ray.train

assert tune is tuner and ray.train is trainables and tuner.__spec__.name == "tuner"
from ray.air import session
from ray.tune.schedulers import ASHAScheduler
import tuner.schedulers

assert ASHAScheduler is tuner.schedulers.ASHAScheduler
print("ok")
