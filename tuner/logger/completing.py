"""Repairs trials' result files from the journal at a resume."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from trainables import tagged
from trainables.result_history import missing_row
from tuner.callback import Callback
from tuner.experiment.standing import StandingResult
from tuner.experiment.trial import Trial
from tuner.logger.json import JsonLoggerCallback
from tuner.logger.rows import RowLogger
from tuner.logger.tensorboard import TBXLoggerCallback


def complete(loggers: Sequence[Callback], trial: Trial, standing: StandingResult) -> list[int]:
    """Have the loggers among these callbacks write the results that their files lack.

    Returns the iterations whose results are neither in `standing` nor in a file: their rows say that they are missing.
    """
    if trial.status == Trial.TERMINATED and trial.iteration in standing.results:
        standing.results[trial.iteration] = msgspec.Raw(tagged.dumps(trial.last_result))  # that it is the last one
    missing: list[int] = []
    keepers = [each for each in loggers if isinstance(each, (RowLogger, TBXLoggerCallback))]
    for logger in sorted(keepers, key=lambda each: not isinstance(each, JsonLoggerCallback)):  # it has all of them
        missing += logger.complete(trial, standing)
        for iteration in missing:
            standing.results.setdefault(iteration, msgspec.Raw(tagged.dumps(missing_row(iteration))))
    return missing
