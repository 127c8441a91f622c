"""`Progress`: the callback that shows the state of a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from trainables.metrics import MISSING, lookup
from trainables.printable import one_line
from trainables.quick_dataclass import dataclass
from trainables.user_frames import ALL_FRAMES
from tuner import knobs
from tuner.callback import Trials
from tuner.clock import Clock, SystemClock
from tuner.experiment.events import ErrorInfo
from tuner.experiment.outcome import headline, tries
from tuner.experiment.trial import Trial
from tuner.progress import formatting
from tuner.progress.announcer import Announcer
from tuner.progress.counts import ProgressFacts
from tuner.progress.failure_text import failure_text
from tuner.progress.front import LastPoints, standing_of
from tuner.progress.printed import PrintedHint
from tuner.progress.run_view import RunView
from tuner.progress.screen import Screen, Status, fitting_screen
from tuner.progress.steady_screen import SteadyScreen
from tuner.progress.table import Columns, build
from tuner.progress.view_builder import ViewBuilder
from tuner.progress.warn_once import WarnOnce

SHOWN_FAILURES = 5
"""Failed trials that are named at the end."""


@dataclass(slots=True)
class _Heard:
    """When a running trial was heard of last."""

    trial: Trial
    at: float
    told: bool = False


class Progress(Announcer):
    """Shows a run: one live view in a terminal or notebook, lines elsewhere.

    Args:
        verbose: 1: the state of the run, failures, a table at the end; 2: and a line for each trial that ends, where
            there is no live view; 3: and a line for each start, result and checkpoint.
        metric, mode: what "best" is; of several the front is told, and the first one sorts.
        screen: where to; None: what fits standard output.
        columns: of the tables.
        clock: for tests.
    """

    def __init__(
        self,
        *,
        verbose: int = 2,
        metric: str | Sequence[str] | None = None,
        mode: str | Sequence[str] | None = None,
        screen: Screen | None = None,
        columns: Columns | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__()
        self.verbose = verbose
        self.columns = columns or Columns.of(metric, mode)
        several = None if metric is None or isinstance(metric, str) else metric
        self.standing = standing_of(several or self.columns.metric, mode if several else self.columns.mode)
        self._screen = screen or SteadyScreen(fitting_screen())
        self._clock = clock or SystemClock()
        self._warnings = WarnOnce(self._screen.line, repeat=verbose >= 3)
        self._silent_after = knobs.silent_after_s()
        self._heard: dict[str, _Heard] = {}
        self._printed = PrintedHint(self._screen.line if verbose < 3 else None)
        self._failed: list[Trial] = []
        self._failed_before: dict[str, Trial] = {}
        """Those that had failed when the run was first looked at, too: earlier drivers' among them."""
        self._builder = ViewBuilder(self.columns, self.standing)
        self._seeded = False
        self._news = True
        self._start = self._clock.monotonic()
        self._due = self._start + min(self._screen.interval, self._silent_after)

    @property
    def folds(self) -> bool:
        return self._screen.folds

    def announce(self, line: str) -> None:
        self._warnings.install()
        self._screen.line(line)

    def show(self, line: str) -> None:
        self.announce(line)

    def _event(self, level: int, line: str) -> None:
        self._news = True
        if self.verbose >= level:
            self._screen.line(line)

    def setup(self, *_: Any, **info: Any) -> None:
        super().setup()
        self._builder.total = max(0, info.get("total_num_samples") or 0)
        self._start = self._clock.monotonic()
        self._due = self._start + min(self._screen.interval, self._silent_after)

    def on_trial_start(self, iteration: int, trials: Trials, trial: Trial, **info: Any) -> None:
        now = self._clock.monotonic()
        self._heard[trial.trial_id] = _Heard(trial, now)
        self._builder.pace.started(trial.trial_id, now)
        self._event(
            3, f"{one_line(trial.name)} started" + (f" at iteration {trial.iteration}" if trial.iteration else "")
        )

    def on_trial_result(
        self, iteration: int, trials: Trials, trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        self._news = True
        self._builder.results += 1
        heard = self._heard.get(trial.trial_id)
        if heard is not None:
            heard.at, heard.told = self._clock.monotonic(), False
        if not self._seeded:
            self._seed(trials)
        self.standing.add(trial, result)
        if result.get("iterations_since_restore") == 1:
            self._printed.look(trial)
        if self.verbose >= 3:
            self._screen.line(f"{one_line(trial.name)} {self._summary(result)}")

    def on_checkpoint(self, iteration: int, trials: Trials, trial: Trial, checkpoint: Any, **info: Any) -> None:
        self._event(3, f"{one_line(trial.name)} saved {Path(checkpoint.path).name}")

    def on_trial_complete(self, iteration: int, trials: Trials, trial: Trial, **info: Any) -> None:
        self._printed.look(trial)
        self._heard.pop(trial.trial_id, None)
        self._builder.pace.ended(trial.trial_id, self._clock.monotonic())
        self._event(
            3 if self._screen.lively else 2, f"{one_line(trial.name)} finished: {self._summary(trial.last_result)}"
        )

    def on_trial_recover(self, iteration: int, trials: Trials, trial: Trial, **info: Any) -> None:
        self._heard.pop(trial.trial_id, None)
        self._builder.pace.rested(trial.trial_id, self._clock.monotonic())
        self._event(2, f"{one_line(trial.name)} failed{tries(trial)} and will be tried again{_why(trial)}")

    def on_trial_error(self, iteration: int, trials: Trials, trial: Trial, **info: Any) -> None:
        self._printed.look(trial)
        self._heard.pop(trial.trial_id, None)
        self._builder.pace.ended(trial.trial_id, self._clock.monotonic())
        self._failed.append(trial)
        self._event(1, f"{one_line(trial.name)} failed{tries(trial)}{_why(trial)}")

    def on_rollback(self, trial: Trial, iteration: int) -> None:
        self.standing.again(trial)

    def on_step_end(self, iteration: int, trials: Trials, **info: Any) -> None:
        now = self._clock.monotonic()
        if now >= self._due:
            self._due = now + min(self._screen.interval, self._silent_after)
            self.look(trials)

    def next_refresh(self) -> float | None:
        return max(0.0, self._due - self._clock.monotonic())

    def on_experiment_end(self, trials: Trials, **info: Any) -> None:
        try:
            self._say_the_end(trials)
        finally:
            self._screen.close()
            super().on_experiment_end(trials)

    def look(self, trials: Trials) -> None:
        """Show how the run stands now."""
        silent = self._silent()
        for heard in self._heard.values():
            if heard.trial.status != Trial.RUNNING:
                self._builder.pace.rested(heard.trial.trial_id, self._clock.monotonic())
        for heard in silent:
            if not heard.told and not self._screen.lively:
                heard.told = True
                self._screen.line(f"{one_line(heard.trial.name)} {self._silence(heard)}")
        if self._screen.lively:
            notes = {heard.trial.trial_id: self._silence(heard) for heard in silent}
            self._screen.show(self._view(trials, self._shown(trials), notes))
        elif self._news:
            self._screen.show(Status(self.headlines(trials), build((), self.columns)))
        self._news = False

    def _view(self, trials: Trials, shown: Sequence[Trial], notes: dict[str, str] | None = None) -> RunView:
        self._seed(trials)
        now = self._clock.monotonic()
        every = {**self._failed_before, **{trial.trial_id: trial for trial in self._failed}}
        failed = [trial for trial in every.values() if trial.status == Trial.ERROR]
        facts = self.facts() if self.facts is not None else ProgressFacts.of(trials)
        return self._builder.build(trials, facts, shown, failed, now=now, elapsed=now - self._start, notes=notes)

    def headlines(self, trials: Trials) -> list[str]:
        """Counts, time, checkpoints and resources; the best trial by its last result, as the results have it."""
        facts = self.facts() if self.facts is not None else ProgressFacts.of(trials)
        self._seed(trials)
        counts = {name: getattr(facts, name) for name in ("running", "pending", "paused", "done", "failed")}
        total = self._builder.total_of(facts)
        of = f" of {formatting.grouped(total)}" if total > len(trials) else ""
        parts = [
            (f"{len(trials)}{of} trials: " if of else f"{formatting.counted(len(trials), 'trial')}: ")
            + (", ".join(f"{number} {name}" for name, number in counts.items() if number) or "none yet"),
            formatting.duration(self._clock.monotonic() - self._start),
            f"{formatting.counted(facts.checkpoints, 'checkpoint')} kept, {formatting.size(facts.checkpoint_bytes)}",
        ]
        if facts.to_copy:
            parts.append(f"{facts.to_copy} to copy, {formatting.size(facts.bytes_to_copy)}")
        if facts.total:
            parts.append(", ".join(f"{key} {facts.used.get(key, 0):g}/{all_:g}" for key, all_ in facts.total.items()))
        lines = [" | ".join(parts)]
        if facts.copy_error is not None:
            lines.append(f"not copied just now: {facts.copy_error}")
        best = self.standing.best
        if isinstance(self.standing, LastPoints) and (told := self.standing.told()):
            lines.append(told)
        elif best is not None:
            where = f", iteration {best.iteration}" if best.iteration else ""
            lines.append(f"best last {self.standing.metric}: {formatting.value(best.score)} ({best.trial}{where})")
        return lines

    def _shown(self, trials: Trials) -> list[Trial]:
        """Running trials, and the best of the others: as many as fit, found without looking at all trials."""
        rows = min(self.columns.max_rows, getattr(self._screen, "rows", lambda: self.columns.max_rows)())
        shown = [heard.trial for heard in self._heard.values() if heard.trial.status == Trial.RUNNING][:rows]
        failed = {trial.trial_id for trial in self._failed if trial.status == Trial.ERROR} | set(self._failed_before)
        return [*shown, *self._best(trials, rows - len(shown), {trial.trial_id for trial in shown} | failed)]

    def _best(self, trials: Trials, count: int, apart_from: set[str]) -> list[Trial]:
        if count <= 0:
            return []
        if self.standing.metric is None:
            return list(islice(_apart(reversed(trials), apart_from), count))
        wanted = [one for one in self.standing.top(count + len(apart_from)) if one not in apart_from][:count]
        get = getattr(trials, "get", None) or {trial.trial_id: trial for trial in trials}.get
        return [trial for trial_id in wanted if (trial := get(trial_id)) is not None]

    def _seed(self, trials: Trials) -> None:
        """Once per run: what earlier drivers found counts too."""
        if not self._seeded:
            self._seeded = True
            for trial in trials:
                self.standing.again(trial)
                self._builder.results += trial.iteration
                if trial.status == Trial.ERROR:
                    self._failed_before[trial.trial_id] = trial

    def _silent(self) -> list[_Heard]:
        since = self._clock.monotonic() - self._silent_after
        return [one for one in self._heard.values() if one.at <= since and one.trial.status == Trial.RUNNING]

    def _silence(self, heard: _Heard) -> str:
        trial = heard.trial
        quiet = formatting.duration(self._clock.monotonic() - heard.at)
        files = [Path(trial.path) / name for name in ("stdout", "stderr")]
        last = formatting.last_line(files)
        return f"silent for {quiet}" + (f"; its last line: {last}" if last else "; it printed nothing so far")

    def _summary(self, result: dict[str, Any]) -> str:
        if not result:
            return "no result"
        parts = [
            f"{metric}={'(not reported)' if (value := lookup(result, metric)) is MISSING else formatting.value(value)}"
            for metric in self.columns.goals
        ]
        parts.append(f"iteration {result.get('training_iteration', '?')}")
        spent = result.get("time_total_s")
        if isinstance(spent, (int, float)):
            parts.append(formatting.duration(spent))
        return ", ".join(parts)

    def _say_the_end(self, trials: Trials) -> None:
        wanted = self.columns.max_rows
        shown: Sequence[Trial] = trials
        if len(trials) > wanted:
            self._seed(trials)
            shown = self._best(trials, wanted, set())
            unscored = _apart(trials, {trial.trial_id for trial in shown})
            shown = [*shown, *islice(unscored, max(wanted - len(shown), 0))]
        if self._screen.lively:
            self._screen.final(self._view(trials, [trial for trial in shown if trial.status != Trial.ERROR]))
        else:
            grid = build(shown, self.columns, hidden=len(trials) - len(shown))
            self._screen.final(Status(self.headlines(trials), grid))
        more = self._warnings.more()
        if more:
            self._screen.line(f"{more} warnings like those above are not shown")
        self._say_failures([trial for trial in self._failed if trial.status == Trial.ERROR])

    def _say_failures(self, failed: list[Trial]) -> None:
        """Last of all, so that the line that is wrong is in sight when the run is over."""
        if not failed:
            return
        for trial in failed[1:SHOWN_FAILURES]:
            self._screen.line(f"failed: {one_line(trial.name)}{_why(trial)}")
        if len(failed) > SHOWN_FAILURES:
            self._screen.line(f"failed: {len(failed) - SHOWN_FAILURES} more")
        if self.failures_are_raised and not self.folds:
            return
        first = failed[0]
        error = first.error or ErrorInfo("failure", "nothing is known")
        self._screen.fold(
            f"failed: {one_line(first.name)} (all of it in {first.path}/error.txt)",
            failure_text(error, whole=self.verbose >= ALL_FRAMES),
            failure_text(error, whole=True),
        )


def _why(trial: Trial) -> str:
    error = trial.error
    if error is None:
        return ""
    return f": {formatting.value(headline(error), 120)}"


def _apart(trials: Iterable[Trial], ids: set[str]) -> Iterable[Trial]:
    return (trial for trial in trials if trial.trial_id not in ids)
