"""Ray's older loggers: an object per trial, made and told by one callback."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from trainables import tagged
from trainables.errors import MissingExtraError
from trainables.result_history import RESULT_FILE, read_history
from tuner.callback import Callback, Trials
from tuner.error import SettingError
from tuner.experiment.trial import Trial
from tuner.logger.base import LoggerCallback
from tuner.logger.csv import CSVLoggerCallback
from tuner.logger.json import JsonLoggerCallback, writable
from tuner.logger.tensorboard import TBXLoggerCallback


class Logger:
    """Base of loggers that are made once per trial, or by a `Trainable(logger_creator=...)`. Override `on_result`.

    A subclass that has `on_rollback(iteration)` too is told when the results after an iteration became void, and then
    of those that take their place. One that has not is told of each iteration once.

    Args:
        config: the trial's config.
        logdir: the trial's directory.
        trial: the trial; None outside of a run.

    Example:
        >>> class Lines(Logger):
        ...     def _init(self):
        ...         self.file = open(f"{self.logdir}/losses.txt", "a")
        ...     def on_result(self, result):
        ...         self.file.write(f"{result['loss']}\\n")
        ...     def close(self):
        ...         self.file.close()
        >>> tune.run(train, callbacks=[LegacyLoggerCallback([Lines])])
    """

    writers: ClassVar[tuple[type[LoggerCallback], ...]] = ()
    """The callbacks that do in a run what this does outside of one."""

    def __init__(self, config: dict[str, Any], logdir: str, trial: Trial | None = None) -> None:
        self.config = config
        self.logdir = logdir
        self.trial = trial
        self._init()

    def _init(self) -> None:
        """Get ready: called once."""

    def on_result(self, result: dict[str, Any]) -> None:
        """The trial reported; `result` has its config under "config"."""
        raise NotImplementedError(f"{type(self).__name__} needs a method on_result(result)")

    def on_rollback(self, iteration: int) -> None:
        """Results after `iteration` are void. Called for a logger that is new on a trial that has results, too."""

    def update_config(self, config: dict[str, Any]) -> None:
        """The trial goes on with another config."""

    def flush(self) -> None:
        """A checkpoint was saved, or the trial goes on from one: write what is held back."""

    def close(self) -> None:
        """The trial, or the run, is over."""

    @classmethod
    def takes_back(cls) -> bool:
        """Whether it can forget results."""
        return cls.on_rollback is not Logger.on_rollback


class NoopLogger(Logger):
    """Logs nothing."""

    def on_result(self, result: dict[str, Any]) -> None:
        """Nothing is done."""


class _FileLogger(Logger):
    """Writes with the callbacks of a run. In a run it writes nothing itself: they do, and no row comes twice."""

    def _init(self) -> None:
        self._open: list[LoggerCallback] = []
        if self.trial is not None:
            return
        self._alone = _trial_alone(self.config, Path(self.logdir))
        earlier = read_history(Path(self.logdir) / RESULT_FILE)
        self._iteration: int = earlier[-1].get("training_iteration", 0) if earlier else 0
        for kind in self.writers:
            self._open.append(kind())
            self._open[-1].log_trial_start(self._alone)

    def on_result(self, result: dict[str, Any]) -> None:
        """Write a result; without a `training_iteration` it counts as the next."""
        if not self._open:
            return
        row = {key: value for key, value in result.items() if key != "config"}
        self._iteration = row.setdefault("training_iteration", self._iteration + 1)
        for each in self._open:
            each.log_trial_result(self._iteration, self._alone, dict(row))

    def update_config(self, config: dict[str, Any]) -> None:
        """Write the new config; in a run that is done already."""
        self.config = config
        if self._open:
            self._alone.raw_config = _raw(config)
            for each in self._open:
                each.log_trial_start(self._alone)

    def close(self) -> None:
        """Close the files."""
        for each in self._open:
            each.log_trial_end(self._alone)
            each.on_experiment_end([self._alone])


class JsonLogger(_FileLogger):
    """Writes `result.json` and `params.json`; in a run `JsonLoggerCallback` does."""

    writers = (JsonLoggerCallback,)


class CSVLogger(_FileLogger):
    """Writes `progress.csv`; in a run `CSVLoggerCallback` does."""

    writers = (CSVLoggerCallback,)


class TBXLogger(_FileLogger):
    """Writes TensorBoard's files; in a run `TBXLoggerCallback` does."""

    writers = (TBXLoggerCallback,)

    @functools.cached_property
    def _file_writer(self) -> Any:
        """tensorboardX's writer, for subclasses that log more than numbers."""
        try:
            from tensorboardX import SummaryWriter
        except ImportError as error:
            raise MissingExtraError(
                f"{type(self).__name__} uses the writer of tensorboardX: pip install tensorboardX"
            ) from error
        return SummaryWriter(self.logdir)

    def flush(self) -> None:
        if "_file_writer" in self.__dict__:
            self._file_writer.flush()

    def close(self) -> None:
        super().close()
        if "_file_writer" in self.__dict__:
            self._file_writer.close()


