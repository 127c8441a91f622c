"""Callbacks of `ray.train.callbacks`, for `trainables.Trainer.run(callbacks=[...])`, as Ray 1.13 has them."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainables.plain_metrics import plain_metrics
from tuner.error import SettingError


class TrainingCallback:
    """Is told of a run: one's own overrides what it wants to know."""

    def start_training(self, logdir: str, config: dict[str, Any], **info: Any) -> None:
        """The workers are about to start; `logdir` is the run's directory."""

    def handle_result(self, results: list[dict[str, Any]], **info: Any) -> None:
        """Every worker has reported; `results` is in the order of ranks."""

    def finish_training(self, error: bool = False, **info: Any) -> None:
        """The run has ended."""


class PrintCallback(TrainingCallback):
    """Prints what all workers report."""

    def handle_result(self, results: list[dict[str, Any]], **info: Any) -> None:
        sys.stdout.write(json.dumps([plain_metrics(result) for result in results], indent=4) + "\n")


class TrainingJsonLogger(TrainingCallback):
    """Writes what workers report into results.json: a list with a list for each `report()`.

    Args:
        logdir: where to; None: the run's directory.
        filename: the file's name.
        workers_to_log: a rank or several; None: all. The default is the first.
    """

    def __init__(
        self, logdir: str | None = None, filename: str | None = None, workers_to_log: int | Sequence[int] | None = 0
    ) -> None:
        self._logdir, self._filename = logdir, filename or "results.json"
        self._workers = [workers_to_log] if isinstance(workers_to_log, int) else workers_to_log
        self._written: list[list[dict[str, Any]]] = []

    @property
    def logdir(self) -> Path:
        """Where it writes to. Raises SettingError before the run."""
        if self._logdir is None:
            raise SettingError("JsonLoggerCallback(): its directory is the run's, and no run has begun")
        return Path(self._logdir)

    @property
    def log_path(self) -> Path:
        """The file."""
        return self.logdir / self._filename

    def start_training(self, logdir: str, config: dict[str, Any], **info: Any) -> None:
        self._logdir = self._logdir or logdir
        self.logdir.mkdir(parents=True, exist_ok=True)
        self._written = []
        self._write()

    def handle_result(self, results: list[dict[str, Any]], **info: Any) -> None:
        ranks = range(len(results)) if self._workers is None else self._workers
        self._written.append([plain_metrics(results[rank]) for rank in ranks])
        self._write()

    def _write(self) -> None:
        self.log_path.write_text(json.dumps(self._written), "utf-8")
