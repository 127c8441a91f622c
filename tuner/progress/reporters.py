"""Ray's reporters: `progress_reporter=CLIReporter(metric_columns=[...])`, or one's own subclass."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from trainables.validation import no_effect
from tuner.callback import Trials
from tuner.clock import Clock, SystemClock
from tuner.error import SettingError, require
from tuner.experiment.trial import Trial
from tuner.progress.announcer import Announcer
from tuner.progress.live import Progress
from tuner.progress.screen import NotebookScreen, PlainScreen, Screen, Status, in_notebook
from tuner.progress.table import Columns, Names, build


class ProgressReporter(abc.ABC):
    """Says when and how a run is shown. Subclass it, or a reporter below.

    Example:
        >>> class Rarely(tune.ProgressReporter):
        ...     def should_report(self, trials, done=False):
        ...         return done
        ...     def report(self, trials, done, *sys_info):
        ...         print(len(trials), "trials")
    """

    def setup(
        self,
        start_time: float | None = None,
        total_samples: int | None = None,
        metric: str | None = None,
        mode: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Before the first trial."""

    @abc.abstractmethod
    def should_report(self, trials: Sequence[Trial], done: bool = False) -> bool:
        """Whether to show the run now; asked after each turn of the loop, and with `done` at its end."""

    @abc.abstractmethod
    def report(self, trials: Sequence[Trial], done: bool, *sys_info: Any) -> None:
        """Show it. `sys_info` are lines about the whole run."""


class TableReporter(ProgressReporter):
    """Base of the reporters that show a table.

    Args:
        metric_columns, parameter_columns: keys, or {key: heading}; None: inferred.
        max_progress_rows: rows at most.
        max_column_length: characters of a cell at most.
        max_report_frequency: seconds between two reports.
        print_intermediate_tables: False: the table only at the end; None: as True.
        infer_limit: how many metrics are found by themselves.
        metric, mode: what is best; None: as the run says.
        sort_by_metric: best trials first.
        total_samples, max_error_rows: accepted, without effect.
    """

    def __init__(
        self,
        *,
        metric_columns: Names | None = None,
        parameter_columns: Names | None = None,
        total_samples: int | None = None,
        max_progress_rows: int = 20,
        max_error_rows: int = 20,
        max_column_length: int = 20,
        max_report_frequency: float = 5,
        print_intermediate_tables: bool | None = None,
        infer_limit: int = 3,
        metric: str | None = None,
        mode: str | None = None,
        sort_by_metric: bool = False,
    ) -> None:
        self._columns = Columns(
            metrics=metric_columns,
            parameters=parameter_columns,
            max_rows=max_progress_rows,
            max_width=max_column_length,
            infer_limit=infer_limit,
            metric=metric,
            mode=mode,
            sort_by_metric=sort_by_metric,
        )
        if total_samples is not None:
            no_effect(f"total_samples={total_samples!r}", "the run knows how many trials there will be")
        if max_error_rows != 20:
            no_effect(f"max_error_rows={max_error_rows!r}", "a trial that failed is a line, and no row of a table")
        self._frequency = max_report_frequency
        self._tables = print_intermediate_tables is not False
        self._clock: Clock = SystemClock()
        self._reported: float | None = None

    def setup(
        self,
        start_time: float | None = None,
        total_samples: int | None = None,
        metric: str | None = None,
        mode: str | None = None,
        **kwargs: Any,
    ) -> None:
        self.set_search_properties(metric, mode)

    def set_search_properties(self, metric: str | None, mode: str | None) -> bool:
        """Take over the run's metric, where none was given."""
        if self._columns.metric is None and metric is not None:
            self._columns = replace(self._columns, metric=metric, mode=mode)
        elif self._columns.mode is None and mode is not None:
            self._columns = replace(self._columns, mode=mode)
        return True

    def add_metric_column(self, metric: str, representation: str | None = None) -> None:
        """Show one more metric."""
        self._columns = self._columns.add("metrics", metric, representation)

    def add_parameter_column(self, parameter: str, representation: str | None = None) -> None:
        """Show one more key of the config."""
        self._columns = self._columns.add("parameters", parameter, representation)

    def should_report(self, trials: Sequence[Trial], done: bool = False) -> bool:
        now = self._clock.monotonic()
        due = done or self._reported is None or now - self._reported >= self._frequency
        if due:
            self._reported = now
        return due

    def report(self, trials: Sequence[Trial], done: bool, *sys_info: Any) -> None:
        shown = trials if self._tables or done else ()
        status = Status([str(line) for line in sys_info], build(shown, self._columns))
        self._screen().final(status)

    @abc.abstractmethod
    def _screen(self) -> Screen:
        """Where to."""