DEFAULT_LOGGERS = (JsonLogger, CSVLogger, TBXLogger)


class UnifiedLogger(Logger):
    """Several loggers as one.

    Args:
        loggers: their classes; None: those of JSON, CSV and TensorBoard.
    """

    writers = (JsonLoggerCallback, CSVLoggerCallback, TBXLoggerCallback)

    def __init__(
        self,
        config: dict[str, Any],
        logdir: str,
        trial: Trial | None = None,
        loggers: Sequence[type[Logger]] | None = None,
    ) -> None:
        self._kinds = DEFAULT_LOGGERS if loggers is None else tuple(loggers)
        super().__init__(config, logdir, trial)

    def _init(self) -> None:
        self._loggers = [kind(self.config, self.logdir, self.trial) for kind in self._kinds]

    def on_result(self, result: dict[str, Any]) -> None:
        """Tell all of them."""
        for logger in self._loggers:
            logger.on_result(result)

    def update_config(self, config: dict[str, Any]) -> None:
        for logger in self._loggers:
            logger.update_config(config)

    def flush(self) -> None:
        for logger in self._loggers:
            logger.flush()

    def close(self) -> None:
        for logger in self._loggers:
            logger.close()


class LegacyLoggerCallback(LoggerCallback):
    """Makes the loggers of each trial, and tells them of its results.

    A trial that is started again keeps its loggers; a resumed run makes new ones, which find the files of the earlier.
    No iteration is told twice, unless a logger has `on_rollback`. A kill of the driver may leave one result told that
    then is told again: only a logger with `on_rollback` hears that it was void.

    Args:
        logger_classes: subclasses of `Logger`.
    """

    changes_results = False

    def __init__(self, logger_classes: Iterable[type[Logger]]) -> None:
        self.logger_classes = list(logger_classes)
        for kind in self.logger_classes:
            if not (isinstance(kind, type) and issubclass(kind, Logger)):
                raise SettingError(f"logger {kind!r} is not accepted; accepted are subclasses of tuner.logger.Logger")
        self._of: dict[Trial, list[Logger]] = {}

    @property
    def writers(self) -> set[type[LoggerCallback]]:
        """The callbacks that write the files which these loggers are for."""
        return {writer for kind in self.logger_classes for writer in kind.writers}

    def log_trial_start(self, trial: Trial) -> None:
        self._made(trial)

    def log_trial_restore(self, trial: Trial) -> None:
        self._flush(trial)

    def log_trial_save(self, trial: Trial) -> None:
        self._flush(trial)

    def on_trial_clone(self, iteration: int, trials: Trials, trial: Trial, **info: Any) -> None:
        for logger in self._of.get(trial, ()):
            logger.update_config(trial.config)

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        again = result.get("training_iteration", trial.told + 1) <= trial.told
        complete = {**result, "config": trial.config}
        for logger in self._made(trial):
            if not again or logger.takes_back():
                logger.on_result(dict(complete))

    def log_trial_rollback(self, trial: Trial, iteration: int) -> None:
        for logger in self._made(trial):
            logger.on_rollback(iteration)

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        for logger in self._of.pop(trial, ()):
            logger.flush()
            logger.close()

    def on_experiment_end(self, trials: Trials, **info: Any) -> None:
        for trial in list(self._of):
            self.log_trial_end(trial)

    def _made(self, trial: Trial) -> list[Logger]:
        if trial not in self._of:
            trial.directory.mkdir(parents=True, exist_ok=True)
            made = (kind(trial.config, trial.path, trial) for kind in self.logger_classes)
            self._of[trial] = loggers = list(made)
            for logger in loggers:
                if trial.iteration:
                    logger.on_rollback(trial.iteration)
        return self._of[trial]

    def _flush(self, trial: Trial) -> None:
        for logger in self._of.get(trial, ()):
            logger.flush()


def as_callbacks(loggers: Iterable[Any]) -> Iterator[Callback]:
    """The argument `loggers=` of older versions as callbacks: classes of loggers, of callbacks, or callbacks."""
    kinds = []
    for each in loggers:
        if isinstance(each, Callback):
            yield each
        elif isinstance(each, type) and issubclass(each, Callback):
            yield each()
        else:
            kinds.append(each)
    if kinds:
        yield LegacyLoggerCallback(kinds)


def _raw(config: Mapping[str, Any]) -> msgspec.Raw:
    return msgspec.Raw(tagged.dumps({key: writable(value) for key, value in config.items()}))


def _trial_alone(config: Mapping[str, Any], directory: Path) -> Trial:
    """What a callback wants to know of a trial, where there is no run."""
    directory.mkdir(parents=True, exist_ok=True)
    trial = Trial("default", 0, "default", "default", directory.name, _raw(config))
    trial.__dict__["root"] = directory.absolute()
    return trial
