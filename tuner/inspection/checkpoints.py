"""The checkpoints of an experiment as plain values: where each is, who holds it, and why it is kept or went."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from trainables.metrics import MISSING, lookup
from tuner.experiment.reader import follow
from tuner.experiment.trial import Trial
from tuner.experiment.trial_records import CheckpointRecord

if TYPE_CHECKING:
    from tuner.retention.explain import Chronicle


def sites(record: CheckpointRecord, settings: Mapping[str, Any]) -> list[str]:
    """Where a checkpoint is too; at the copies of an experiment that this one continues only if it is nowhere else."""
    own = [site for site in record.copies if site not in settings.get("inherited_copies", ())]
    return own if own or record.here else record.copies


def explained(chronicle: Chronicle, trial: Trial, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What became of each checkpoint of a trial, by which rule, the oldest first."""
    from tuner.retention.explain import explain
    from tuner.retention.rules import policy_of_settings

    policy, others = policy_of_settings(settings)
    told = explain(chronicle, trial, policy)
    for one in told:
        if one["fate"] == "kept" and not one["why"]:
            one["why"] = list(others)  # a policy of a user's own: it is not asked here
    return told


def rows_of(
    chronicle: Chronicle, settings: Mapping[str, Any], trials: Iterable[Trial] | None = None
) -> list[dict[str, Any]]:
    """A dict for each checkpoint that is kept or went, by trial, then the oldest first.

    Args:
        chronicle: all that is recorded of the experiment.
        settings: what its experiment.json holds.
        trials: those of the chronicle that are wanted; None: all.

    Returns:
        "trial" (id), "index" (its number), "address" ("ID@ITERATION", as orders take it), "name", "iteration", "bytes",
        "saved_at" (seconds since the epoch), "fate" ("kept", "deleted", "set aside"), "why" (the rules that keep it,
        "pinned", its tags; of one that is gone why it went), "for" and "at" (the save for which it went, and when),
        "here" (on the disk of its trial), "copies" (URIs of the experiment at places that hold it too), "pinned",
        "tags", "metrics" (those that the settings go by, as far as they are plain).
    """
    if settings.get("moved"):
        follow(chronicle.state.trials, settings["moved"])
    wanted = chronicle.state.trials if trials is None else trials
    return [row for trial in wanted for row in _rows_of_trial(chronicle, trial, settings)]


def _rows_of_trial(chronicle: Chronicle, trial: Trial, settings: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    lives = sorted(chronicle.lives.get(trial.trial_id, {}).values(), key=lambda life: life.record.order)
    metrics = _metrics(settings)
    for life, told in zip(lives, explained(chronicle, trial, settings), strict=True):
        record, kept = life.record, not life.gone
        yield {
            "trial": trial.trial_id,
            "index": trial.index,
            "address": f"{trial.trial_id}@{record.iteration}",
            **told,
            "here": kept and record.here,
            "copies": list(sites(record, settings)) if kept else [],
            "pinned": kept and record.pinned,
            "tags": list(record.tags) if kept else [],
            "metrics": _scores(record, dict.fromkeys([*metrics, *told["metrics"]])),
        }


def _metrics(settings: Mapping[str, Any]) -> list[str]:
    """What the run went by."""
    given = settings.get("metric") or (settings.get("searches_for") or {}).get("metric") or []
    return [given] if isinstance(given, str) else list(given)


def _scores(record: CheckpointRecord, names: Iterable[str]) -> dict[str, Any]:
    found = {name: lookup(record.metrics, name) for name in names}
    plain = (bool, int, float, str)
    return {name: value for name, value in found.items() if value is not MISSING and isinstance(value, plain)}
