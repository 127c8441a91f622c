"""What pages get from the code: `<!-- made: NAME ARGUMENT -->` in a page is replaced when the site is built."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from made import api, command, errors, evidence, for_models, pages, sections, settings, variables
from made.api import ABSENT

MARK = re.compile(r"^<!-- made: (\S+) ?(.*?) -->$", re.MULTILINE)
MAKERS: dict[str, Callable[[str, Path], str]] = {
    "page": pages.included,
    "api": lambda module, _: api.names_of(module),
    "api-list": lambda *_: api.modules(),
    "settings": lambda *_: settings.table(),
    "config-keys": lambda *_: settings.keys(),
    "command": lambda *_: command.verbs(),
    "variables": lambda *_: variables.table(),
    "errors": lambda *_: errors.sections(),
    "soak": lambda *_: evidence.table(),
    "soak-figures": lambda *_: evidence.figures(),
    "soak-runs": lambda *_: evidence.runs(),
    "soak-failures": lambda *_: evidence.failures(),
    "soak-found": lambda *_: evidence.found(),
}
"""Name -> what makes it, of the argument and the page's file."""


def completed(text: str, page: Path) -> str:
    """The text of a page with what is made; KeyError: nobody makes that."""
    return pages.led_within_the_site(MARK.sub(lambda mark: MAKERS[mark[1]](mark[2], page), text), page)


def write_beside(site: Path, env: Any) -> None:
    """What is no page: what the search knows, the index for language models, the schema of config files for editors."""
    from tuner.cli.config_schema import schema

    (site / "_static" / "sections.js").write_text(sections.script(env), "utf-8")
    (site / "llms.txt").write_text(for_models.index(), "utf-8")
    (site / "tuner.schema.json").write_text(json.dumps(schema(), indent=2) + "\n", "utf-8")


__all__ = ["ABSENT", "MARK", "completed", "write_beside"]
