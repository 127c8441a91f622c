"""The code blocks of all pages, and what becomes of each: it is run, is what another one printed, or says why not.

A comment before a block says what is not seen from the block: `<!-- not run: WHY -->`, `<!-- run by: tests/FILE.py -->`
where a test of its own runs the page, `<!-- printed -->` where the block is what the one before it printed. A comment
that begins with `<!-- setup` holds Python that is run and not shown: what the page takes for granted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BLOCK = re.compile(
    r"(?:^[ ]*<!-- (?P<mark>not run|run by|printed)(?:: (?P<said>.*?))? -->\n+)?"
    r"^(?P<indent>[ ]*)(?P<fence>```+)(?P<language>[\w+-]*)\n(?P<text>.*?)^(?P=indent)(?P=fence)[ ]*$",
    re.MULTILINE | re.DOTALL,
)
SETUP = re.compile(r"^<!-- setup\n(.*?)^-->$", re.MULTILINE | re.DOTALL)
DIRECTIVE = re.compile(r"^[ ]*(```+)\{.*?^[ ]*\1[ ]*$", re.MULTILINE | re.DOTALL)
PLAYED = ("python", "yaml", "json", "sh", "bash")
"""Languages that a reader can do something with."""


@dataclass(frozen=True)
class PageBlock:
    """Of code: where it stands, its language, its text, and what the page says of running it."""

    page: str
    line: int
    language: str
    text: str
    mark: str | None = None
    said: str | None = None

    @property
    def file(self) -> str | None:
        """The file that its first line says it is."""
        named = re.match(r"# ([\w.]+\.\w+)\b", self.text)
        return named[1] if named and self.language in ("python", "yaml") else None

    @property
    def is_run(self) -> bool:
        """Who reads the page does it."""
        return self.mark in (None, "setup") and self.language in PLAYED


def pages() -> list[Path]:
    """Every page that people read."""
    top = [ROOT / f"{name}.md" for name in ("README", "ARCHITECTURE", "CONTRIBUTING", "ROADMAP", "CHANGELOG")]
    return [*top, *sorted((ROOT / "docs").rglob("*.md")), ROOT / "benchmarks" / "README.md"]


def blocks_of(page: Path) -> list[PageBlock]:
    """The blocks of a page, in their order; directives are none."""
    text = DIRECTIVE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), page.read_text("utf-8"))
    name = str(page.relative_to(ROOT))
    found = []
    for match in BLOCK.finditer(text):
        indent = match["indent"]
        body = "".join(line.removeprefix(indent) for line in match["text"].splitlines(keepends=True))
        line = text.count("\n", 0, match.start("fence")) + 1
        found.append(PageBlock(name, line, match["language"], body, match["mark"], match["said"]))
    for match in SETUP.finditer(text):
        found.append(PageBlock(name, text.count("\n", 0, match.start()) + 1, "python", match[1], "setup"))
    return sorted(found, key=lambda block: block.line)


def fences(page: Path) -> int:
    """How many lines begin or end a block that is no directive: what `blocks_of` must account for."""
    text = DIRECTIVE.sub("", page.read_text("utf-8"))
    return len(re.findall(r"^[ ]*```", text, re.MULTILINE))
