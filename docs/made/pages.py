"""Files that become pages, and where links of the repository lead within the site."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"
LINK = re.compile(r"\[([^\]\[]*)\]\(([^)#\s:]+)(#[^)\s]*)?\)")
"""A link to a file, or an image behind its `!`: its words, the file, the place in it."""
MOVED = {
    ROOT / "README.md": DOCS / "start" / "index.md",
    ROOT / "examples": DOCS / "tutorials" / "index.md",
    DOCS / "search.md": DOCS / "explanation" / "searches.md",
    **{
        ROOT / f"{name.upper()}.md": DOCS / "project" / f"{name}.md"
        for name in ("architecture", "changelog", "roadmap")
    },
    ROOT / "CONTRIBUTING.md": DOCS / "project" / "contributing.md",
}
"""What another page stands for in the site."""


def included(argument: str, page: Path) -> str:
    """The text of another file, whose links lead where they did."""
    source = (page.parent / argument).resolve()
    return _changed(source.read_text("utf-8"), source, page, lambda target: target)


def led_within_the_site(text: str, page: Path) -> str:
    """Links to what has another page lead there."""
    return _changed(text, page, page, lambda target: MOVED.get(target, target))


def _changed(text: str, source: Path, page: Path, led: Callable[[Path], Path]) -> str:
    def changed(match: re.Match[str]) -> str:
        target = led((source.parent / match[2]).resolve())
        if target.is_dir() or match[2].startswith("/"):
            return match[1]  # a folder is no page
        return f"[{match[1]}]({os.path.relpath(target, page.parent)}{match[3] or ''})"

    return LINK.sub(changed, text)
