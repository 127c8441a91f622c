"""The command line, from its parsers."""

from __future__ import annotations

import argparse
import os
from unittest import mock

from tuner.cli import parser


def verbs() -> str:
    """A section for each verb, with what `--help` prints."""
    with mock.patch.dict(os.environ, {"COLUMNS": "100"}):
        top = parser()
        (choices,) = (each for each in top._actions if isinstance(each, argparse._SubParsersAction))
        help_of = {each.dest: each.help or "" for each in choices._choices_actions}
        sections = [
            f"## tuner {name}\n\n{help_of[name]}\n\n```text\n{verb.format_help().rstrip()}\n```\n"
            for name, verb in choices.choices.items()
        ]
    return "\n".join(sections)
