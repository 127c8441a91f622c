"""The data of one trial's page: what it is, what it did, its checkpoints and why each is kept or went."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from trainables import tagged
from trainables.metrics import as_score, lookup
from trainables.places import child_of
from trainables.result_history import flatten
from tuner.error import ExperimentNotFoundError
from tuner.experiment.hostile import UNREADABLE, said
from tuner.experiment.outcome import ended_because
from tuner.experiment.trial import Trial
from tuner.inspection.checkpoints import sites
from tuner.retention.explain import reasons_to_keep
from tuner.retention.rules import policy_of_settings
from tuner.ui.checked import NOT_LOOKED_AT, FoundFiles
from tuner.ui.seen import Seen
from tuner.ui.trial_columns import STATES, cell
from tuner.ui.trial_story import TrialStory
from tuner.ui.views.orders import columns_of

RESULTS = 10_000
_SHELF = (
    *("name", "iteration", "saved_at", "bytes", "fate", "why", "here", "copies", "verified", "pinned", "tags"),
    *("gone_at", "value", "download", "checked", "verified_at", "problem", "verify"),
)
_DECISIONS = ("at", "iteration", "then", "kind", "by", "metric", "value", "rank", "of", "cut", "said")
_ATTEMPTS = ("number", "generation", "started_at", "ended_at", "why", "iteration", "from", "error")


def trial_page(seen: Seen, trial_id: str, story: TrialStory, found: Mapping[str, FoundFiles]) -> dict[str, Any]:
    """All of it. Raises ExperimentNotFoundError.

    Args:
        found: what is known of the files of its checkpoints, by name.
    """
    table = seen.picture.table
    row = table.row_of.get(trial_id)
    if row is None:
        raise ExperimentNotFoundError(f"there is no trial {trial_id!r:.200}")
    head = {**seen.head, "id": trial_id, "index": table.integers["index"][row], "name_of": table.names[row]}
    head |= {"state": STATES[table.states[row]], "said": table.said[row], "problem": table.problems.get(row)}
    told = _told(story)
    try:
        trial = seen.picture.state.trial(trial_id)
    except UNREADABLE as damage:
        return head | _empty() | told | {"problem": said(damage), "checkpoints": _columns(_SHELF, [])}
    problems: list[str] = []
    parts = [_config(seen, trial, problems), _last(trial, problems), _shelf(seen, trial, story, found, problems)]
    parts += [_files(seen, trial), _orders(seen, trial)]
    error = trial.error
    facts = {
        "reason": ended_because(trial),
        "iteration": trial.iteration,
        "attempt": trial.attempt,
        "failures": trial.num_failures,
        "held": trial.held,
        "path": child_of(seen.live.source.address, trial.dirname),
        "notes": {"at": [note.at for note in trial.notes], "text": [note.text for note in trial.notes]},
        "error": None if error is None else f"{error.type}: {error.message}",
        "traceback": "" if error is None else error.traceback,
        "problems": problems,
    }
    made: dict[str, Any] = head | told | facts
    for part in parts:
        made |= part
    return made


def _empty() -> dict[str, Any]:
    """What is said of a trial that cannot be read."""
    nothing: dict[str, Any] = dict.fromkeys(("reason", "parent", "error", "path"))
    nothing |= {"iteration": 0, "attempt": 0, "failures": 0, "held": False, "config": {}, "searched": [], "last": {}}
    nothing |= {"changed": _columns(("key", "before", "after"), []), "notes": {"at": [], "text": []}, "traceback": ""}
    nothing |= {"files": _columns(("name", "bytes", "address"), []), "files_note": None}
    nothing |= {"orders": columns_of([]), "problems": []}
    return nothing


def _columns(names: tuple[str, ...], rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row.get(name) for row in rows] for name in names}


def _told(story: TrialStory) -> dict[str, Any]:
    points, void = story.points[-RESULTS:], story.void[-RESULTS:]
    names = dict.fromkeys(name for point in points for name in point.values)
    return {
        "results": {
            "iteration": [point.iteration for point in points],
            "time": [point.time for point in points],
            "at": [point.at for point in points],
            "void": [int(flag) for flag in void],
            "values": {name: [point.values.get(name) for point in points] for name in names},
        },
        "decisions": _columns(_DECISIONS, story.decisions),
        "attempts": _columns(_ATTEMPTS, story.attempts),
        "whole": story.is_whole,
    }


def _config(seen: Seen, trial: Trial, problems: list[str]) -> dict[str, Any]:
    parent, changed = None, []
    clones = trial.clones
    if clones:
        newest = clones[-1]
        known = seen.picture.table.row_of.get(newest.donor.trial_id)
        index = None if known is None else seen.picture.table.integers["index"][known]
        parent = {
            "id": newest.donor.trial_id,
            "index": index,
            "checkpoint": newest.donor.name,
            "iteration": newest.donor.iteration,
        }
        changed = [{"key": key, "before": cell(was), "after": cell(now)} for key, (was, now) in newest.changed.items()]
    config: dict[str, Any] = {}
    searched: list[str] = []
    try:
        loaded = tagged.loads(bytes(trial.raw_config))
        config = {str(key): cell(value) for key, value in flatten(loaded if isinstance(loaded, dict) else {}).items()}
        searched = list(trial.evaluated_params)
    except UNREADABLE as error:
        problems.append(f"its config cannot be read: {said(error)}")
    return {
        "config": config,
        "searched": searched,
        "parent": parent,
        "changed": _columns(("key", "before", "after"), changed),
    }


def _last(trial: Trial, problems: list[str]) -> dict[str, Any]:
    try:
        return {"last": {str(key): cell(value) for key, value in flatten(trial.last_result).items()}}
    except UNREADABLE as error:
        problems.append(f"its result cannot be read: {said(error)}")
        return {"last": {}}


def _shelf(
    seen: Seen, trial: Trial, story: TrialStory, found: Mapping[str, FoundFiles], problems: list[str]
) -> dict[str, Any]:
    """Its checkpoints, the oldest first: those that are kept as the state has them, those that went as facts tell."""
    settings = seen.picture.settings
    rows = {name: dict(row) for name, row in story.checkpoints.items()}
    reasons: dict[Any, list[str]] = {}
    try:
        policy, others = policy_of_settings(settings)
        reasons = reasons_to_keep(trial.checkpoints, policy)
    except UNREADABLE as error:
        problems.append(f"why checkpoints are kept cannot be told: {said(error)}")
        others = []
    values = {point.iteration: point.values.get(seen.metric or "") for point in story.points}
    for record in trial.checkpoints:
        why = [*(reasons.get(record.order) or others), *(["pinned"] if record.pinned else []), *record.tags]
        rows[record.ref.name] = {
            "name": record.ref.name,
            "iteration": record.iteration,
            "saved_at": record.saved_at,
            "bytes": record.bytes,
            "fate": "kept",
            "why": ", ".join(why),
            "here": record.here,
            "copies": sites(record, settings),
            "pinned": record.pinned,
            "tags": record.tags,
            "order": record.order,
            "value": _value(seen, record),
            "download": _download(seen, trial, record.ref.name) if seen.live.source.holds(trial, record) else None,
            "verify": _verify(seen, trial, record.ref.name) if record.here else None,
            **found.get(record.ref.name, NOT_LOOKED_AT).told,
        }
    gone = {"here": False, "copies": [], "pinned": False, "tags": []}
    ordered = sorted(rows.values(), key=lambda row: row["order"])
    shelf = [{**gone, **row} for row in ordered]
    for row in shelf:
        if row.get("value") is None:
            row["value"] = values.get(row["iteration"])
    return {"checkpoints": _columns(_SHELF, shelf)}


def _value(seen: Seen, record: Any) -> float | None:
    try:
        return None if seen.metric is None else as_score(lookup(record.metrics, seen.metric))
    except UNREADABLE:
        return None


def _download(seen: Seen, trial: Trial, name: str) -> str:
    parts = (seen.live.name, trial.trial_id, name)
    return "e/{}/checkpoints/{}/{}.tar".format(*(quote(part, safe="") for part in parts))


def _verify(seen: Seen, trial: Trial, name: str) -> str | None:
    """Where every hash of it is looked at."""
    if not seen.live.source.is_local or seen.at is not None:
        return None
    parts = (seen.live.name, trial.trial_id, name)
    return "e/{}/verify/{}.json?checkpoint={}".format(*(quote(part, safe="") for part in parts))


def _files(seen: Seen, trial: Trial) -> dict[str, Any]:
    source = seen.live.source
    found = source.logs(trial)
    base = f"e/{quote(seen.live.name, safe='')}/files/{quote(trial.trial_id, safe='')}"
    rows = [{"name": name, "bytes": size, "address": f"{base}/{name}"} for name, size in found.items()]
    return {"files": _columns(("name", "bytes", "address"), rows), "files_note": source.files_note}


def _orders(seen: Seen, trial: Trial) -> dict[str, Any]:
    called = {trial.trial_id, trial.name, trial.dirname, str(trial.index), "all"}
    every = columns_of(seen.picture.state.orders.items())
    chosen = [row for row, about in enumerate(every["trial"]) if str(about).partition("@")[0] in called]
    return {"orders": {name: [values[row] for row in chosen] for name, values in every.items()}}
