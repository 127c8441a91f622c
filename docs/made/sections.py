"""What the site's search knows of each section: its heading, other words that people have for it, and what it says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

ALSO = re.compile(r"^(?:<!--\s*)?also: (.*?)(?:\s*-->)?\s*$", re.DOTALL)
"""A comment `<!-- also: WORDS -->` below a heading: what people call it."""
LEFT_OUT = ("project/", "reference/api/")
"""Pages of the project, of which a reader looks for no answer, and names, which Sphinx finds by itself."""


def script(env: Any) -> str:
    """The JavaScript that docs/static/sections_search.js reads."""
    rows = [row for name in sorted(env.found_docs) if not name.startswith(LEFT_OUT) for row in _rows(env, name)]
    return f"const SECTIONS = {json.dumps(rows, ensure_ascii=False, separators=(',', ':'))};\n"


def _rows(env: Any, name: str) -> Iterator[list[str]]:
    from docutils import nodes

    tree = env.get_doctree(name)
    file, title = env.doc2path(name, base=False), env.titles[name].astext()
    for number, section in enumerate(tree.findall(nodes.section)):
        if section[0].astext().startswith("ray."):  # a table of names, of which nobody asks in words
            continue
        own = [child for child in section.children if not isinstance(child, nodes.section)]
        hidden = (nodes.comment, nodes.raw)  # versions of the Markdown parser make one or the other of a comment
        comments = [ALSO.match(child.astext()) for child in own if isinstance(child, hidden)]
        said = " ".join(child.astext() for child in own[1:] if not isinstance(child, hidden))
        words = " ".join(dict.fromkeys(re.findall(r"\w+", said.lower())))
        also = " ".join(found[1] for found in comments if found)
        yield [name, str(file), section["ids"][0] if number else "", title, own[0].astext(), also, words]
