"""Judges what an experiment has left: `judge(seen, there)` names each rule that was broken, one line each.

It shares no code with the packages. The rules are those of design.md, sections 5 and 6.
"""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import journal_by_hand
from checkpoints_by_hand import Held, best, read_all
from journal_by_hand import Fact, History
from lives import Seen
from plans import STOPPING

_KNOWN = re.compile(
    r"experiment\.json|generations/(\d{6,}\.(json|processes|beat)|lock)|journal(/history/.*|/[\w.-]+)|blobs/[0-9a-f]{64}"
    r"|driver\.log(\.1)?|orders|pbt_(global|policy_[\w-]+)\.txt"
    r"|[A-Za-z0-9_][\w.-]{0,59}/(trial\.json|params\.json|result\.json|progress\.csv|events\.out\.tfevents.*|error\.txt"
    r"|error_recovered\.txt|stdout|stderr|checkpoint_\d{6,}(-\d+\.\d+(\.\d+)?)?/.*)"
)
_BLAME = re.compile(r"Traceback \(most recent call last\)|never looks at|did you mean|(Resource|Deprecation)Warning")


def judge(seen: Seen, there: Path | None) -> list[str]:
    """The rules that are broken; `there` is a copy of what the replica holds."""
    flags = list(seen.flags)
    if any(life.hung for life in seen.lives):
        return flags
    books = sorted((seen.base / "books").iterdir())
    history = journal_by_hand.read(seen.root / "journal", *_since_lost(seen, books))
    flags += [f"journal: {problem}" for problem in history.problems]
    flags += _check_trials(seen, history, there)
    flags += _check_left(seen)
    flags += _check_output(seen)
    if there is not None:
        flags += _check_replica(seen, there)
    return flags


def _since_lost(seen: Seen, books: list[Path]) -> list[Path]:
    """Books of lives whose disk was lost later may hold what nobody took over."""
    last = max((life.number for life in seen.lives if life.lost), default=0)
    return [path for path in books if int(path.name) > last]


# --- trials ---------------------------------------------------------------------------------------------------


def rows_of(directory: Path) -> list[dict[str, Any]]:
    path = directory / "result.json"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def told_of(seen: Seen) -> list[dict[str, Any]]:
    path = seen.base / "told"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _check_trials(seen: Seen, history: History, there: Path | None) -> list[str]:
    plan, flags = seen.plan, []
    described, problems = _described(seen.root)
    flags += problems
    path = seen.base / "found.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    if not len(described) == len(found) == plan.trials:
        flags.append(f"{plan.trials} trials were asked for, {len(described)} lie there, {len(found)} are returned")
    drawn = {json.dumps(fact["config"]) for fact in history.kind("created")}
    if history.whole and len(drawn) != plan.trials:
        flags.append(f"{len(drawn)} different configs were drawn for {plan.trials} trials")
    told = told_of(seen)
    flags += [f"a trial was given a torn checkpoint: {what}" for what in told if what["kind"] == "torn"]
    for directory, trial in sorted(described.items()):
        facts, steps = history.of(trial), [what for what in told if what.get("trial") == trial]
        mine = _check_rows(seen, trial, directory, facts, told)
        if found.get(trial, {}).get("status") != "TERMINATED":
            mine.append(f"is {found.get(trial)}")
        if history.whole:
            mine += _check_facts(facts, len(rows_of(directory)))
            mine += _check_stop(seen, facts, steps)
            mine += _check_kept(seen, directory, facts, there)
        flags += [f"{directory.name}: {flag}" for flag in mine]
    return flags


def _described(root: Path) -> tuple[dict[Path, str], list[str]]:
    """Directory of each trial -> its id, as the files in it say."""
    described, problems = {}, []
    for path in sorted(path for path in root.iterdir() if path.is_dir() and re.search(r"_\d{5}$", path.name)):
        for file in ("trial.json", "params.json"):
            try:
                json.loads((path / file).read_text())
            except (OSError, ValueError) as error:
                problems.append(f"{path.name}/{file} cannot be read: {error}")
        described[path] = path.name.partition("_")[2]
    return described, problems


