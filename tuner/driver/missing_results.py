"""What ends a run whose trials end well and lack what it needs: a report at all, or a metric."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tuner.driver.parts import LoopParts
from tuner.error import MetricMissingError
from tuner.executors.pool import fitting, shape_of
from tuner.experiment import events as ev
from tuner.experiment.trial import Trial

Lacks = Callable[[Trial], bool]


class MissingResults:
    """Counts trials that ended without a report, or without a metric that no trial has had.

    As many as run at once, at least two, end the run; so does the last trial. A single one is a trial without a result.
    """

    def __init__(self, parts: LoopParts) -> None:
        self._parts, self._required = parts, parts.plugins.required
        self._latest: Trial | None = None
        """The latest trial that ended without, and did not end the run."""

    def check(self, trial: Trial) -> None:
        """Look at a trial that ends well now. Raises MetricMissingError where the run ends with it."""
        self._required.look_at_ended(trial)
        for lacks, error in self._problems(trial):
            others = [each for each in self._ended() if each is not trial and lacks(each)]
            if len(others) + 1 >= self._at_once(trial) or self._is_last(trial):
                self._end_run(others, error(trial, len(others)))
            self._latest = trial

    def check_at_end(self) -> None:
        """Raise MetricMissingError where no trial is left to run and none has had what is needed."""
        trial = self._latest
        if trial is None or self._parts.state.counts[Trial.ERROR]:
            return
        for lacks, error in self._problems(trial):
            others = [each for each in self._ended() if lacks(each)]
            self._end_run(others, error(trial, len(others) - 1))

    def _problems(self, trial: Trial) -> Iterator[tuple[Lacks, Callable[[Trial, int], MetricMissingError]]]:
        """What the trial and all others lack so far."""
        if self._parts.plan.needs_reports and not any(map(_has_reported, self._parts.state.trials)):
            yield lambda each: not _has_reported(each), self._required.nothing_reported
        for name in self._required.lacked_by(trial):
            yield (
                lambda each, name=name: self._required.lacks(each, name),  # type: ignore[misc]
                lambda each, more, name=name: self._required.never_came(name, each, more, anew=runs_anew(each)),  # type: ignore[misc]
            )

    def _ended(self) -> list[Trial]:
        return [each for each in self._parts.state.trials if each.status == Trial.TERMINATED]

    def _end_run(self, ended: list[Trial], error: MetricMissingError) -> None:
        """Have a resume run those that ended, with what is corrected by then."""
        for each in ended:
            if runs_anew(each):
                self._parts.facts.add(ev.TrialReopened(each.trial_id, anew=True))
        raise error

    def _at_once(self, trial: Trial) -> float:
        """How many trials run at once, at least two."""
        parts = self._parts
        total, asked = parts.executor.total(), trial.resources or parts.state.usual_resources
        room = fitting(total, shape_of({name: amount for name, amount in asked.items() if name in total}))
        return max(2, min(parts.limits.at_once, room or len(parts.attempts.running)))

    def _is_last(self, trial: Trial) -> bool:
        state, only, source = self._parts.state, self._parts.plan.only, self._parts.plugins.source
        if state.counts[Trial.ERROR]:
            return False  # what the user is shown is that error
        if only is None and source.more_to_come(state) and not source.all_created(state):
            return False
        return all(
            each is trial or each.is_finished() or (only is not None and each.trial_id not in only)
            for each in state.trials
        )


def _has_reported(trial: Trial) -> bool:
    return bool(trial.iteration or trial.told)


def runs_anew(trial: Trial) -> bool:
    """Whether a resume can run a trial once more whose end was not journaled, or is taken back."""
    latest = trial.checkpoints[-1].iteration if trial.checkpoints else None
    return not trial.is_stopped and (latest is None or latest < trial.iteration)
