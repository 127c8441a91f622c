"""The environment variables, from the docstrings of the two modules that read them."""

from __future__ import annotations

import inspect
import re

import trainables.knobs
import tuner.knobs
from made.docstrings import cell

NAME = re.compile(r"^([A-Z][A-Z0-9_*]*(?:=\S+)?)")


def table() -> str:
    """Each variable with what it says."""
    lines = ["| variable | meaning |", "|---|---|"]
    for module in (tuner.knobs, trainables.knobs):
        for name, function in vars(module).items():
            said = " ".join((inspect.getdoc(function) or "").split())
            named = NAME.match(said)
            if name.startswith("_") or not inspect.isfunction(function) or not named:
                continue
            lines.append(f"| `{named[1].rstrip(':,')}` | {cell(said[len(named[1]) :].lstrip(':, '))} |")
    return "\n".join(lines)
