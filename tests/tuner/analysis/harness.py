"""Experiments without a loop: with given results, and with everything in them that can be shown."""

from __future__ import annotations

import shutil
from typing import Any

import msgspec
import pytest

from tests.tuner.lab import Lab
from trainables import tagged
from trainables.wire import CheckpointRef
from tuner.experiment import events as ev
from tuner.experiment.trial import Trial

NASTY = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"

needs_chromium = pytest.mark.skipif(
    shutil.which("chromium") is None, reason="chromium is not installed: apt-get install chromium"
)


def run_trials(lab: Any, *histories: list[Any], metric: str = "loss", ended: bool = True) -> list[Trial]:
    trials = []
    for history in histories:
        trial = lab.trial(lr=0.1)
        for value in history:
            lab.report(trial, **({} if value is None else {metric: value}))
        if ended:
            lab.end(trial)
        trials.append(trial)
    return trials


def tuned(lab: Lab, trials: int = 6) -> Lab:
    """An experiment with everything in it that can be shown."""
    for number in range(trials):
        trial = lab.trial(lr=0.1 * (number + 1), width=number % 3, opt=NASTY if number % 2 else "sgd")
        for step in range(1, 4):
            lab.report(
                trial, loss=number / step, size=float(trials - number), timestamp=1000 + step, time_since_restore=step,
                iterations_since_restore=step,
            )  # fmt: skip
        lab.save(trial)
        lab.end(trial, ev.ErrorInfo("RuntimeError", NASTY) if number == 1 else None)
    return lab


def exploit(lab: Lab, clone: int, donor: int, iteration: int, **config: Any) -> None:
    trial, source = lab.state.trials[clone], lab.state.trials[donor]
    ref = CheckpointRef(source.trial_id, "checkpoint_000003", 1, 1, 1, 3)
    lab.state.apply(ev.Exploited(trial.trial_id, ref, msgspec.Raw(tagged.dumps(config)), iteration))
