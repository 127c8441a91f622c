"""All about one trial, for `tuner show EXPERIMENT TRIAL`, without unpickling anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainables import tagged
from trainables.metrics import MISSING, lookup
from trainables.places import child_of
from trainables.printable import one_line
from tuner.analysis.goal import goal_of
from tuner.cli import output
from tuner.experiment.journal import JournalContents
from tuner.experiment.outcome import ended_because, outcome, word
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.reader import replay
from tuner.experiment.trial import Trial
from tuner.experiment.trial_records import CheckpointRecord
from tuner.experiment.trials import find_trial
from tuner.inspection.checkpoints import explained, sites
from tuner.inspection.lineage import edges_of

ATTEMPTS = 10
"""Lines of them at most."""
_ENDED: dict[str, str] = {
    "failed": "failed",
    "preempted": "told to end (SIGTERM)",
    "lost": "its process was lost",
    "paused": "paused",
    "halted": "the run ended",
}


def of_trial(trial: Trial, trials: Sequence[Trial], address: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """All that is known of one trial of `trials`, without unpickling anything."""
    error = trial.error
    return {
        "id": trial.trial_id,
        "name": trial.name,
        "status": trial.status,
        "state": word(trial) if trial.is_finished() else one_line(outcome(trial)),
        "iteration": trial.iteration,
        "path": child_of(address, trial.dirname),
        "config": tagged.loads(bytes(trial.raw_config)),
        "result": trial.last_result,
        "failures": trial.num_failures,
        "reason": ended_because(trial),
        "attempts": _attempts(trial, trials),
        "notes": [{"at": note.at, "text": note.text} for note in trial.notes],
        "error": None if error is None else f"{error.type}: {error.message}",
        "traceback": "" if error is None else error.traceback,
        "clones": [
            {
                "iteration": clone.iteration,
                "donor": clone.donor.trial_id,
                "checkpoint": clone.donor.name,
                "changed": {key: list(values) for key, values in clone.changed.items()},
            }
            for clone in trial.clones
        ],
        "checkpoints": [
            {
                "name": record.ref.name,
                "iteration": record.iteration,
                "bytes": record.bytes,
                "saved_at": record.saved_at,
                "copies": sites(record, settings),
                "here": record.here,
                "pinned": record.pinned,
                "tags": record.tags,
                "metrics": _score(record, settings),
            }
            for record in trial.checkpoints
        ],
    }


def _attempts(trial: Trial, trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """Those that were not its last: why each ended, and from which iteration the next one went on, None: not yet.

    "donor" is the trial from whose checkpoint the next one went on as a clone: its id, its number and the iteration.
    """
    donors = {edge["at"]: _donor(edge, trials) for edge in edges_of([trial]) if edge["kind"] == "exploit"}
    attempts = []
    for rest in trial.rests:
        goes_on = rest.until is not None and rest.until != trial.ended_at
        attempts.append(
            {
                "why": rest.why,
                "iteration": rest.reached,
                "went_on_from": rest.iteration if goes_on else None,
                "donor": donors.get(rest.until) if goes_on else None,
            }
        )
    return attempts


def _donor(edge: Mapping[str, Any], trials: Sequence[Trial]) -> dict[str, Any]:
    found = find_trial(trials, edge["from"])
    index = None if found is None else found.index
    return {"trial": edge["from"], "index": index, "iteration": edge["from_iteration"]}


def _score(record: CheckpointRecord, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The run's metrics in the result that a checkpoint belongs to."""
    found = {name: lookup(record.metrics, name) for name in goal_of(settings).metrics}
    return {name: value for name, value in found.items() if value is not MISSING}


