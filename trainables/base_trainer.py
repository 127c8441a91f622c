"""The names of `ray.train.base_trainer`."""

from trainables.errors import TrainingFailedError as TrainingFailedError
from trainables.trainer import BaseTrainer as BaseTrainer
