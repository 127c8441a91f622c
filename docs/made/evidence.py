"""The page 'Evidence': what the lines of `make soak` add up to, by kind, with what each kind ever found."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from made.pages import ROOT

RESULTS = ROOT / "docs" / "evidence" / "soak.jsonl"
KINDS = ROOT / "docs" / "evidence" / "kinds.toml"
OTHERS = "everything else"


@dataclass
class Tests:
    """What came of the tests of one kind; of a test that ran again, its last line."""

    last: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def outcomes(self) -> Counter[str]:
        return Counter(line["outcome"] for line in self.last.values())

    @property
    def counted(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for line in self.last.values():
            found.update(line["counts"])
        return found

    @property
    def seconds(self) -> float:
        return float(sum(line["seconds"] for line in self.last.values()))


def lines(results: Path = RESULTS) -> Iterator[dict[str, Any]]:
    """What the file holds; a line that a kill cut off is none."""
    for line in results.read_bytes().splitlines() if results.exists() else ():
        try:
            yield json.loads(line)
        except ValueError:
            continue


def kinds() -> dict[str, dict[str, Any]]:
    """Title -> `tests`, with which the names of its tests begin, and `found`."""
    return {kind["title"]: kind for kind in tomllib.loads(KINDS.read_text("utf-8"))["kind"]}


def by_kind(results: Path = RESULTS) -> dict[str, Tests]:
    """All kinds, also those of which nothing was run."""
    known = kinds()
    found = {title: Tests() for title in (*known, OTHERS)}
    for line in lines(results):
        if "test" in line:
            of = (title for title, kind in known.items() if line["test"].startswith(tuple(kind["tests"])))
            found[next(of, OTHERS)].last[line["test"]] = line
    return found


def table(results: Path = RESULTS) -> str:
    """A row for each kind of which something was run, and what was not."""
    known = kinds()
    rows = ["| what | tests | came out | counted | hours |", "|---|---|---|---|---|"]
    idle, total = [], Tests()
    for title, tests in by_kind(results).items():
        if not tests.last:
            idle += [title] if title in known else []
            continue
        total.last |= tests.last
        counted = {} if known.get(title, {}).get("figures") else tests.counted
        rows.append(_row(title, tests, counted))
    rows.append(_row("**all**", total, {}))
    none = f"\n\nNothing of these was run: {', '.join(idle)}." if idle else ""
    return "\n".join(rows) + none


def _row(title: str, tests: Tests, counted: dict[str, int]) -> str:
    outcomes = ", ".join(f"{number:,} {outcome}" for outcome, number in sorted(tests.outcomes.items(), reverse=True))
    seen = ", ".join(f"{number:,} {what}" for what, number in sorted(counted.items()))
    return f"| {title} | {len(tests.last):,} | {outcomes} | {seen or '-'} | {tests.seconds / 3600:.2f} |"


def figures(results: Path = RESULTS) -> str:
    """What was measured, of the kinds that measure: a list for each test."""
    known, told = kinds(), []
    for title, tests in by_kind(results).items():
        if known.get(title, {}).get("figures"):
            for name, line in tests.last.items():
                measured = "\n".join(f"| {what} | {value:,} |" for what, value in line["counts"].items())
                told.append(f"`{name}` ({line['outcome']}):\n\n| | |\n|---|---|\n{measured}")
    return "\n\n".join(told) or "None yet."


def runs(results: Path = RESULTS) -> str:
    """Where it was run: a row for each start of `make soak`."""
    rows = ["| run | slice | version, commit | machine |", "|---|---|---|---|"]
    for line in lines(results):
        if "version" in line:
            rows.append(
                f"| {line['run']} | {line['slice']} | {line['version']}, {line['commit'] or '-'} | {line['machine']} |"
            )
    return "\n".join(rows)


def failures(results: Path = RESULTS) -> str:
    """The tests whose last line says that they failed."""
    bad = [
        f"- `{name}`"
        for tests in by_kind(results).values()
        for name, line in tests.last.items()
        if line["outcome"] == "failed"
    ]
    return "\n".join(bad) or "None."


def found() -> str:
    """Return the table of faults that each kind of test found."""
    rows = ["| kind | found, and mended |", "|---|---|"]
    for title, kind in kinds().items():
        rows += [f"| {title} | {fault} |" for fault in kind.get("found", [])]
    return "\n".join(rows)
