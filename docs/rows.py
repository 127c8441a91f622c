"""Refresh the table of failures in ROADMAP.md from the tests' names: `python docs/rows.py`; `--check` only compares.

A row is covered when there is a test named after it (`test_f01_...`). A status that a person wrote ("partly: ...")
stays as long as the row has a test.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "ROADMAP.md"
ROW = re.compile(r"^\| ([FDT]\d\d) \| (.*?) \| (.*?) \| (.*?) \|$", re.MULTILINE)
TEST = re.compile(r"def (test_([fdt]\d\d)_\w+)")
MISSING = "missing"


def covered() -> dict[str, list[str]]:
    """Row -> the files with tests named after it."""
    found: dict[str, set[str]] = {}
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        for _, row in TEST.findall(file.read_text("utf-8")):
            found.setdefault(row.upper(), set()).add(str(file.relative_to(ROOT / "tests")))
    return {row: sorted(files) for row, files in found.items()}


def refreshed(text: str) -> str:
    """The page with each row's tests and status as they are now."""
    tests = covered()

    def line(match: re.Match[str]) -> str:
        row, what, _, status = match.groups()
        files = tests.get(row)
        if not files:
            return f"| {row} | {what} | - | {MISSING} |"
        said = "tested" if status in (MISSING, "tested") else status
        return f"| {row} | {what} | {', '.join(f'`{file}`' for file in files)} | {said} |"

    return ROW.sub(line, text)


def main() -> int:
    before = PAGE.read_text("utf-8")
    after = refreshed(before)
    if "--check" in sys.argv[1:]:
        return 0 if before == after else 1
    PAGE.write_text(after, "utf-8")
    print(f"{len(ROW.findall(after))} rows, {len(re.findall(rf'- [|] {MISSING} [|]', after))} without a test")
    return 0


if __name__ == "__main__":
    sys.exit(main())