class CLIReporter(TableReporter):
    """Prints the table of trials every few seconds, as plain text.

    Example:
        >>> tune.run(train, progress_reporter=tune.CLIReporter(metric_columns=["loss"], max_report_frequency=30))
    """

    def _screen(self) -> Screen:
        return PlainScreen()


class JupyterNotebookReporter(TableReporter):
    """Shows the table of trials in a notebook's output cell; outside of a notebook as `CLIReporter` does.

    Args:
        overwrite: replace the table before (None, True), or show one below the other (False).
        more: as `CLIReporter`.

    Example:
        >>> tune.run(train, progress_reporter=tune.JupyterNotebookReporter(overwrite=False))
    """

    def __init__(self, overwrite: bool | None = None, **more: Any) -> None:
        super().__init__(**more)
        self._overwrite = overwrite is not False
        self._cell: NotebookScreen | None = None

    def _screen(self) -> Screen:
        if not in_notebook():
            return PlainScreen()
        if self._cell is None or not self._overwrite:
            self._cell = NotebookScreen()
        return self._cell


class ReporterProgress(Progress):
    """Shows a run through a user's reporter."""

    def __init__(
        self,
        reporter: ProgressReporter,
        *,
        verbose: int,
        metric: str | Sequence[str] | None,
        mode: str | Sequence[str] | None,
    ) -> None:
        super().__init__(verbose=min(verbose, 1), metric=metric, mode=mode, screen=PlainScreen())
        self.reporter = reporter

    def setup(self, *_: Any, **info: Any) -> None:
        super().setup(**info)
        goal = {"metric": self.columns.metric, "mode": self.columns.mode}
        self.reporter.setup(start_time=self._clock.time(), total_samples=info.get("total_num_samples"), **goal)

    def on_step_end(self, iteration: int, trials: Trials, **info: Any) -> None:
        if self.reporter.should_report(trials, done=False):
            self.reporter.report(trials, False, *self.headlines(trials))

    def next_refresh(self) -> float | None:
        return 1.0  # a reporter decides by itself when it is time

    def _say_the_end(self, trials: Trials) -> None:
        if self.reporter.should_report(trials, done=True):
            self.reporter.report(trials, True, *self.headlines(trials))
        self._say_failures([trial for trial in self._failed if trial.status == Trial.ERROR])


def default_reporter(
    given: Any = None, *, verbose: int | None = None, metric: str | Sequence[str] | None = None, mode: Any = None
) -> Announcer:
    """The callback that shows a run.

    Args:
        given: a `ProgressReporter`, a `Progress`, or None: what fits where the output goes.
        verbose: 0 (nothing at all), 1, 2, 3; None: 2.
        metric, mode: what is best; of several, the front.

    Raises SettingError for anything else.
    """
    fits = verbose is None or (isinstance(verbose, int) and 0 <= verbose <= 3)
    require(fits, "verbose", verbose, "accepted are 0, 1, 2, 3 and None (2)")
    if given is not None and not isinstance(given, (ProgressReporter, Announcer)):
        raise SettingError(
            f"progress_reporter={given!r:.80} is not accepted; accepted are objects of CLIReporter, "
            "JupyterNotebookReporter or another subclass of ProgressReporter"
        )
    if isinstance(given, Announcer):
        return given
    level = 2 if verbose is None else int(verbose)
    if level == 0:
        return Announcer()
    if given is not None:
        return ReporterProgress(given, verbose=level, metric=metric, mode=mode)
    return Progress(verbose=level, metric=metric, mode=mode)