def _check_rows(seen: Seen, trial: str, directory: Path, facts: list[Fact], told: list[dict[str, Any]]) -> list[str]:
    """Iterations 1 to n once each, in order; each step built on the one before, and done by this trial."""
    plan, flags = seen.plan, []
    try:
        rows = rows_of(directory)
    except ValueError as error:
        return [f"result.json cannot be read: {error}"]
    counted = [row.get("training_iteration") for row in rows]
    if counted != list(range(1, len(rows) + 1)):
        return [f"result.json has the iterations {counted}"]
    last = [fact for fact in facts if fact["kind"] == "result"][-1:]
    ended = [fact.get("reason", {}) for fact in facts if fact["kind"] == "ended"][-1:]
    stopped = any(verdict.get("then", "continue") != "continue" for verdict in last) or any(
        reason.get("kind") == "worse" and reason.get("iteration") == len(rows)
        for reason in ended  # it waited
    )
    if len(rows) != plan.iterations and not (plan.scheduler in STOPPING and stopped and len(rows) < plan.iterations):
        flags.append(f"has {len(rows)} of {plan.iterations} iterations, and its last verdict is {last}")
    if rows:
        with open(directory / "progress.csv", newline="") as file:
            table = list(csv.DictReader(file))
        if [(row["training_iteration"], row["chain"]) for row in table] != [
            (str(row["training_iteration"]), row["chain"]) for row in rows
        ]:
            flags.append(f"progress.csv has {[row['training_iteration'] for row in table]}, result.json {counted}")
    done = {(what["chain"]) for what in told if what["kind"] == "step" and what["trial"] == trial}
    flags += [f"iteration {row['training_iteration']} was never done" for row in rows if row["chain"] not in done]
    prev = ""
    for row in rows:
        if row["prev"] != prev and not _cloned(row, facts, told):
            flags.append(f"iteration {row['training_iteration']} is not built on the one before: {row['prev']} {prev}")
        prev = row["chain"]
    clone = any(fact["kind"] == "exploited" for fact in facts)
    if not clone and any(row["n"] != row["training_iteration"] for row in rows):
        flags.append(f"the trial counts {[row['n'] for row in rows]}")
    return flags


def _cloned(row: dict[str, Any], facts: list[Fact], told: list[dict[str, Any]]) -> bool:
    """Whether the iteration is the first one after a clone's start, and built on the donor's checkpoint."""
    before = row["training_iteration"] - 1
    donors = [fact["checkpoint"] for fact in facts if fact["kind"] == "exploited" and fact["iteration"] == before]
    made = {what["chain"]: what for what in told if what["kind"] == "step"}
    step = made.get(row["prev"])
    return step is not None and any(donor["trial_id"] == step["trial"] for donor in donors)


def _check_facts(facts: list[Fact], rows: int) -> list[str]:
    """What the journal says of a trial adds up, and ends well."""
    count, attempt, ended, flags = 0, 0, False, []
    for fact in facts:
        kind = fact["kind"]
        if kind == "attempt":
            if fact["attempt"] <= attempt:
                flags.append(f"attempt {fact['attempt']} comes after attempt {attempt}")
            if ended:
                flags.append(f"attempt {fact['attempt']} starts after the trial had ended")
            if fact.get("iteration", 0) != count:
                flags.append(f"attempt {fact['attempt']} starts at {fact.get('iteration', 0)}, the count is {count}")
            attempt = fact["attempt"]
        elif kind == "result":
            if fact["iteration"] != count + 1:
                flags.append(f"the journal has a result {fact['iteration']} after {count}")
            count = fact["iteration"]
        elif kind == "rolled_back":
            if fact["iteration"] > count:
                flags.append(f"rolled back to {fact['iteration']} from {count}")
            count = fact["iteration"]
        elif kind == "ended":
            ended = fact["status"] == "TERMINATED"
        elif kind == "reopened":
            ended = False
    if count != rows:
        flags.append(f"the journal counts {count} iterations, result.json {rows}")
    if not ended:
        flags.append("the journal does not say that it has ended")
    return flags


