"""The best trial by its last result: the same while it goes on, after a rollback and for the next driver."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from tests.tuner.progress.harness import plain
from tuner.callback import CallbackList
from tuner.logger import JsonLoggerCallback
from tuner.progress import (
    ProgressFacts,
)


def test_without_facts_from_the_loop_trials_are_counted(lab: Any) -> None:
    progress, _ = plain()
    run = lab(progress)
    run.end(run.trial())
    progress.facts = lambda: ProgressFacts(done=1, checkpoints=1)
    (one,) = progress.headlines(run.state.trials)
    assert one.startswith("1 trial: 1 done | ") and one.endswith(" | 1 checkpoint kept, 0 B")
    progress.facts = None
    run.trial()

    assert progress.headlines(run.state.trials)[0].startswith("2 trials: 1 running, 1 done | ")


def test_t03_a_best_that_became_void_is_forgotten(lab: Any) -> None:
    progress, _ = plain()
    run = lab(progress)
    trial, other = run.trial(), run.trial()
    run.report(other, loss=0.5)
    run.report(trial, loss=0.1)
    run.rollback(trial, 0)
    run.report(trial, loss=0.9)

    best = progress.standing.best
    assert best is not None
    assert (best.score, best.trial) == (0.5, "train_ab_00001")


def test_t03_a_trial_that_went_back_stands_where_its_checkpoint_was(lab: Any) -> None:
    progress, _ = plain()
    run = lab(progress)
    trial = run.trial()
    run.report(trial, loss=0.4)
    run.save(trial)
    run.report(trial, loss=0.1)
    run.rollback(trial, 1)

    best = progress.standing.best
    assert best is not None
    assert (best.score, best.iteration) == (0.4, 1)


def test_what_an_earlier_driver_found_counts_with_its_iteration(lab: Any) -> None:
    run = lab()
    trial = run.trial()
    for loss in (0.1, 0.3):
        run.report(trial, loss=loss)
    run.end(trial)
    progress, _ = plain()
    run.callbacks = CallbackList([progress])
    run.report(run.trial(), loss=0.5)

    assert progress.headlines(run.state.trials)[1] == "best last loss: 0.3 (train_ab_00000, iteration 2)"


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("seen", ["live", "by the next driver"])
def test_the_best_that_is_shown_is_that_of_the_analysis(lab: Any, mode: str, seen: str) -> None:
    draw = random.Random(mode)
    progress, _ = plain(mode=mode)
    run = lab(JsonLoggerCallback(), *([progress] if seen == "live" else []))
    for _ in range(40):
        trial = run.trial()
        for _ in range(draw.randint(0, 4)):
            loss = draw.choice([0.1, 0.2, 0.3, math.nan, -math.inf, math.inf, None, "text"])
            run.report(trial, **({} if loss is None else {"loss": loss}))
        if draw.random() < 0.5:
            run.end(trial)
        if seen != "live":
            progress, _ = plain(mode=mode)
        progress.headlines(run.state.trials)
        best, wanted = progress.standing.best, run.analysis("loss", mode).get_best_trial()
        assert (best and best.trial) == (wanted and wanted.name)
