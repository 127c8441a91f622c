"""What a run has seen of interruptions and saves: its trials decide by it when a save pays."""

from __future__ import annotations

from collections.abc import Iterable

from trainables.checkpoint_config import AUTO
from trainables.job import SavePace
from trainables.runtime.cadence import recent_mean
from tuner import knobs
from tuner.clock import Clock
from tuner.driver.attempts import LiveAttempt
from tuner.experiment.trial import Trial
from tuner.spec import Spec

_CUT_OFF = ("failed", "lost")


class SeenInterruptions:
    """Adds up how long attempts ran and how many were cut off, in this life of a driver and in those before.

    Nobody wants to know it of class trainables that save every so many iterations: then nothing is counted.
    """

    def __init__(self, spec: Spec, clock: Clock) -> None:
        self._clock = clock
        self._wanted = spec.checkpoint_config.checkpoint_frequency == AUTO
        self._asked = self._wanted or not spec.class_api
        self._trained_s, self._number = 0.0, 0
        self._save_s: float | None = None
        self._began: dict[str, float] = {}
        self._sum_of_began = 0.0

    def resumed(self, trials: Iterable[Trial]) -> None:
        """Count what drivers before have seen."""
        if not self._asked:
            return
        for trial in trials:
            if trial.started_at is None:
                continue
            own = trial.own_checkpoints
            saved = own[-1].iteration if own else 0
            for rest in trial.rests:
                self._trained_s -= max(0.0, (rest.until or rest.since) - rest.since)
                begins = saved if rest.until is None else rest.iteration
                self._number += _is_interruption(rest.why, lost=rest.unseen or rest.reached > begins)
            last = trial.rests[-1] if trial.rests else None
            if trial.is_finished():
                until = trial.ended_at or trial.last_heard_of
            else:
                until = last.since if last is not None and last.until is None else trial.last_heard_of
            self._trained_s += max(0.0, until - trial.started_at)
            self._number += trial.status == Trial.ERROR
        self._trained_s = max(0.0, self._trained_s)

    def launched(self, trial: Trial) -> None:
        """An attempt begins."""
        if self._asked:
            self._began[trial.trial_id] = now = self._clock.monotonic()
            self._sum_of_began += now

    def ended(self, run: LiveAttempt, why: str) -> None:
        """An attempt is over: as its fact says, or "" where its trial has ended well."""
        began = self._began.pop(run.trial.trial_id, None)
        if began is None:
            return
        self._sum_of_began -= began
        self._trained_s += self._clock.monotonic() - began
        own = run.trial.own_checkpoints
        self._number += _is_interruption(why, lost=run.trial.iteration > (own[-1].iteration if own else 0))

    def measured(self, save_s: float) -> None:
        """A trial has saved, and it took so long."""
        self._save_s = recent_mean(self._save_s, save_s)

    def pace(self) -> SavePace | None:
        """What an attempt that begins now is told."""
        if not self._asked:
            return None
        running_s = len(self._began) * self._clock.monotonic() - self._sum_of_began
        return SavePace(
            self._trained_s + max(0.0, running_s), self._number, self._save_s, knobs.job_end_time(), self._wanted
        )


def _is_interruption(why: str, *, lost: bool) -> bool:
    """Whether an attempt was cut off: a trial that saved before it left, or paused, has lost nothing."""
    return why in _CUT_OFF or (why in ("preempted", "halted") and lost)
