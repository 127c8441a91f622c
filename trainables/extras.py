"""The command that installs what an optional part of these packages needs."""

from __future__ import annotations

import os

DISTRIBUTION = "tuner"
_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def how_to_install(extra: str) -> str:
    """`pip install ...` for an extra: of a source checkout, where this runs from one, else of what is installed."""
    checkout = os.path.exists(os.path.join(_ROOT, "setup.cfg"))
    return f'pip install -e "{_ROOT}[{extra}]"' if checkout else f'pip install "{DISTRIBUTION}[{extra}]"'
