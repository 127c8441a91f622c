"""`error.txt`: why a trial failed."""

from __future__ import annotations

import time
from typing import Any

from trainables.store import fs
from tuner.callback import Callback, Trials
from tuner.experiment.paths import TrialPaths
from tuner.experiment.trial import Trial


class ErrorFileCallback(Callback):
    """Appends the traceback of every failure of a trial to its `error.txt`.

    Of a trial that ends well after all it is called `error_recovered.txt` then.
    """

    changes_results = False

    def on_trial_error(self, iteration: int, trials: Trials, trial: Trial, **info: Any) -> None:
        self._write(trial, trial.num_failures + 1)

    def on_trial_recover(self, iteration: int, trials: Trials, trial: Trial, **info: Any) -> None:
        self._write(trial, trial.num_failures)

    def on_trial_complete(self, iteration: int, trials: Trials, trial: Trial, **info: Any) -> None:
        paths = TrialPaths(trial.directory)
        try:
            if fs.exists(paths.error_txt):
                fs.rename(paths.error_txt, paths.error_recovered_txt)
        except OSError:
            pass  # results that came after it say that it does not hold any more

    def _write(self, trial: Trial, number: int) -> None:
        error = trial.error
        if error is None:
            return
        text = error.traceback.rstrip() or f"{error.type}: {error.message}"
        when = time.strftime("%Y-%m-%d %H:%M:%S")
        try:
            fs.make_dirs(trial.directory)
            fd = fs.open_append(TrialPaths(trial.directory).error_txt)
            try:
                fs.write(fd, f"Failure # {number} (occurred at {when})\n{text}\n\n".encode("utf-8", "backslashreplace"))
            finally:
                fs.close(fd)
        except OSError:
            pass  # the journal has the error, and whoever shows the trial shows it
