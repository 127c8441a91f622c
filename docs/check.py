"""`make docs`: links between the pages lead somewhere, and the examples in docstrings do what they show."""

from __future__ import annotations

import doctest
import importlib
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"\]\(([^)#\s]+)")
DOCTESTED = (
    "trainables.checkpoint_config",
    "trainables.metrics",
    "trainables.store.retention",
    "trainables.torch.atomic_directory",
    "trainables.torch.atomic_save",
    "trainables.torch.grouped",
    "trainables.torch.metrics_tracker",
    "trainables.torch.numbered",
    "trainables.torch.samplers",
    "trainables.torch.sharded",
    "trainables.torch.timing",
    "trainables.torch.train_state",
    "tuner.analysis.study",
    "tuner.experiment.paths",
    "tuner.mcp.marked",
    "tuner.mcp.paging",
    "tuner.progress.formatting",
    "tuner.retention.rules",
    "tuner.stopper.budgets",
    "tuner.stopper.criteria",
)
"""Modules whose examples are complete; `tests/docs` runs those of what is exported at the top, with more around."""


def pages() -> list[Path]:
    return [
        *sorted(ROOT.glob("*.md")),
        *sorted((ROOT / "docs").rglob("*.md")),
        *sorted((ROOT / "examples").rglob("*.md")),
    ]


def broken_links() -> list[str]:
    """Relative links to files that are not there."""
    return [
        f"{page.relative_to(ROOT)}: {target} is not there"
        for page in pages()
        for target in LINK.findall(page.read_text("utf-8"))
        if "://" not in target and not (page.parent / target).exists()
    ]


def unknown_chores() -> list[str]:
    """`make x` in a page, where the Makefile has no x."""
    known = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    return [
        f"{page.relative_to(ROOT)}: there is no `make {chore}`"
        for page in pages()
        for chore in re.findall(r"`make ([a-z]+)", page.read_text("utf-8"))
        if chore not in known
    ]


def failing_examples() -> list[str]:
    """Modules with an example that shows something else than it does."""
    sys.path.insert(0, str(ROOT))
    return [
        f"{name}: {result.failed} of {result.attempted} examples fail"
        for name in DOCTESTED
        if (result := doctest.testmod(importlib.import_module(name))).failed
    ]


def main() -> int:
    wrong = broken_links() + unknown_chores() + failing_examples()
    for line in wrong:
        print(line)
    if not wrong:
        print(f"{len(pages())} pages and the examples of {len(DOCTESTED)} modules hold")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
