"""Judges what became of orders, from the facts of the journal: none lost, none done twice. No code of the packages."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import journal_by_hand
from journal_by_hand import Fact

Given = dict[str, dict[str, Any]]


def judge(root: Path, books: list[Path], given: Given, job: dict[str, Any]) -> tuple[list[str], int]:
    """What is wrong, a line each; and how many orders are done, not refused.

    Args:
        given: order's id -> the order that was given first under it.
        job: what each life was told: `save_every`: so often a trial saves by itself, 0: never; `scheduler`.
    """
    history = journal_by_hand.read(root / "journal", *books, _unpacked(root))
    flags = [f"journal: {problem}" for problem in history.problems]
    if not history.whole:
        return [*flags, "the journal is not whole"], 0
    facts = history.facts
    answers, more = _answers(facts, given)
    flags += more + _said(root, answers)
    done = {order_id: given[order_id] for order_id, (is_done, _) in answers.items() if is_done}
    flags += _marks(facts, done)
    flags += _new(facts, done)
    flags += _holds(facts, given, done)
    flags += _ends(facts, done)
    alone = job["scheduler"] in ("fifo", "asha")  # it pauses nobody, and clones nobody
    flags += _saves(facts, given, done, answers, anew=alone and job["save_every"] == 0)
    return flags + (_training(root, facts) if alone else []), len(done)


def _unpacked(root: Path) -> Path:
    """The segments that compaction has packed into the history, as files again."""
    place = root.parent / "unpacked"
    place.mkdir()
    for path in sorted((root / "journal" / "history").glob("*")):
        with gzip.open(path) as file:
            for entry in json.loads(file.readline())["files"]:
                (place / entry["name"]).write_bytes(file.read(entry["bytes"]))
    return place


def _answers(facts: list[Fact], given: Given) -> tuple[dict[str, tuple[bool, str]], list[str]]:
    """Each order is taken once, as it was given, and then answered once."""
    flags: list[str] = []
    taken: dict[str, Fact] = {}
    answers: dict[str, tuple[bool, str]] = {}
    for fact in facts:
        if fact["kind"] == "order_taken":
            if fact["id"] in taken:
                flags.append(f"{fact['order']} was taken twice")
            as_taken = {name: value for name, value in (fact["order"] or {}).items() if value not in (None, "")}
            if as_taken != given.get(fact["id"]):
                flags.append(f"{given.get(fact['id'])} was taken as {fact['order']}")
            taken[fact["id"]] = fact
        elif fact["kind"] in ("order_answered", "noted") or (fact["kind"] == "set" and fact.get("order")):
            order_id = fact["id"] if fact["kind"] == "order_answered" else fact["order"]
            if order_id in answers or order_id not in taken:
                flags.append(f"{given.get(order_id)} was answered twice, or not taken: {fact}")
            answers[order_id] = (fact.get("done", True), fact.get("why", ""))
    flags += [f"lost: {order} was never taken" for order_id, order in given.items() if order_id not in taken]
    flags += [f"lost: {given[order_id]} was never answered" for order_id in taken if order_id not in answers]
    return answers, flags


def _said(root: Path, answers: dict[str, tuple[bool, str]]) -> list[str]:
    """The files say what the facts say."""
    flags = []
    for order_id, (is_done, why) in answers.items():
        path = root / "orders" / f"{order_id}.answer.json"
        found = json.loads(path.read_text()) if path.exists() else {}
        said = found.get("state"), found.get("why", "")
        if said != ("done" if is_done else "refused", why):
            flags.append(f"order {order_id} was answered {is_done} {why!r}, and its file says {said}")
    names = {path.name for path in (root / "orders").iterdir()} if answers else set()
    orders = sorted(name for name in names if not name.endswith(".answer.json") and not name.startswith("."))
    return flags + [f"left in orders: {name}" for name in orders]  # what was begun to be written goes after a day


def _marks(facts: list[Fact], done: Given) -> list[str]:
    """Notes and pins are there once for each order that is done."""
    flags = []
    noted = Counter(fact["text"] for fact in facts if fact["kind"] == "noted")
    wanted = Counter(order["text"] for order in done.values() if order["order"] == "note")
    if noted != wanted:
        flags.append(f"notes: {noted - wanted} too often, {wanted - noted} missing")
    for tag, word in (("", ("pin", "save")), ("t", ("tag",))):
        pins = [
            fact
            for fact in facts
            if fact["kind"] == "pinned" and fact.get("pinned", True) and fact.get("tag", "")[:1] == tag
        ]
        orders = [order for order in done.values() if order["order"] in word and order.get("pin", True)]
        if len(pins) > len(orders):
            flags.append(f"{len(pins)} pins for {len(orders)} orders")
    unpinned = sum(fact["kind"] == "pinned" and not fact.get("pinned", True) for fact in facts)
    if unpinned > sum(order["order"] == "unpin" for order in done.values()):
        flags.append(f"{unpinned} unpinned")
    return flags


def _new(facts: list[Fact], done: Given) -> list[str]:
    """A trial for each `add` and `fork` that is done, and no other."""
    made = Counter(fact["order"] for fact in facts if fact["kind"] == "created" and fact.get("order"))
    wanted = Counter(order_id for order_id, order in done.items() if order["order"] in ("add", "fork"))
    return [] if made == wanted else [f"trials: {made - wanted} too often, {wanted - made} missing"]


def _holds(facts: list[Fact], given: Given, done: Given) -> list[str]:
    """A trial is held and let go in turn, each by an order; no attempt begins meanwhile."""
    flags = []
    held: dict[str, bool] = {}
    count: Counter[bool] = Counter()
    for fact in facts:
        if fact["kind"] == "held":
            now = fact.get("held", True)
            if held.get(fact["trial"], False) == now:
                flags.append(f"{fact['trial']} was held={now} twice")
            held[fact["trial"]] = now
            count[now] += 1
        elif fact["kind"] == "ended":
            held[fact["trial"]] = False
        elif fact["kind"] == "attempt" and held.get(fact["trial"]):
            flags.append(f"{fact['trial']} began an attempt while it was held")
    pauses = sum(order["order"] == "pause" for order in given.values())
    goes = sum(order["order"] in ("go", "stop") for order in given.values())
    if count[True] > pauses or (count[False] > goes and not _all(given)):
        flags.append(f"held {count[True]} times by {pauses} orders, let go {count[False]} times by {goes}")
    told = sum(order["order"] == "go" for order in done.values())
    if count[False] < told:
        flags.append(f"{told} were told to go, and {count[False]} did")
    return flags


def _all(orders: Given) -> bool:
    """Whether one of them was to stop everything."""
    return any(order.get("trial") == "all" for order in orders.values())


def _ends(facts: list[Fact], done: Given) -> list[str]:
    """Who was stopped has ended, once; who was retried was reopened, once for each order."""
    flags = []
    index = {fact["trial"]: str(fact["index"]) for fact in facts if fact["kind"] == "created"}
    for trial, number in index.items():
        ends = [fact["status"] for fact in facts if fact["kind"] == "ended" and fact["trial"] == trial]
        reopened = sum(fact["kind"] == "reopened" and fact["trial"] == trial for fact in facts)
        mine = [order["order"] for order in done.values() if order.get("trial") in (number, "all")]
        if len(ends) != reopened + 1:
            flags.append(f"trial {number} ended {len(ends)} times, and was reopened {reopened} times")
        if reopened > mine.count("retry"):
            flags.append(f"trial {number} was reopened {reopened} times by {mine.count('retry')} orders")
        if "stop" in mine and ends[-1:] != ["TERMINATED"] and not _all(done):
            flags.append(f"trial {number} was stopped, and is {ends[-1:]}")
    if _all(done):
        if not any(fact["kind"] == "search_ended" for fact in facts):
            flags.append("all were stopped, and more may come")
    return flags


def _saves(
    facts: list[Fact], given: Given, done: Given, answers: dict[str, tuple[bool, str]], *, anew: bool
) -> list[str]:
    """Each save is there, of the trial that was to save; where `anew`, none saved that nobody asked for."""
    index = {str(fact["index"]): fact["trial"] for fact in facts if fact["kind"] == "created"}
    published = {(fact["ref"]["trial_id"], fact["ref"]["name"]) for fact in facts if fact["kind"] == "published"}
    flags = [
        f"{order} was answered with {answers[order_id][1]}, which was never published"
        for order_id, order in done.items()
        if order["order"] == "save" and (index[order["trial"]], answers[order_id][1]) not in published
    ]
    asked = sum(order["order"] in ("save", "pause", "set") for order in given.values())
    if anew and len(published) > asked:
        flags.append(f"{len(published)} checkpoints were saved by {asked} orders")
    return flags


def _training(root: Path, facts: list[Fact]) -> list[str]:
    """What trials come to is what they come to without orders; a fork what its trunk does, with another rate."""
    flags = []
    sums: dict[str, dict[int, float]] = {}
    for fact in facts:
        if fact["kind"] != "created":
            continue
        path = root / fact["dirname"] / "result.json"
        rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        rate, first, mine = fact["config"]["rate"], 0, {0: 0.0}
        if fact.get("fork"):
            trunk, first = fact["fork"]["donor"]["trial_id"], fact["fork"]["iteration"]
            mine = {number: total for number, total in sums[trunk].items() if number <= first}
        for number, row in enumerate(rows, first + 1):
            mine[number] = mine[number - 1] * 0.9 + rate * number
            if (row["training_iteration"], row["sum"]) != (number, mine[number]):
                flags.append(f"trial {fact['index']}: row {number} is {row['training_iteration']} with {row['sum']}")
        sums[fact["trial"]] = mine
    return flags
