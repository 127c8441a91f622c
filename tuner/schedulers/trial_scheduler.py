"""`ray.tune.schedulers.trial_scheduler` as users know it: see `tuner.schedulers.base`."""

from tuner.schedulers.base import TrialScheduler as TrialScheduler
from tuner.schedulers.fifo import FIFOScheduler as FIFOScheduler
