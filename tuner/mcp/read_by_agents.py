"""What agents read of one experiment: short, paged, with all that others wrote marked as data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tuner.error import ToolError
from tuner.experiment.outcome import ENDS, WORDS
from tuner.experiment.trial import Trial
from tuner.inspection.trial_diff import AUTOMATIC
from tuner.mcp.marked import NAMES, clean, marked, name, unmarked, value, values
from tuner.mcp.paging import Page
from tuner.ui.seen import Seen
from tuner.ui.trial_columns import STATES
from tuner.ui.trial_story import TrialStory, story_of
from tuner.ui.views.overview import overview as whole_overview
from tuner.ui.views.trial_page import trial_page

METRICS = 8
"""Metrics of a trial in a list."""
LONG = 2_000
"""Characters of a text that was asked for."""
SECTIONS = ("results", "checkpoints", "attempts", "notes", "error", "config")
_CHECKPOINT = ("iteration", "bytes", "fate", "why", "pinned", "tags", "value", "copies")


def overview(seen: Seen, called: str) -> dict[str, Any]:
    """How an experiment stands.

    Args:
        called: its name, as it is given back.
    """
    told = whole_overview(seen)
    best = told["best"]
    made: dict[str, Any] = {
        "experiment": called,
        "path": marked(told["path"]),
        "state": state_of(told["state"]),
        "liveness": told["liveness"],
        "what_next": [marked(line) for line in told["hint"]],
        "goals": [{"metric": name(goal["metric"]), "mode": goal["mode"]} for goal in told["goals"]],
        "parameters": [name(key) for key in told["parameters"][:NAMES]],
        "metrics": [name(key) for key in told["metrics"][:NAMES]],
        "trials": told["trials"],
        "trials_planned": told["total"],
        "by_state": {WORDS[state]: number for state, number in told["counts"].items() if number},
        "best": None if best is None else best_of(best),
        "elapsed_s": round(told["elapsed_s"], 1),
        "left": None if told["left_said"] is None else clean(told["left_said"]),
        "checkpoints": {key: told["checkpoints"][key] for key in ("kept", "bytes", "pinned")},
        "failed": told["failed"],
        "warnings": told["warnings"],
    }
    if told["failures"]["id"]:
        made["newest_failure"] = {"trial": told["failures"]["index"][0], "said": marked(told["failures"]["said"][0])}
    if told["last_warning"]:
        made["last_warning"] = marked(told["last_warning"])
    if told["error"]:
        made["ended_by"] = marked(told["error"])
    if told["problems"] or told["trouble"]:
        made["problems"] = [marked(line) for line in [*told["problems"][:3], told["trouble"]] if line]
    return made


def state_of(text: str) -> str:
    """The state of a run in words, which may name a host; a journal of others says what it likes."""
    return text if text in ENDS.values() else marked(text)


def best_of(best: Mapping[str, Any]) -> dict[str, Any]:
    """The best trial, of what the page has of it."""
    checkpoint = best["checkpoint"]
    return {
        "trial": best["index"],
        "value": best["said"] if best["value"] is None else best["value"],
        "iteration": best["iteration"],
        "state": WORDS[best["state"]],
        "config": values({key: one for key, one in best["config"].items() if one is not None}),
        "checkpoint": None if checkpoint is None else f"{best['index']}@{checkpoint['iteration']}",
    }


# --- the table --------------------------------------------------------------------------------------------------


def trials(
    seen: Seen, page: Page, *, sort: str, metric: str | None, mode: str | None, state: str | None
) -> dict[str, Any]:
    """A page of trials.

    Args:
        sort: "best", "newest", "oldest".
        metric, mode: by which they are best; None: the experiment's own.
        state: only these, as `outcome.WORDS` has it.
    """
    table = seen.picture.table
    rows = np.arange(len(table))
    if state is not None:
        wanted = next(code for code, each in enumerate(STATES) if WORDS[each] == state)
        rows = rows[np.array(table.states)[rows] == wanted]
    metric = seen.metric if metric is None else unmarked(metric)
    if sort == "best":
        rows = _best_first(seen, rows, metric, mode)
    elif sort == "newest":
        rows = rows[::-1]
    shown, cursor = page.of(rows.tolist())
    told = {"sorted_by": f"{sort}: {name(metric)}" if sort == "best" and metric else sort, "matching": len(rows)}
    return told | {"trials": [_row(seen, row, metric) for row in shown], "cursor": cursor}


def _best_first(seen: Seen, rows: Any, metric: str | None, mode: str | None) -> Any:
    table = seen.picture.table
    if metric is None:
        return rows
    column = table.last.columns.get(metric)
    if column is None:
        if metric == seen.metric:
            return rows  # no result yet
        there = ", ".join(name(key) for key in table.metrics[:NAMES])
        raise ToolError(f"metric={metric!r:.80} is not accepted; there are {there or 'none yet'}")
    column.extend_to(len(table))
    numbers = column.numbers()[rows]
    mode = mode or (seen.mode if metric == seen.metric else "min")
    order = np.argsort(-numbers if mode == "max" else numbers, kind="stable")  # NaN comes last
    return rows[order]


def _row(seen: Seen, row: int, metric: str | None) -> dict[str, Any]:
    table = seen.picture.table
    goals = list(dict.fromkeys([*([metric] if metric else []), *table.goals]))
    names = [*goals, *(key for key in table.last.columns if key not in goals)]
    last = {key: _number(table.last.columns[key], row) for key in names if key in table.last.columns}
    last = {key: one for key, one in last.items() if one is not None}
    config = {key: column.get(row) for key, column in table.config.columns.items()}
    told = {
        "trial": table.integers["index"][row],
        "state": WORDS[STATES[table.states[row]]],
        "iteration": table.integers["iteration"][row],
        "last": values(last, METRICS),
        "config": values({key: one for key, one in config.items() if one is not None}, METRICS * 2),
        "why": marked(table.said[row]),
    }
    problem = table.problems.get(row)
    return told | ({"problem": marked(problem)} if problem else {})


def _number(column: Any, row: int) -> Any:
    """A cell; infinities too, which the page does not have."""
    found = column.get(row)
    if found is None and column.is_numeric and row < len(column):
        number = float(column.numbers()[row])
        return number if number == number else None
    return found


def row_of(seen: Seen, given: str | int) -> int:
    """The row of the trial of that number, id or name. Raises ToolError."""
    table, wanted = seen.picture.table, unmarked(str(given)).strip()
    if wanted.isdecimal() and wanted.isascii():
        found = np.flatnonzero(np.array(table.integers["index"]) == int(wanted[:18]))
        if len(found):
            return int(found[0])
    if wanted in table.row_of:
        return table.row_of[wanted]
    if wanted in table.names:
        return table.names.index(wanted)
    raise ToolError(f"there is no trial {clean(wanted)!r:.80}; there are {len(table)}, by their number from 0")


# --- one trial --------------------------------------------------------------------------------------------------


def story(seen: Seen, trial_id: str) -> TrialStory:
    return story_of(seen.live.index().facts(trial_id), seen.at)


def page_of(seen: Seen, row: int) -> dict[str, Any]:
    """All that the page has of a trial; its history is read for it."""
    trial_id = seen.picture.table.ids[row]
    return trial_page(seen, trial_id, story(seen, trial_id), {})


def trial(seen: Seen, row: int) -> dict[str, Any]:
    """What a trial is and has come to, briefly; `section` has more."""
    told, table = page_of(seen, row), seen.picture.table
    shelf = _rows(told["checkpoints"])
    kept = [one for one in shelf if one["fate"] == "kept"]
    last = {key: one for key, one in told["last"].items() if key not in AUTOMATIC and not key.startswith("config/")}
    config = {key: one for key, one in told["config"].items() if key in (told["searched"] or told["config"])}
    made: dict[str, Any] = {
        "trial": told["index"],
        "id": name(told["id"]),
        "name": name(told["name_of"]),
        "state": WORDS[told["state"]],
        "why": marked(told["reason"] or told["said"]),
        "iteration": told["iteration"],
        "config": values(config),
        "last": values(_own_first(last, table.metrics), METRICS * 2),
        "attempts": len(told["attempts"]["number"]),
        "failures": told["failures"],
        "began_from": began_from(told),
        "checkpoints": {"kept": [f"{told['index']}@{one['iteration']}" for one in kept[-METRICS:]], "all": len(shelf)},
        "notes": len(told["notes"]["text"]),
        "files": dict(zip(told["files"]["name"], told["files"]["bytes"], strict=True)),
        "sections": list(SECTIONS),
    }
    if told["error"]:
        made["error"] = marked(told["error"])
    if told["notes"]["text"]:
        made["last_note"] = marked(told["notes"]["text"][-1])
    problems = [told.get("problem"), *told["problems"]]
    return made | ({"problems": [marked(one) for one in problems if one]} if any(problems) else {})


def _own_first(last: Mapping[str, Any], metrics: list[str]) -> dict[str, Any]:
    """A result with the metrics first, and what is added to each of them last."""
    known = [key for key in metrics if key in last]
    return {key: last[key] for key in known} | {key: one for key, one in last.items() if key not in known}


def began_from(told: Mapping[str, Any]) -> dict[str, Any] | None:
    """The other trial's checkpoint that a trial was forked or cloned from; None: it began with nothing."""
    parent = told.get("parent")
    if parent is None:
        return None
    donor = name(parent["id"]) if parent["index"] is None else parent["index"]
    return {
        "trial": donor,
        "checkpoint": f"{donor}@{parent['iteration']}",
        "changed": {
            name(key): [value(was), value(now)]
            for key, was, now in zip(*(told["changed"][part] for part in ("key", "before", "after")), strict=True)
        },
    }


