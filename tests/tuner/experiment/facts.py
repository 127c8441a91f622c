"""Facts of experiments, made by hand or by dice, for tests of what they add up to."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from trainables.wire import CheckpointRef
from tuner.experiment import events as ev
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial

TRIAL = "ab_00000"


def raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(value).encode())


def created(index: int = 0, **config: Any) -> ev.TrialCreated:
    name = f"train_ab_{index:05d}"
    return ev.TrialCreated(
        f"ab_{index:05d}", index, raw(config), evaluated=raw(config), name=name, dirname=name, trainable="train"
    )


def attempt(number: int = 1, *, trial: str = TRIAL, generation: int = 1, **more: Any) -> ev.AttemptStarted:
    return ev.AttemptStarted(trial, number, generation, 100.0 * number, **more)


def result(iteration: int, *, trial: str = TRIAL, number: int = 1, **more: Any) -> ev.ResultReported:
    told = {name: more.pop(name) for name in ("then", "saves", "done", "reason") if name in more}
    metrics = {"training_iteration": iteration, "timestamp": 100.0 + iteration, **more}
    return ev.ResultReported(trial, number, iteration, raw(metrics), **told)


def ref(iteration: int, *, trial: str = TRIAL, number: int = 1, generation: int = 1) -> CheckpointRef:
    return CheckpointRef(trial, f"checkpoint_{iteration:06d}", generation, number, iteration, iteration)


def published(iteration: int, *, size: int = 10, metrics: Any = None, **of: Any) -> ev.CheckpointPublished:
    more = {} if metrics is None else {"metrics": raw(metrics)}
    return ev.CheckpointPublished(ref(iteration, **of), size, f"digest {iteration}", 100.0 + iteration, **more)


def saved(iteration: int, **metrics: Any) -> list[ev.AnyFact]:
    """A result and its checkpoint."""
    return [result(iteration, saves=True, **metrics), published(iteration)]


def state_of(root: Path, *facts: ev.AnyFact) -> ExperimentState:
    state = ExperimentState(root)
    for fact in facts:
        state.apply(fact)
    return state


def trial_of(*facts: ev.AnyFact) -> Trial:
    """A trial that was created, and what happened to it."""
    return state_of(Path("/results/e"), created(), *facts).trials[0]


def life(dice: random.Random, length: int) -> Sequence[ev.AnyFact]:
    """Facts that a driver may write of three trials, each fitting to those before it."""
    facts: list[ev.AnyFact] = [ev.GenerationStarted(1), *(created(index, x=index) for index in range(3))]
    state = state_of(Path("/results/e"), *facts)
    while len(facts) < length:
        trial = dice.choice(list(state.trials))
        for fact in _next(trial, state, dice):
            facts.append(fact)
            state.apply(fact)
    return facts


def _next(trial: Trial, state: ExperimentState, dice: random.Random) -> Sequence[ev.AnyFact]:
    if dice.random() < 0.1:
        return _ordered(trial, state, dice)
    if trial.is_finished():
        return [ev.TrialReopened(trial.trial_id, anew=dice.random() < 0.5)]
    if trial.status != Trial.RUNNING:
        return _begun(trial, state, dice)
    iteration = trial.iteration + 1
    of = {"trial": trial.trial_id, "number": trial.attempt}
    reported = result(iteration, loss=dice.random(), then=dice.choice(["continue", "pause"]), saves=True, **of)
    missed = ev.PublishFailed(ref(iteration, **of), "no space", dice.random() < 0.5)
    error = ev.ErrorInfo("ValueError", "no")
    ways: list[Sequence[ev.AnyFact]] = [
        [result(iteration, loss=dice.random(), **of)],
        [reported, published(iteration, **of)],
        [reported, published(iteration, **of)],
        [reported, missed],
        [ev.AttemptEnded(trial.trial_id, trial.attempt, dice.choice(["failed", "lost", "paused"]), error, 500.0)],
        [ev.TrialEnded(trial.trial_id, dice.choice(["TERMINATED", "ERROR"]), 900.0, error)],
    ]
    if trial.checkpoints:
        record = dice.choice(trial.checkpoints)
        ways += [
            [ev.CheckpointForgotten(record.ref, "latest"), ev.CheckpointDeleted(record.ref)],
            [ev.CheckpointCopied(record.ref, "s3://bucket/runs/e"), ev.LocalCopyDropped(record.ref)],
            [ev.CheckpointSetAside(record.ref, "a file is short")],
            [ev.CheckpointPinned(record.ref, dice.random() < 0.7, dice.choice(["", "good"]))],
        ]
    return dice.choice(ways)


def _ordered(trial: Trial, state: ExperimentState, dice: random.Random) -> Sequence[ev.AnyFact]:
    order = f"order-{len(state.orders):04d}"
    taken = ev.OrderTaken(order, raw({"order": "note", "trial": trial.trial_id, "text": "flat"}), 600.0)
    answered = ev.OrderAnswered(order, 601.0, dice.random() < 0.5, "so it is")
    ways: list[Sequence[ev.AnyFact]] = [
        [taken],
        [taken, ev.TrialNoted(trial.trial_id, "flat", 601.0, order)],
        [taken, ev.TrialHeld(trial.trial_id, dice.random() < 0.5), answered],
    ]
    return dice.choice(ways)


def _begun(trial: Trial, state: ExperimentState, dice: random.Random) -> Sequence[ev.AnyFact]:
    donors = [other for other in state.trials if other is not trial and other.checkpoints]
    facts: list[ev.AnyFact] = []
    if donors and dice.random() < 0.3:
        donor = dice.choice(dice.choice(donors).checkpoints).ref
        facts.append(ev.Exploited(trial.trial_id, donor, raw({"x": dice.random()}), trial.iteration))
        facts.append(attempt(trial.attempt + 1, trial=trial.trial_id, checkpoint=donor, iteration=trial.iteration))
        return facts
    own = trial.own_checkpoints
    start = own[-1] if own else None
    iteration = start.iteration if start is not None else 0
    if iteration < trial.iteration:
        facts.append(ev.RolledBack(trial.trial_id, trial.attempt + 1, iteration))
    checkpoint = start.ref if start is not None else None
    facts.append(attempt(trial.attempt + 1, trial=trial.trial_id, checkpoint=checkpoint, iteration=iteration))
    return facts
