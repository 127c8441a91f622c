"""What Sphinx is told about the pages; `make docs` calls it. What is put into them is made in docs/made."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import made  # noqa: E402  it lies beside this file

import tuner  # noqa: E402

project, author, copyright = "tuner", "the authors of tuner", "the authors of tuner, Apache-2.0"
version = release = tuner.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["search.md"]  # Sphinx's own page for searching has that name: explanation/searches.md is this one

html_theme = "furo"
html_title = f"tuner {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = [("narrow_tables.js", {"defer": "defer"})]
html_copy_source = False
html_show_sphinx = False
pygments_style, pygments_dark_style = "friendly", "github-dark"

myst_heading_anchors = 4
default_role = "code"  # docstrings write `names` as Markdown does
autodoc_mock_imports = list(made.ABSENT)
autodoc_member_order = "bysource"
maximum_signature_line_length = 90
python_use_unqualified_type_names = True
napoleon_numpy_docstring = False


def setup(app: Any) -> None:
    """Put in what is made of the code, before a page is parsed."""
    app.connect("env-get-outdated", _made_of_code)
    app.connect("source-read", _completed)
    app.connect("html-page-context", _scripts_of_the_search)
    app.connect("build-finished", _written_beside)


def _made_of_code(_: Any, env: Any, *__: Any) -> list[str]:
    """Their source is the same, and what is made of the code is not."""
    return [name for name in env.found_docs if made.MARK.search((HERE / f"{name}.md").read_text("utf-8"))]


def _completed(_: Any, name: str, text: list[str]) -> None:
    text[0] = made.completed(text[0], HERE / f"{name}.md")


def _written_beside(app: Any, failure: Exception | None) -> None:
    if failure is None and app.builder.format == "html":
        made.write_beside(Path(app.outdir), app.env)


def _scripts_of_the_search(app: Any, page: str, *_: Any) -> None:
    """They are large, and other pages have no use for them. Deferred: after Sphinx's own, before it searches."""
    if page == "search":
        for file in ("sections.js", "sections_search.js"):
            app.add_js_file(file, defer="defer")