def why(trial: Trial, paths: ExperimentPaths, journal: JournalContents, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What became of each checkpoint, by which rule: the facts of journal and history, replayed."""
    from tuner.retention.explain import Chronicle
    from tuner.retention.rules import policy_of_settings, rule_of

    replayed = replay(paths, journal, Chronicle)
    policy, others = policy_of_settings(settings)
    rules = [rule_of(policy), *others] if others else [rule_of(policy)]
    return {
        "retention": " or ".join(rules),
        "why": explained(replayed.made, trial, settings),
        "unknown": replayed.made.unknown(trial),
        "recorded_since": replayed.since,
        "notes": replayed.notes,
    }


def text_of(facts: dict[str, Any], lineage: list[str]) -> str:
    """The page; `lineage`: lines about whom it went on from."""
    lines = [
        f"{output.value(facts['name'])}  {output.value(facts['state'])}  iteration {facts['iteration']}",
        output.value(facts["path"]),
    ]
    ended = facts["status"] in (Trial.TERMINATED, Trial.ERROR)  # of others the state says it
    lines += [f"ended: {output.value(facts['reason'])}"] if facts["reason"] and ended else []
    lines += [output.value(line) for line in facts["forked"]]
    lines += _attempt_lines(facts["attempts"])
    lines += [f"note, {output.time(note['at'])}: {output.value(note['text'])}" for note in facts["notes"]]
    lines += ["", "config"]
    lines += [f"  {output.value(key)} = {output.value(value)}" for key, value in facts["config"].items()]
    results = [f"  {output.value(key)} = {output.value(value)}" for key, value in facts["result"].items()]
    lines += ["", "last result", *(results or ["  none"])]
    lines += ["", "lineage", *lineage] if lineage else []
    lines += ["", "checkpoints"]
    if "why" in facts:
        lines += _why_lines(facts)
    else:
        lines += [_checkpoint_text(item) for item in facts["checkpoints"]] or ["  none"]
    if facts["error"]:
        lines += ["", facts["traceback"].rstrip() or facts["error"]]
    return "\n".join(lines)


def _attempt_lines(attempts: list[dict[str, Any]]) -> list[str]:
    """The last ones, a line each."""
    lines = []
    for number, one in list(enumerate(attempts, 1))[-ATTEMPTS:]:
        start, donor = one["went_on_from"], one["donor"]
        next_ = "not gone on since" if start is None else f"went on from iteration {start}" if start else "began anew"
        if donor is not None:
            name = donor["trial"] if donor["index"] is None else donor["index"]
            next_ = f"went on as a clone of trial {output.value(name)}@{donor['iteration']}"
        lines.append(f"  {number}: {_ENDED.get(one['why'], one['why'])} after iteration {one['iteration']}; {next_}")
    more = [f"  ... {len(attempts) - ATTEMPTS} before"] if len(attempts) > ATTEMPTS else []
    return [f"earlier attempts: {len(attempts)}", *more, *lines] if attempts else []


def _checkpoint_text(item: dict[str, Any]) -> str:
    where = "" if item["here"] else "  not here"
    copies = "".join(f"  at {output.value(place)}" for place in item["copies"])
    scores = _scores_text(item["metrics"])
    pinned = f"  {', '.join(['pinned', *item['tags']])}" if item["pinned"] else ""
    return f"  {output.value(item['name'])}  {output.size(item['bytes'])}{scores}{pinned}{where}{copies}"


def _scores_text(scores: Mapping[str, Any]) -> str:
    return "".join(f"  {output.value(name)}={output.value(score)}" for name, score in scores.items())


def _why_lines(facts: dict[str, Any]) -> list[str]:
    lines = [f"  kept are {facts['retention']}, and always the latest"] + [_why_text(item) for item in facts["why"]]
    if facts["unknown"]:
        since = facts["recorded_since"]
        before = "" if since is None else f" before {output.time(since)}"
        lines.append(f"  {facts['unknown']} more were saved and deleted: not recorded{before}")
    return lines if len(lines) > 1 else ["  none"]


def _why_text(item: dict[str, Any]) -> str:
    scores = _scores_text(item["metrics"])
    rules = ", ".join(output.value(rule) for rule in item["why"])
    if item["fate"] == "kept":
        told = f"kept: {rules or 'it is to go at the next save'}"
    elif item["fate"] == "deleted":
        told = f"deleted: {f'not kept by {rules}' if rules else 'the rule was not written down'}"
    else:
        told = f"set aside: {rules}"
    if item["for"] is not None:
        told += f", for {output.value(item['for'])}, saved {output.time(item['at'])}"
    return f"  {output.value(item['name'])}  {output.size(item['bytes'])}{scores}  {told}"
