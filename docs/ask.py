"""Asks the built site's search, in a real browser: `python docs/ask.py "too many open files"`.

Without a question it asks all of questions.toml, and ends with 1 where an answer is not among the first five.
"""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
SITE = HERE.parent / "build" / "docs"
FIRST = 5
SCRIPTS = ("documentation_options", "doctools", "sphinx_highlight", "searchtools", "language_data")
PAGE = """<!doctype html><meta charset="utf-8"><body>{scripts}<script>
const shown = (question) => Search._performSearch(...Search._parseQuery(question)).reverse().slice(0, {first});
const places = {questions}.map((question) => shown(question).map(([page, title, anchor]) => [page + anchor, title]));
document.body.dataset.found = JSON.stringify(places);
</script></body>"""


def ask(questions: Sequence[str]) -> list[list[tuple[str, str]]]:
    """For each question the places and titles that the search shows first."""
    files = [*(f"_static/{name}.js" for name in SCRIPTS), "searchindex.js"]
    files += ["_static/sections.js", "_static/sections_search.js"]
    scripts = "".join(f'<script src="{(SITE / file).as_uri()}"></script>' for file in files)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "ask.html")
        page.write_text(PAGE.format(scripts=scripts, questions=json.dumps(questions), first=FIRST), "utf-8")
        browser = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile"]
        words = [*browser, "--allow-file-access-from-files", "--dump-dom", page.as_uri()]
        told = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120)
    answers = re.search(r'data-found="([^"]*)"', told.stdout)
    if answers is None:
        raise SystemExit(f"the search says nothing:\n{told.stderr[-2000:]}")
    return [[(place, title) for place, title in each] for each in json.loads(html.unescape(answers[1]))]


def main(words: Sequence[str]) -> int:
    if words:
        for place, title in ask([" ".join(words)])[0]:
            print(f"{place}: {title}")
        return 0
    questions = tomllib.loads((HERE / "questions.toml").read_text("utf-8"))["question"]
    missed = 0
    for question, found in zip(questions, ask([each["asked"] for each in questions]), strict=True):
        if question["answer"] not in [place for place, _ in found]:
            missed += 1
            print(f"{question['asked']}\n  is answered at {question['answer']}; found are")
            print("".join(f"    {place}\n" for place, _ in found), end="")
    print(f"{len(questions) - missed} of {len(questions)} questions have their answer among the first {FIRST}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
