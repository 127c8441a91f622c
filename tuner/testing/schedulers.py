"""`check_scheduler`: the conformance suite for schedulers."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

from tuner.schedulers.base import TrialScheduler
from tuner.search.searcher import names_of
from tuner.testing.scripted_life import PendingView, ScriptedLife, Spelling, TrialStub, plain


def check_scheduler(make: Callable[[], TrialScheduler], *, cuts: int = 24) -> None:
    """Play a life of fourteen trials with a scheduler, and assert its obligations.

    Trials are paused, resumed, saved, cloned and given other resources as it decides; checkpoints are published late;
    trials fail, come back, repeat what they reported, are stopped by others; the searcher has nothing for a while.

    Args:
        make: returns a new scheduler, the same each time; it compares `loss` by `min` if it was not told otherwise.
        cuts: in so many lives it is exchanged for a new one with its state, each time at another call.

    Raises:
        AssertionError: an obligation of `TrialScheduler` is not met; the message says which.
    """
    life = ScriptedLife(lambda: _prepared(make)).play()
    assert life.decisions == _decisions(lambda: _prepared(make)), "the same calls give the same decisions"
    _check_spellings(make, life.decisions)
    _check_state(make, life, cuts)
    assert _decisions(lambda: _prepared(make), crash=False) == life.decisions, (
        "an attempt that begins again, and repeats what was told, changes nothing"
    )
    _check_choice(make)
    _check_keeps_no_trial(make)


def _prepared(make: Callable[[], TrialScheduler]) -> TrialScheduler:
    scheduler = make()
    scheduler.set_search_properties(scheduler.metric or "loss", scheduler.mode or "min")
    return scheduler


def _renamed(make: Callable[[], TrialScheduler], metric: str) -> TrialScheduler:
    scheduler = make()
    scheduler._metric, scheduler._mode = metric, scheduler.mode or "min"
    return scheduler


def _turned(make: Callable[[], TrialScheduler]) -> TrialScheduler:
    scheduler = _prepared(make)
    turned = ["max" if mode == "min" else "min" for mode in names_of(scheduler.mode)]
    scheduler._mode = turned[0] if isinstance(scheduler.metric, str) else turned
    return scheduler


def _decisions(make: Callable[[], TrialScheduler], spelling: Spelling = plain, **how: Any) -> list[tuple[Any, ...]]:
    return ScriptedLife(make, spelling, **how).play().decisions


def _check_spellings(make: Callable[[], TrialScheduler], expected: list[tuple[Any, ...]]) -> None:
    metric = _prepared(make).metric
    if metric is None:
        return
    turned = _decisions(lambda: _turned(make), lambda loss, metric: {metric: -loss})
    assert turned == expected, "min of x decides as max of -x"
    if not isinstance(metric, str):
        return
    slashed = _decisions(lambda: _renamed(make, "eval/loss"))
    spellings: dict[str, Spelling] = {
        '{"eval": {"loss": ..}}': lambda loss, metric: {"eval": {"loss": loss}},
        '{"eval.loss": ..}': lambda loss, metric: {"eval.loss": loss},
    }
    for spelled, spelling in spellings.items():
        found = _decisions(lambda: _renamed(make, "eval/loss"), spelling)
        assert found == slashed, f"a nested metric is found: {spelled}"


def _check_state(make: Callable[[], TrialScheduler], whole: ScriptedLife, cuts: int) -> None:
    assert isinstance(whole.scheduler.debug_string(), str), "debug_string returns text"
    for number in range(cuts):
        cut = number * whole.calls // cuts
        life = ScriptedLife(lambda: _prepared(make), cut=cut).play()
        assert life.decisions == whole.decisions, (
            f"it goes on from its state as if nothing had been (cut before call {cut})"
        )


def _check_choice(make: Callable[[], TrialScheduler]) -> None:
    scheduler = _prepared(make)
    pending = [TrialStub("a", {"lr": 0.1}), TrialStub("b", {"lr": 0.2})]
    for trial in pending:
        scheduler.on_trial_add(trial)
    chosen = scheduler.choose_trial_to_run(PendingView(pending))
    assert chosen in pending, "of new trials one is chosen"
    assert scheduler.choose_trial_to_run(PendingView(pending)) is chosen, (
        "choose_trial_to_run changes nothing: asked again, it chooses the same"
    )
    assert scheduler.choose_trial_to_run(PendingView([])) is None, "of no waiting trials none is chosen"


def _check_keeps_no_trial(make: Callable[[], TrialScheduler]) -> None:
    life = ScriptedLife(lambda: _prepared(make)).play(turns=4)
    alive = [weakref.ref(trial) for trial in life.trials]
    scheduler = life.scheduler
    del life
    gc.collect()
    assert not any(reference() for reference in alive), "a scheduler keeps trial_ids, not trials"
    del scheduler
