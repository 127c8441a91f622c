"""`ray.tune.schedulers.async_hyperband` as users know it: see `tuner.schedulers.asha`."""

from tuner.schedulers.asha import ASHAScheduler as ASHAScheduler
from tuner.schedulers.asha import AsyncHyperBandScheduler as AsyncHyperBandScheduler
