"""From a run's trials and numbers to the values that the live view draws."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trainables.metrics import MISSING, lookup
from trainables.printable import one_line
from tuner.experiment.forks import evaluated_at
from tuner.experiment.outcome import failure, outcome, tries, word
from tuner.experiment.trial import Trial
from tuner.progress import formatting
from tuner.progress.counts import LastScores, ProgressFacts
from tuner.progress.estimate import Pace
from tuner.progress.front import LastPoints
from tuner.progress.run_view import HeadLine, RunView
from tuner.progress.table import Columns, metrics_of, parameters_of, rank
from tuner.progress.trial_rows import TrialRow

SHOWN_FAILED = 3
"""Rows of failed trials; all are counted above."""


class ViewBuilder:
    """Builds the live view of a run.

    Args:
        columns: what a user wants to see; its metric sorts.
        standing: the last scores.
    """

    def __init__(self, columns: Columns, standing: LastScores) -> None:
        self.columns, self.standing = columns, standing
        self.pace = Pace()
        self.total = 0
        """How many trials there will be, as was said at the start; 0: that is not known."""
        self.results = 0

    def total_of(self, facts: ProgressFacts) -> int:
        """How many trials there will be, by the newest word of it; 0: that is not known."""
        return self.total if facts.planned is None else facts.planned

    def build(
        self,
        trials: Sequence[Trial],
        facts: ProgressFacts,
        shown: Sequence[Trial],
        failed: Sequence[Trial],
        *,
        now: float,
        elapsed: float,
        notes: Mapping[str, str] | None = None,
    ) -> RunView:
        """A look.

        Args:
            trials: all there are.
            shown: those that get a row, without failed ones.
            failed: all that failed, the newest last.
            now, elapsed: seconds, as of the monotonic clock and since the start.
            notes: what is said of a trial by id, besides its state.
        """
        count = len(trials)
        total = self.total_of(facts)
        total = max(total, count) if total else 0
        ended = facts.done + facts.failed
        head = [HeadLine(self._counts(facts, count, total)), HeadLine(self._time(facts, total, ended, now, elapsed))]
        best = self._best(trials)
        head += [HeadLine(best, "bold")] if best else []
        head += [HeadLine(_failures(facts.failed, failed), "red")] if facts.failed and failed else []
        head.append(HeadLine(_kept(facts)))
        if facts.copy_error is not None:
            head.append(HeadLine(f"not copied just now: {one_line(facts.copy_error)}", "yellow"))
        metric = self.columns.metric
        found = [(trial, trial.last_result) for trial in shown]
        if metric is not None and self.columns.sort_by_metric:
            found.sort(key=lambda pair: rank(pair[1], self.columns))
        last = [(trial, trial.last_result) for trial in failed[-SHOWN_FAILED:]]
        pairs = [*found, *last]
        others = {key: heading for key, heading in metrics_of(pairs, self.columns).items() if key != metric}
        keys = parameters_of([trial for trial, _ in pairs], self.columns)
        make = _RowMaker(metric, others, keys, self.columns.max_width, notes or {})
        return RunView(
            share=ended / total if total else None,
            head=head,
            rows=[make(*pair) for pair in found],
            failed=[make(*pair) for pair in last],
            metric=metric,
            hidden=max(count - len(found) - len(last), 0),
        )

    def _counts(self, facts: ProgressFacts, count: int, total: int) -> str:
        waiting = facts.pending + max(total - count, 0)
        ended = facts.done + facts.failed
        of = f" of {formatting.grouped(total)} trials" if total else f" trial{'' if ended == 1 else 's'}"
        done = f"{formatting.grouped(ended)}{of} done"
        numbers = {"running": facts.running, "waiting": waiting, "paused": facts.paused, "failed": facts.failed}
        parts = [f"{formatting.grouped(number)} {word}" for word, number in numbers.items() if number]
        return ", ".join([done, *parts, formatting.counted(self.results, "result")])

    def _time(self, facts: ProgressFacts, total: int, ended: int, now: float, elapsed: float) -> str:
        parts = [formatting.duration(elapsed)]
        if not total:
            parts.append("the search has no end of its own")
        elif left := self.pace.left(total - ended, now):
            parts.append(str(left))
        elif total > ended:
            parts.append("time left is known when a trial has ended")
        said = [", ".join(parts), *(f"{key} {facts.used.get(key, 0):g}/{all_:g}" for key, all_ in facts.total.items())]
        if facts.memory is not None:
            said.append(f"memory {facts.memory[0] / 1e9:.1f}/{facts.memory[1] / 1e9:.1f} GB")
        return " | ".join(said)

    def _best(self, trials: Sequence[Trial]) -> str:
        if isinstance(self.standing, LastPoints) and (told := self.standing.told()):
            return told
        best = self.standing.best
        if best is None:
            return ""
        get: Callable[[int], Trial] = trials.__getitem__
        trial = get(best.index) if best.index < len(trials) else None
        config = {} if trial is None else evaluated_at(trial, best.iteration or trial.iteration)
        where = f", iteration {best.iteration}" if best.iteration else ""
        told = ", ".join(f"{key}={formatting.value(value)}" for key, value in config.items())
        said = f"best {self.standing.metric} {formatting.value(best.score)}: trial {best.index}{where}"
        return one_line(f"{said}: {told}" if told else said)


class _RowMaker:
    """Makes the row of a trial."""

    def __init__(
        self,
        metric: str | None,
        metrics: Mapping[str, str],
        parameters: Mapping[str, str],
        max_width: int,
        notes: Mapping[str, str],
    ) -> None:
        self._metric, self._metrics, self._parameters = metric, metrics, parameters
        self._max_width, self._notes = max_width, notes

    def __call__(self, trial: Trial, result: Mapping[str, Any]) -> TrialRow:
        spent = result.get("time_total_s")
        return TrialRow(
            number=str(trial.index),
            metric="" if self._metric is None else self._value(result, self._metric, 30),
            iteration=str(trial.iteration or ""),
            time=formatting.duration(spent) if isinstance(spent, (int, float)) else "",
            state=word(trial),
            standing=one_line(outcome(trial, self._notes.get(trial.trial_id, ""))),
            parameters={
                heading: one_line(formatting.value(_of(trial, key), self._max_width))
                for key, heading in self._parameters.items()
            },
            metrics={heading: self._value(result, key, self._max_width) for key, heading in self._metrics.items()},
        )

    @staticmethod
    def _value(result: Mapping[str, Any], key: str, room: int) -> str:
        found = lookup(result, key)
        return "" if found is MISSING else one_line(formatting.value(found, room))


def _of(trial: Trial, key: str) -> Any:
    found = lookup(trial.evaluated_params, key)
    if found is MISSING:
        found = lookup(trial.config, key)
    return None if found is MISSING else found


def _failures(count: int, failed: Sequence[Trial]) -> str:
    newest = failed[-1]
    return one_line(f"{count} failed, the last: trial {newest.index}{tries(newest)}: {failure(newest)}")


def _kept(facts: ProgressFacts) -> str:
    kept = f"{formatting.counted(facts.checkpoints, 'checkpoint')} kept, {formatting.size(facts.checkpoint_bytes)}"
    parts = [kept]
    if facts.to_copy:
        parts.append(f"{facts.to_copy} to copy, {formatting.size(facts.bytes_to_copy)}")
    if facts.unsaved is not None and facts.running:
        parts.append(str(facts.unsaved))
    return " | ".join(parts)