def _check_stop(seen: Seen, facts: list[Fact], steps: list[dict[str, Any]]) -> list[str]:
    """After "stop" no trial trains past the iteration at which it was told."""
    stops = [fact["iteration"] for fact in facts if fact["kind"] == "result" and fact.get("then") == "stop"]
    lost = max((life.number for life in seen.lives if life.lost), default=0)
    if not stops or any(fact["kind"] == "exploited" for fact in facts):
        return []
    past = [step["n"] for step in steps if step["kind"] == "step" and step["n"] > min(stops) and step["life"] > lost]
    return [f"was told to stop at {min(stops)} and trained {past}"] if past else []


# --- checkpoints ----------------------------------------------------------------------------------------------


def _check_kept(seen: Seen, directory: Path, facts: list[Fact], there: Path | None) -> list[str]:
    """Exactly what retention names lies there, each as its manifest says, and holds the state of its iteration."""
    plan = seen.plan
    held, flags = read_all(directory)
    rows = {row["training_iteration"]: row for row in rows_of(directory)}
    cloned_at = max((fact["iteration"] for fact in facts if fact["kind"] == "exploited"), default=0)
    flags += [
        f"{each.name} is of iteration {each.iteration} and holds another state than result.json says"
        for each in held
        if each.iteration > cloned_at and (each.iteration not in rows or each.chain != rows[each.iteration]["chain"])
    ]
    expected = _expected(seen, directory.name, facts)
    names = {each.name for each in held}
    whole = names if there is None else {each.name for each in read_all(there / "e" / directory.name)[0]}
    if whole != expected:
        flags.append(f"keeps {sorted(whole)}, retention names {sorted(expected)}")
    if there is not None and plan.keep_local != "all" and not _lost(seen):
        saved = {ref["name"]: _order(ref) for ref in _saved(facts)}
        newest = sorted(expected, key=lambda name: saved[name])[-int(plan.keep_local) :]
        if names != set(newest):
            flags.append(f"keeps {sorted(names)} here, keep_local={plan.keep_local} names {newest}")
    elif not names <= expected or (names != expected and not _lost(seen)):
        flags.append(f"keeps {sorted(names)} here, retention names {sorted(expected)}")
    given_up = {
        fact["iteration"] for fact in facts if fact["kind"] == "exploited"
    }  # a class does not save what it gives up
    wanted = [
        number
        for number, row in rows.items()
        if plan.wanted(number, row["n"], last=number == len(rows)) and number not in given_up
    ]
    saved_last = [ref["iteration"] for ref in _saved(facts) if ref["name"] in whole]
    if wanted and max(saved_last, default=0) < wanted[-1]:
        flags.append(f"its save of iteration {wanted[-1]} is nowhere, there are {sorted(whole)}")
    return flags


def _expected(seen: Seen, trial: str, facts: list[Fact]) -> set[str]:
    """What retention keeps of what was saved, and was not lost with a disk."""
    saved = _saved(facts)
    if _lost(seen):
        there = {name for life in seen.lives for name in life.kept_there.get(trial, ())}
        first = _first_generation_since(seen)
        saved = [ref for ref in saved if ref["name"] in there or ref["generation"] >= first]
    return best(saved, seen.plan.keep, seen.plan.attr, facts)


def _order(ref: Fact) -> tuple[int, int, int]:
    return ref["generation"], ref["attempt"], ref["index"]


def _lost(seen: Seen) -> bool:
    return any(life.lost for life in seen.lives)


