"""Whom a trial went on from, and who went on from it, for `tuner show EXPERIMENT TRIAL`."""

from __future__ import annotations

from typing import Any

from tuner.cli import output
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial
from tuner.inspection.lineage import edges_of

SHOWN = 20
"""Lines of those that went on from it."""


def lineage_of(state: ExperimentState, trial: Trial) -> dict[str, Any]:
    """ "lineage": what made the trial go on other than by itself; "descendants": who went on from it."""
    own = [edge for edge in edges_of([trial], state.orders) if edge["kind"] in ("exploit", "fork", "retry")]
    others = [one for one in state.trials if any(clone.donor.trial_id == trial.trial_id for clone in one.clones)]
    here = [edge for edge in edges_of(others) if edge["from"] == trial.trial_id and edge["trial"] != trial.trial_id]
    return {"lineage": own, "descendants": here}


def lines_of(facts: dict[str, Any], state: ExperimentState) -> list[str]:
    """What `lineage_of` has found, a line each, but for what it was forked from, which stands above; the last of the
    descendants.
    """
    lines = [_own_text(edge, state) for edge in facts["lineage"] if edge["kind"] != "fork"]
    here = facts["descendants"]
    lines += [f"  ... {len(here) - SHOWN} before went on from it"] if len(here) > SHOWN else []
    return lines + [_descendant_text(edge, state) for edge in here[-SHOWN:]]


def called(state: ExperimentState, trial_id: str) -> str:
    """ "trial 3"."""
    found = state.trials.get(trial_id)
    return output.value(trial_id) if found is None else f"trial {found.index}"


def changed_text(changed: dict[str, Any]) -> str:
    """ "rate: 1 -> 4"."""
    told = (f"{output.value(key)}: {output.value(old)} -> {output.value(new)}" for key, (old, new) in changed.items())
    return ", ".join(told) or "the same config"


def _own_text(edge: dict[str, Any], state: ExperimentState) -> str:
    if edge["kind"] == "retry":
        return f"  at iteration {edge['iteration']} tried again, as you ordered"
    donor = f"{called(state, edge['from'])}@{edge['from_iteration']} ({output.value(edge['from'])})"
    return f"  at iteration {edge['iteration']} cloned from {donor}  {changed_text(edge['changed'])}"


def _descendant_text(edge: dict[str, Any], state: ExperimentState) -> str:
    by = "forked" if edge["kind"] == "fork" else "cloned"
    trial = called(state, edge["trial"])
    return f"  {trial} was {by} from it at iteration {edge['from_iteration']}  {changed_text(edge['changed'])}"
