"""The edges of a lineage, of facts as a journal has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from trainables.wire import CheckpointRef
from tuner.experiment import events as ev
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial_records import Clone
from tuner.inspection.lineage import edges_of


def raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def saved(trial: str, iteration: int, attempt: int = 1) -> CheckpointRef:
    return CheckpointRef(trial, f"checkpoint_{iteration:06d}", 1, attempt, iteration, iteration)


def result(trial: str, iteration: int, attempt: int = 1) -> list[ev.AnyFact]:
    return [
        ev.ResultReported(trial, attempt, iteration, raw({"loss": 1.0}), saves=True),
        ev.CheckpointPublished(saved(trial, iteration, attempt), 1, "", float(iteration)),
    ]


def facts() -> list[ev.AnyFact]:
    error = ev.ErrorInfo("ValueError", "no")
    return [
        ev.GenerationStarted(1),
        ev.TrialCreated("a", 0, raw({"lr": 1}), dirname="a"),
        ev.TrialCreated("b", 1, raw({"lr": 2, "net": {"width": 8}}), dirname="b"),
        ev.AttemptStarted("a", 1, 1, 1.0),
        ev.AttemptStarted("b", 1, 1, 1.0),
        *result("a", 1),
        *result("b", 1),
        ev.AttemptEnded("b", 1, "lost", at=3.0),  # it comes back
        ev.AttemptStarted("b", 2, 1, 4.0, saved("b", 1), 1),
        *result("b", 2, 2),
        ev.AttemptEnded("b", 2, "paused", at=5.0),  # and becomes a clone
        ev.Exploited("b", saved("a", 1), raw({"lr": 1.2, "net": {"width": 8}}), 2),
        ev.AttemptStarted("b", 3, 1, 6.0, saved("a", 1), 2),
        *result("b", 3, 3),
        ev.AttemptEnded("b", 3, "paused", at=7.0),  # by a scheduler
        ev.AttemptStarted("b", 4, 1, 8.0, saved("b", 3, 3), 3),
        ev.TrialEnded("b", "TERMINATED", 9.0),
        ev.TrialEnded("a", "ERROR", 10.0, error),
        ev.OrderTaken("first-order", raw({"order": "retry", "trial": "0"}), 11.0),
        ev.TrialReopened("a"),
        ev.AttemptStarted("a", 2, 1, 12.0, saved("a", 1), 1),
        ev.OrderAnswered("first-order", 12.0),
        ev.AttemptEnded("a", 2, "failed", error, 13.0),
        ev.AttemptStarted("a", 3, 1, 14.0),  # its checkpoint is not used again
        ev.AttemptEnded("a", 3, "failed", error, 15.0),  # it has not gone on since
        ev.TrialCreated(
            "c", 2, raw({"lr": 9}), dirname="c", order="fork-order", fork=Clone(1, saved("a", 1), {"lr": (1, 9)})
        ),
        ev.AttemptStarted("c", 1, 1, 16.0, saved("a", 1), 1),
        *result("c", 2),
        ev.AttemptEnded("c", 1, "preempted", at=17.0),
        ev.AttemptStarted("c", 2, 1, 18.0, saved("c", 2), 2),
    ]


def test_each_time_that_a_trial_went_on_is_an_edge() -> None:
    state = ExperimentState(Path("/none"))
    for fact in facts():
        state.apply(fact)
    told = [
        tuple(edge[key] for key in ("kind", "trial", "iteration", "reached", "from", "at", "why", "order"))
        for edge in edges_of(state.trials, state.orders)
    ]
    assert told == [
        ("retry", "a", 1, 1, "a", 12.0, "failed", "first-order"),
        ("restart", "a", 0, 1, "a", 14.0, "failed", None),
        ("restart", "b", 1, 1, "b", 4.0, "lost", None),
        ("exploit", "b", 2, 2, "a", 6.0, "paused", None),
        ("pause", "b", 3, 3, "b", 8.0, "paused", None),
        ("fork", "c", 1, 1, "a", 16.0, "", "fork-order"),
        ("restart", "c", 2, 2, "c", 18.0, "preempted", None),
    ]
    assert edges_of(state.trials)[5]["changed"] == {"lr": [1, 9]}
    exploit = edges_of(state.trials)[3]
    assert exploit["changed"] == {"lr": [2, 1.2]} and exploit["checkpoint"] == "checkpoint_000001"
    assert edges_of(state.trials)[0]["kind"] == "restart", "without the orders nobody knows of them"


def test_a_snapshot_knows_the_same_edges_after_every_fact() -> None:
    state = ExperimentState(Path("/none"))
    for fact in facts():
        state.apply(fact)
        again = ExperimentState.from_snapshot(Path("/none"), state.snapshot({}))
        assert edges_of(again.trials, again.orders) == edges_of(state.trials, state.orders)