def _first_generation_since(seen: Seen) -> int:
    """The generation of the first life after the last disk was lost."""
    lost = max(life.number for life in seen.lives if life.lost)
    return min((number for life in seen.lives if life.number > lost for number in life.generations), default=0)


def _saved(facts: list[Fact]) -> list[Fact]:
    """What was published and not set aside, in order; a checkpoint that was found at a resume stands there twice."""
    saved: dict[str, Fact] = {}
    for fact in facts:
        if fact["kind"] == "published":
            saved[fact["ref"]["name"]] = fact["ref"]
        elif fact["kind"] == "set_aside":
            saved.pop(fact["ref"]["name"], None)
    return list(saved.values())


# --- what is left ---------------------------------------------------------------------------------------------


def _check_left(seen: Seen) -> list[str]:
    storage, flags = seen.storage, []
    flags += [f"{path.name} lies in the storage directory" for path in storage.iterdir() if path.name != "e"]
    for path in sorted(seen.root.rglob("*")):
        name = str(path.relative_to(seen.root))
        if path.is_dir() and not path.is_symlink():
            if any(path.iterdir()) or path.name == "orders" or "checkpoint_" in name:
                continue
            flags.append(f"an empty directory is left: {name}")
        elif not _KNOWN.fullmatch(name):
            flags.append(f"left: {name}")
    flags += [f"left in the temporary directory: {path.name}" for path in (seen.base / "tmp").iterdir()]
    flags += [f"left in the home directory: {path}" for path in (seen.base / "home").rglob("*") if path.is_file()]
    return flags


def _check_output(seen: Seen) -> list[str]:
    lines = seen.output.splitlines()
    return [f"it said: {line.strip()}" for line in lines if _BLAME.search(line)]


# --- the replica ----------------------------------------------------------------------------------------------


def _check_replica(seen: Seen, there: Path) -> list[str]:
    """The same tree with the same checkpoints, each with its manifest."""
    flags = []
    root = there / "e"
    flags += [f"replica: {path.name} lies beside the experiment" for path in there.iterdir() if path.name != "e"]
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_file() and not _KNOWN.fullmatch(name):
            flags.append(f"replica: left: {name}")
    for mine in _described(seen.root)[0]:
        its = root / mine.name
        if not its.is_dir():
            flags.append(f"replica: {mine.name} is missing")
            continue
        held, problems = read_all(its)
        flags += [f"replica: {mine.name}: {problem}" for problem in problems]
        local = {each.name: each.digest for each in read_all(mine)[0]}
        flags += _compare(mine.name, local, held)
        for file in ("trial.json", "params.json", "result.json", "progress.csv"):
            if (its / file).exists() != (mine / file).exists() or (
                (mine / file).exists() and (its / file).read_bytes() != (mine / file).read_bytes()
            ):
                flags.append(f"replica: {mine.name}/{file} is another")
        flags += [
            f"replica: {mine.name}/{path.name} is there, and not here"
            for path in its.iterdir()
            if path.is_file() and not path.name.startswith("events") and not (mine / path.name).exists()
        ]
    history = journal_by_hand.read(root / "journal", seen.root / "journal")
    flags += [f"replica: journal: {problem}" for problem in history.problems]
    alone = journal_by_hand.read(root / "journal")
    if alone.whole:
        ended = {fact["trial"] for fact in alone.kind("ended")}
        created = {fact["trial"] for fact in alone.kind("created")}
        if len(created) != seen.plan.trials or ended != created:
            flags.append(f"replica: its journal has {len(created)} trials, {len(ended)} of them ended")
    return flags


def _compare(trial: str, local: dict[str, str], held: list[Held]) -> list[str]:
    """What lies here lies there too, and is the same."""
    its = {each.name: each.digest for each in held}
    if not local.items() <= its.items():
        return [f"replica: {trial} has {sorted(its)} there, and {sorted(local)} here, or others of these names"]
    return []
