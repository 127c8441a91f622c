"""The tools, as functions of the door and what was asked: each returns one line in words, and the data."""

from __future__ import annotations

import os
from typing import Any

from tuner.error import ExperimentNotFoundError, ToolError
from tuner.experiment import driver_log
from tuner.experiment.hostile import UNREADABLE, said
from tuner.experiment.outcome import WORDS
from tuner.experiment.replacing import standing
from tuner.inspection.trial_diff import trial_rows
from tuner.mcp import asked
from tuner.mcp import read_by_agents as reading
from tuner.mcp.agent_door import AgentDoor, lives
from tuner.mcp.marked import clean, marked, name, value
from tuner.mcp.paging import Page
from tuner.mcp.starts import Request
from tuner.ui.seen import Seen
from tuner.ui.views.overview import brief

Told = tuple[str, dict[str, Any]]


def experiments(door: AgentDoor, given: asked.AskedExperiments) -> Told:
    page, rows = Page(given.cursor, given.limit), []
    every: list[Any] = [*door.all_begun(), *door.all()]
    shown, cursor = page.of(every)
    for live in shown:
        if isinstance(live, str):
            rows.append(_begun(door, live) or {"experiment": live, "state": "starting"})
            continue
        row: dict[str, Any] = {"experiment": door.called(live)}
        if row["experiment"] != live.name:
            row["called"] = marked(live.name)
        try:
            with door.looked_at(live) as seen:
                told = brief(seen)
                row |= {
                    "state": reading.state_of(told["state"]),
                    "trials": told["trials"],
                    "started_at": told["started_at"],
                }
        except UNREADABLE as error:
            row["problem"] = marked(said(error))
        rows.append(row)
    data: dict[str, Any] = {"experiments": rows, "in_all": len(every), "cursor": cursor, "may": _may(door)}
    if problems := door.places.problems():
        data["problems"] = [marked(line) for line in problems[:3]]
    return f"{len(every)} experiments", data


def _may(door: AgentDoor) -> dict[str, Any]:
    """What an agent may do here."""
    may: dict[str, Any] = {"order": door.how.allow_orders, "start": []}
    for called, described in door.starts.configs.items():
        settings = described.said
        may["start"].append(
            {
                "config": name(called),
                "num_samples": settings.get("num_samples", 1),
                "space": {name(key): marked(domain) for key, domain in (settings.get("param_space") or {}).items()},
            }
        )
    if door.how.allow_orders or may["start"]:
        may["budget"] = door.budget.told()
    return may


def overview(door: AgentDoor, given: asked.AskedOverview) -> Told:
    if (data := _begun(door, given.experiment)) is not None:
        return data["state"], data
    live = door.experiment(given.experiment)
    with door.looked_at(live) as seen:
        data = reading.overview(seen, door.called(live))
    data["may_order"] = door.how.allow_orders
    return f"{data['trials']} trials, {clean(data['liveness'])}", data


def _begun(door: AgentDoor, given: str) -> dict[str, Any] | None:
    """Of what was started and has no journal yet."""
    found = door.begun(given)
    if found is None:
        return None
    ledger, record = found
    if ledger.is_owned(record.name):
        return {"experiment": record.name, "state": "starting", "liveness": "running"}
    printed = marked(door.printed(given) or "", reading.LONG)
    hint = "`start` with the same id tries again"
    return {
        "experiment": record.name,
        "state": "not started",
        "liveness": "ended",
        "printed": printed,
        "what_next": hint,
    }


def trials(door: AgentDoor, given: asked.AskedTrials) -> Told:
    with door.looked_at(door.experiment(given.experiment)) as seen:
        page = Page(given.cursor, given.limit)
        data = reading.trials(seen, page, sort=given.sort, metric=given.metric, mode=given.mode, state=given.state)
    return f"{len(data['trials'])} of {data['matching']} trials", data


def trial(door: AgentDoor, given: asked.AskedOneTrial) -> Told:
    with door.looked_at(door.experiment(given.experiment)) as seen:
        row = reading.row_of(seen, given.trial)
        if given.section is None:
            data = reading.trial(seen, row)
            return f"trial {data['trial']}: {data['state']}", data
        page = Page(given.cursor, given.limit)
        data = reading.section(seen, row, given.section, page, given.metric)
    return f"{given.section} of trial {data['trial']}", data


def why(door: AgentDoor, given: asked.AskedWhy) -> Told:
    with door.looked_at(door.experiment(given.experiment)) as seen:
        data = reading.why(seen, reading.row_of(seen, given.trial), Page(given.cursor, given.limit))
    return f"trial {data['trial']}: {data['state']}", data


def diff(door: AgentDoor, given: asked.AskedDiff) -> Told:
    one, other = door.experiment(given.experiment), door.experiment(given.b_experiment or given.experiment)
    with door.looked_at(one) as seen:
        a = reading.named(seen, reading.row_of(seen, given.a))
    with door.looked_at(other) as seen:
        b = reading.named(seen, reading.row_of(seen, given.b))
    rows, cursor = Page(given.cursor, given.limit).of(found := list(trial_rows(a, b)))
    told = [
        {"in": row.section, "name": name(row.name), "a": value(row.values[0]), "b": value(row.values[1])}
        | ({"by": value(row.largest)} if row.largest is not None else {})
        for row in rows
    ]
    data = {"a": a.index, "b": b.index, "same": not found, "differences": told, "in_all": len(found), "cursor": cursor}
    return f"{len(found)} differences", data


# --- logs -------------------------------------------------------------------------------------------------------


