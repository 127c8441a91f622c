# ruff: noqa: E401, E402, I001
"""Asks the stand-in for Ray itself for a cluster: it becomes Ray, with our Tune in it."""

import tuner.compat

tuner.compat.install()
import ray
from ray import tune

before = ray
try:
    ray.init("127.0.0.1:9")
except ValueError as error:
    assert "no Ray cluster" in str(error), error
import ray.util, ray.tune.schedulers, tuner

assert ray is before and ray.tune is tune is tuner and ray.tune.schedulers is tuner.schedulers
assert ray.__file__.endswith("__init__.py") and not ray.is_initialized() and callable(ray.remote)
try:
    import ray.tune.nothing
except ModuleNotFoundError as error:
    assert "would be tuner.nothing" in str(error)
print("ok")
