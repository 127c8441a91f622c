"""A journal read by hand: nothing of the packages is used. The format is that of design.md, sections 5 and 7."""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_LINE = re.compile(rb'\{"n":(\d+),"c":"([0-9a-f]{8})","f":(.*)\}', re.DOTALL)
_SEGMENT = re.compile(r"(\d{6,})-(\d{6,})\.jsonl")
_SNAPSHOT = re.compile(r"snapshot-(\d{6,})-(\d{8,})\.json")

Fact = dict[str, Any]


@dataclass
class History:
    """The facts of the chain of generations, oldest first."""

    facts: list[Fact] = field(default_factory=list)
    whole: bool = True
    """False: a snapshot stands for some of them, and nobody kept the segments."""
    problems: list[str] = field(default_factory=list)

    def of(self, trial: str) -> list[Fact]:
        return [fact for fact in self.facts if _trial_of(fact) == trial]

    def kind(self, *kinds: str) -> list[Fact]:
        return [fact for fact in self.facts if fact["kind"] in kinds]


def _trial_of(fact: Fact) -> str | None:
    if fact["kind"] == "exploited":
        return str(fact["trial"])
    return fact.get("trial") or fact.get("ref", {}).get("trial_id")


def read(journal: Path, *copies: Path, cut: bool = False) -> History:
    """Read it; `copies` are older looks at the same one, for what was compacted since; `cut`: its owner was killed."""
    history = History()
    facts: dict[int, dict[int, Fact]] = {}
    snapshots: dict[int, int] = {}
    for directory in (*copies, journal):
        if not directory.is_dir():
            continue
        for path in sorted(directory.iterdir()):
            if match := _SEGMENT.fullmatch(path.name):
                _segment(path, facts.setdefault(int(match[1]), {}), history, strict=directory == journal and not cut)
            elif match := _SNAPSHOT.fullmatch(path.name):
                _check_snapshot(path, history)
                snapshots[int(match[1])] = max(int(match[2]), snapshots.get(int(match[1]), 0))
            elif directory == journal and path.name != "history" and not cut:
                history.problems.append(f"{path.name} lies in the journal")
    if facts and not cut:
        _check_end(journal, max(facts), history)
    _follow(facts, snapshots, history)
    return history


def _segment(path: Path, facts: dict[int, Fact], history: History, *, strict: bool) -> None:
    lines = path.read_bytes().split(b"\n")
    lines.pop()  # what follows the last line's end
    for number, line in enumerate(lines):
        match = _LINE.fullmatch(line)
        if match is None or zlib.crc32(match[3]) != int(match[2], 16):
            if strict and any(_LINE.fullmatch(later) for later in lines[number + 1 :]):
                history.problems.append(f"{path.name}: line {number + 1} is damaged, and whole ones follow")
            return
        fact = json.loads(match[3])
        seq = int(match[1])
        if seq in facts and facts[seq] != fact:
            history.problems.append(f"{path.name}: number {seq} stands there twice, for two facts")
        facts[seq] = fact


def _check_end(journal: Path, generation: int, history: History) -> None:
    """What owners leave that were killed may be torn at its end; the last one ended in order."""
    for path in journal.glob(f"{generation:06d}-*.jsonl"):
        if path.read_bytes().rpartition(b"\n")[2].strip(b"\0"):
            history.problems.append(f"{path.name}: its last line is torn, and its owner ended in order")


def _check_snapshot(path: Path, history: History) -> None:
    data = path.read_bytes()
    start = data.find(b',"f":') + 5
    head = json.loads(data[:start] + b"0}")
    if int(head["c"], 16) != zlib.crc32(data[start:-2]):
        history.problems.append(f"{path.name}: its checksum does not match")


def _follow(facts: dict[int, dict[int, Fact]], snapshots: dict[int, int], history: History) -> None:
    """From the highest generation back, of each what its child names."""
    generation = max((number for number, held in facts.items() if held), default=0)
    limit: int | None = None
    parts: list[list[Fact]] = []
    while generation:
        held = facts.get(generation, {})
        numbers = [seq for seq in sorted(held) if limit is None or seq <= limit]
        first = held[numbers[0]] if numbers else {}
        if first.get("kind") != "generation":
            history.whole = False
            parts.append([held[seq] for seq in numbers])
            break
        if first["generation"] != generation:
            history.problems.append(f"generation {generation} calls itself {first['generation']}")
        start = first.get("parent_seq", 0)
        wanted = list(range(start + 1, (numbers[-1] if limit is None else limit) + 1))
        if numbers != wanted:
            missing = sorted(set(wanted) - set(numbers))
            if any(seq > snapshots.get(generation, 0) for seq in missing) or not missing:
                history.problems.append(f"generation {generation}: facts {missing[:5]} are missing")
            history.whole = False
        parts.append([held[seq] for seq in numbers])
        generation, limit = first.get("parent") or 0, start
        if generation and generation not in facts:
            history.whole = False
            break
    history.facts = [fact for part in reversed(parts) for fact in part]