def section(seen: Seen, row: int, which: str, page: Page, metric: str | None) -> dict[str, Any]:
    """A page of one part of a trial, the newest first, but for the config."""
    told = page_of(seen, row)
    head = {"trial": told["index"], "section": which}
    if which == "error":
        text = clean("\n".join(filter(None, (told["error"], told["traceback"]))))
        shown, cursor = page.text(text, LONG)
        return head | {"error": marked(shown, LONG) if text else None, "characters": len(text), "cursor": cursor}
    if which == "config":
        keys, cursor = page.of(list(told["config"]))
        return head | {"config": values({key: told["config"][key] for key in keys}), "cursor": cursor}
    if which == "notes":
        rows = [{"at": at, "text": marked(text, LONG)} for at, text in _reversed(told["notes"], "at", "text")]
    elif which == "results":
        rows = _results(seen, told, metric)
    elif which == "attempts":
        rows = [attempt(told, one) for one in reversed(_rows(told["attempts"]))]
    else:
        rows = [checkpoint(told, one) for one in reversed(_rows(told["checkpoints"]))]
    part, cursor = page.of(rows)
    return head | {which: part, "in_all": len(rows), "cursor": cursor}


def _results(seen: Seen, told: Mapping[str, Any], metric: str | None) -> list[dict[str, Any]]:
    found, every = told["results"], told["results"]["values"]
    wanted = unmarked(metric) if metric else None
    if wanted is not None and wanted not in every:
        there = ", ".join(name(key) for key in list(every)[:NAMES])
        raise ToolError(f"metric={wanted!r:.80} is not accepted; there are {there or 'none yet'}")
    goals = [one for one in seen.picture.goal.metrics if one in every]
    names = [wanted] if wanted else [*goals, *(one for one in every if one not in goals)][:METRICS]
    rows = []
    for at in reversed(range(len(found["iteration"]))):
        row = {"iteration": found["iteration"][at], "time_s": found["time"][at]}
        row |= {name(one): value(every[one][at]) for one in names if every[one][at] is not None}
        rows.append(row | ({"void": True} if found["void"][at] else {}))
    return rows


