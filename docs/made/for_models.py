"""llms.txt: what the pages are, for readers that are language models."""

from __future__ import annotations

import re

from made.pages import DOCS

HEAD = """# tuner

> Hyperparameter tuning for Python: many trials in parallel, checkpoints that are never torn or lost, runs that continue
> where they were killed. `import tuner as tune` stands where `from ray import tune` stood; what runs inside a trial is
> in `trainables`.

- `tune.run(train, config={...}, metric=, mode=, num_samples=, resume="AUTO")` is the whole of a first search.
- In a trial: `tune.get_checkpoint()` at the start, `tune.report({...}, checkpoint=...)` after each step.
- Linux, Python 3.11 or newer.
"""
ORDER = ("start", "tutorials", "how-to", "", "explanation", "reference", "evidence", "project")
NAMES = {"": "guides"}


def index() -> str:
    """A line for each page: its title, where it is, its first sentence, or its questions where it begins with them."""
    parts = [HEAD]
    for folder in ORDER:
        parts.append(f"## {NAMES.get(folder, folder).capitalize()}\n")
        for page in sorted((DOCS / folder).glob("**/*.md" if folder else "*.md")):
            if page.name == "search.md" or page == DOCS / "index.md":
                continue
            text = page.read_text("utf-8")
            if shown := re.match(r"<!-- made: page (\S+) -->", text):
                text = (page.parent / shown[1]).resolve().read_text("utf-8")
            title = re.search(r"^# (.+)$", text, re.MULTILINE)
            place = page.relative_to(DOCS).with_suffix(".html")
            parts.append(f"- [{title[1] if title else place.stem}]({place}){_first_sentence(text)}")
        parts.append("")
    return "\n".join(parts)


def _first_sentence(text: str) -> str:
    for paragraph in re.split(r"\n\s*\n", text):
        if paragraph.startswith("## "):
            return ": " + "; ".join(re.findall(r"^## (.+)$", text, re.MULTILINE))
        paragraph = paragraph.replace("**", "")
        if re.match(r"[A-Z`](?!``)", paragraph):
            sentence = re.split(r"(?<=[.:])\s", " ".join(paragraph.split()))[0]
            return ": " + re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", sentence)
    return ""