def logs(door: AgentDoor, given: asked.AskedLogs) -> Told:
    if given.trial is None and given.file in ("stdout", "stderr", "error.txt"):
        raise ToolError(f"file={given.file!r} is of a trial: say which")
    if given.trial is None and given.file == "driver":
        text = door.printed(given.experiment)
        if text is None:
            raise ToolError("what its driver printed is known of experiments that were started here")
        return "what its driver printed", {"text": marked(text, given.characters), "cursor": None}
    live = door.experiment(given.experiment)
    with door.looked_at(live) as seen:
        if given.trial is None:
            return _warnings(seen, given)
        trial = reading.named(seen, reading.row_of(seen, given.trial))
        files = live.source.logs(trial)
        file = given.file or next((one for one in ("stdout", "stderr", "error.txt") if files.get(one)), None)
        if file is None or file not in files:
            there = {"files": files, "text": None, "cursor": None}
            return "it has printed nothing" if not any(files.values()) else "there is no such file", there
        fd = live.source.open_log(trial, file)
    return f"{file} of trial {trial.index}", {"files": files, "file": file, **_end_of(fd, given)}


def _end_of(fd: int, given: asked.AskedLogs) -> dict[str, Any]:
    """The last characters of a file, or those before a cursor, in bytes."""
    try:
        size = os.fstat(fd).st_size
        end = size if not given.cursor else min(Page(given.cursor).start, size)
        start = max(end - given.characters, 0)
        data = os.pread(fd, end - start, start)
    except OSError as error:
        raise ExperimentNotFoundError(f"it cannot be read: {error.strerror}") from error
    finally:
        os.close(fd)
    text = data.decode("utf-8", "replace")
    return {
        "text": marked(text, given.characters),
        "bytes": [start, end],
        "of": size,
        "cursor": str(start) if start else None,
    }


def _warnings(seen: Seen, given: asked.AskedLogs) -> Told:
    lines = [str(line) for line in driver_log.read(standing(seen.live.source.paths)) if line.is_warning]
    page = Page(given.cursor, 20)
    shown, cursor = page.of(lines[::-1])
    data = {"warnings": [marked(line, reading.LONG // 4) for line in shown], "in_all": len(lines), "cursor": cursor}
    return f"{len(lines)} warnings of its drivers", data


# --- doing ------------------------------------------------------------------------------------------------------


def order(door: AgentDoor, given: asked.AskedOrder) -> Told:
    live = door.experiment(given.experiment)
    made = door.order(live, given.order, given.id)
    made.wait(given.wait_s)
    answer = made.answer
    data: dict[str, Any] = {"id": name(given.id), "state": answer.state.value, "why": marked(answer.why)}
    with door.looked_at(live) as seen:
        trial = door.made_by(seen, given.id)
    if trial is not None:
        data["trial"] = trial
    return answer.state.value, data


def start(door: AgentDoor, given: asked.AskedStart) -> Told:
    request = Request(given.config, given.id, given.num_samples, given.space)
    record, root, new = door.start(request)
    begun = _begun(door, record.name)
    data: dict[str, Any] = {"experiment": record.name, "new": new, "trials_planned": record.trials}
    data |= {"path": marked(root)} | ({} if begun is None else begun)
    if begun is None:
        door.all()
        with door.looked_at(door.experiment(record.name)) as seen:
            data |= {
                "state": reading.state_of(brief(seen)["state"]),
                "liveness": "running" if lives(seen.live) else "ended",
            }
    return ("started" if new else "it was started before, with this id"), data | {"budget": door.budget.told()}


def progress(door: AgentDoor, given: asked.AskedWait, known: dict[str, Any]) -> tuple[bool, dict[str, Any]]:
    """Whether it is what was waited for, and how far it is.

    Args:
        known: what was found the first time, {} then.
    """
    if (data := _begun(door, given.experiment)) is not None:
        return data["state"] != "starting", data
    live = door.experiment(given.experiment)
    with door.looked_at(live) as seen:
        table, state = seen.picture.table, seen.picture.state
        counts = table.counts()
        ended = counts["TERMINATED"] + counts["ERROR"]
        best = table.best()
        data = {
            "experiment": door.called(live),
            "liveness": "running" if lives(live) else "ended",
            "state": reading.state_of(brief(seen)["state"]),
            "trials": len(table),
            "trials_planned": state.planned(seen.picture.settings.get("trials_in_all")),
            "by_state": {WORDS[one]: number for one, number in counts.items() if number},
        }
        if best is not None and seen.metric is not None:
            column = table.last.columns[seen.metric]
            data["best"] = {"trial": table.integers["index"][best], "value": value(float(column.numbers()[best]))}
        over = not lives(live) and not live.source.is_local or not _driven(door, live)
        known.setdefault("ended", ended)
        if given.until == "trial_ended":
            row = reading.row_of(seen, "" if given.trial is None else given.trial)
            data["trial"] = {"trial": table.integers["index"][row], "said": marked(table.said[row])}
            return bool(reading.named(seen, row).is_finished()) or over, data
        if given.until == "next":
            return ended > known["ended"] or over, data
    if given.until == "ordered":
        answer = door.answer(live, given.order or "")
        data["order"] = {"state": answer.state.value, "why": marked(answer.why)}
        return answer.state.value in ("done", "refused"), data
    return over, data


def _driven(door: AgentDoor, live: Any) -> bool:
    """Whether somebody runs it, or is about to."""
    started = door.record_of(live)
    return lives(live) or (started is not None and started[0].is_owned(started[1].name))