def attempt(told: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    made = {key: row[key] for key in ("number", "generation", "started_at", "ended_at", "iteration")}
    made["ended"] = None if row["why"] is None else name(row["why"])
    made["from"] = None if row["from"] is None else name(row["from"])
    return made | ({"error": marked(row["error"])} if row["error"] else {})


def checkpoint(told: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    made = {"checkpoint": f"{told['index']}@{row['iteration']}", "bytes": row["bytes"], "fate": row["fate"]}
    made |= {"why": marked(row["why"] or ""), "value": value(row["value"])}
    if row["pinned"]:
        made |= {"pinned": True, "tags": [name(tag) for tag in row["tags"] or ()]}
    return made | ({"copies": [marked(site) for site in row["copies"]]} if row["copies"] else {})


def why(seen: Seen, row: int, page: Page) -> dict[str, Any]:
    """Why a trial has ended, was stopped, paused or goes on from elsewhere: what decided, and by which numbers."""
    told = page_of(seen, row)
    decisions, cursor = page.of(list(reversed(_rows(told["decisions"]))))
    attempts = _rows(told["attempts"])
    return {
        "trial": told["index"],
        "state": WORDS[told["state"]],
        "why": marked(told["reason"] or told["said"]),
        "error": marked(told["error"]) if told["error"] else None,
        "decisions": [_decision(one) for one in decisions],
        "began_from": began_from(told),
        "last_attempt": attempt(told, attempts[-1]) if attempts else None,
        "held_by_user": told["held"],
        "orders": _orders(told["orders"]),
        "cursor": cursor,
    }


def _decision(row: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {"iteration": row["iteration"], "then": row["then"], "said": marked(row["said"])}
    made |= {key: name(row[key]) for key in ("kind", "by", "metric") if row[key] is not None}
    return made | {key: value(row[key]) for key in ("value", "cut", "rank", "of") if row[key] is not None}


def _orders(found: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    """The newest orders about it."""
    rows = list(zip(found["id"], found["word"], found["state"], found["why"], strict=True))[-5:]
    return [
        {"id": name(one), "order": name(word), "state": state, "why": marked(why)} for one, word, state, why in rows
    ]


def _rows(columns: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    names = list(columns)
    return [dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _reversed(columns: Mapping[str, list[Any]], *names: str) -> list[tuple[Any, ...]]:
    return list(zip(*(columns[one] for one in names), strict=True))[::-1]


def named(seen: Seen, row: int) -> Trial:
    """The trial of a row, as the state has it."""
    found: Trial = seen.picture.state.trial(seen.picture.table.ids[row])
    return found
