"""What the section `Args:` of a docstring says of each argument."""

from __future__ import annotations

import inspect
import re
from typing import Any

ENTRY = re.compile(r"^    ([A-Za-z_][\w, ]*?): (.*(?:\n(?:        .*|$))*)", re.MULTILINE)


def arguments(documented: Any) -> dict[str, str]:
    """Name -> what is said of it, on one line."""
    text = inspect.getdoc(documented) or ""
    _, _, section = text.partition("\nArgs:\n")
    section = re.split(r"^\S", section, maxsplit=1, flags=re.MULTILINE)[0]
    return {name.strip(): " ".join(said.split()) for names, said in ENTRY.findall(section) for name in names.split(",")}


def first_line(documented: Any) -> str:
    """The first paragraph, on one line."""
    return " ".join((inspect.getdoc(documented) or "").partition("\n\n")[0].split())


def cell(text: str) -> str:
    """As a cell of a table."""
    return text.replace("|", "\\|").replace("\n", " ")
