"""Who went on from whom: exploits, restarts and retries of trials as the edges of a tree, plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from tuner.experiment.order_records import OrderRecord
from tuner.experiment.trial import Trial
from tuner.experiment.trial_records import Clone, Rest
from tuner.experiment.trials import find_trial


def edges_of(trials: Iterable[Trial], orders: Mapping[str, OrderRecord] | None = None) -> list[dict[str, Any]]:
    """A dict for each time that a trial went on, or began at another one's checkpoint, by trial, then as it happened.

    Args:
        trials: of one experiment.
        orders: what users have ordered, by id: who failed and was told to try again does not just restart.

    Returns:
        "kind" ("exploit": from another trial's checkpoint; "fork": it began there, by an order; "reuse": with what an
        earlier experiment had trained, which "why" names; "restart"; "retry": by an order; "pause": it had been
        paused), "trial" (id), "iteration" (from which it went on, its own count),
        "reached" (to which it had come), "from" (id of the trial whose checkpoint it is), "checkpoint" and
        "from_iteration" (None: nothing, or unknown), "changed" ({flat key of the config: [before, after]}), "at"
        (seconds since the epoch; None: it has not yet, or it is not known), "why" (how the attempt before ended),
        "order" (id, or None).
    """
    trials = list(trials)
    retries = _retries(trials, orders or {})
    return [edge for trial in trials for edge in _edges_of_trial(trial, retries.get(trial.trial_id, []))]


def _edges_of_trial(trial: Trial, retries: list[tuple[float, str]]) -> list[dict[str, Any]]:
    rests = list(trial.rests)
    fork = trial.fork
    edges = [] if fork is None else [_begun(trial, fork)]
    if (reused := trial.reused) is not None:
        edges.append(_edge("reuse", trial, reused.iteration, None) | {"at": trial.started_at, "why": str(reused)})
    for clone in trial.clones[0 if fork is None else 1 :]:
        before = next((rest for rest in rests if rest.reached >= clone.iteration), None)
        for rest in rests[: 0 if before is None else rests.index(before)]:
            edges += _went_on(trial, rest, retries)
        rests = rests[0 if before is None else rests.index(before) + 1 :]
        edges.append(_edge("exploit", trial, clone.iteration, before) | _donor(clone))
    return edges + [edge for rest in rests for edge in _went_on(trial, rest, retries)]


def _begun(trial: Trial, fork: Clone) -> dict[str, Any]:
    return _edge("fork", trial, fork.iteration, None) | _donor(fork) | {"at": trial.started_at, "order": trial.order}


def _donor(clone: Clone) -> dict[str, Any]:
    return {
        "from": clone.donor.trial_id,
        "checkpoint": clone.donor.name,
        "from_iteration": clone.donor.iteration,
        "changed": {key: list(values) for key, values in clone.changed.items()},
    }


def _went_on(trial: Trial, rest: Rest, retries: list[tuple[float, str]]) -> list[dict[str, Any]]:
    """One edge; none where it has not gone on yet, or was ended instead."""
    if rest.until is None or rest.until == trial.ended_at:
        return []
    told = next((told for told in retries if rest.since <= told[0] <= rest.until), None)
    if told is not None:
        retries.remove(told)
    kind = "pause" if rest.why == "paused" else "restart" if told is None else "retry"
    return [_edge(kind, trial, rest.iteration, rest) | {"order": None if told is None else told[1]}]


def _edge(kind: str, trial: Trial, iteration: int, rest: Rest | None) -> dict[str, Any]:
    return {
        "kind": kind,
        "trial": trial.trial_id,
        "iteration": iteration,
        "reached": iteration if rest is None else rest.reached,
        "from": trial.trial_id,
        "checkpoint": None,
        "from_iteration": iteration or None,
        "changed": {},
        "at": None if rest is None else rest.until,
        "why": "" if rest is None else rest.why,
        "order": None,
    }


def _retries(trials: list[Trial], orders: Mapping[str, OrderRecord]) -> dict[str, list[tuple[float, str]]]:
    """Trial -> (time, id) of the orders that had it tried again, oldest first."""
    found: dict[str, list[tuple[float, str]]] = {}
    for order_id, record in orders.items():
        order = msgspec.json.decode(record.order)
        if isinstance(order, dict) and order.get("order") == "retry" and record.state != "refused":
            trial = find_trial(trials, str(order.get("trial")))
            if trial is not None:
                found.setdefault(trial.trial_id, []).append((record.at, order_id))
    return found
