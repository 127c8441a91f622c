"""A run without a loop that is shown on a screen in memory."""

from __future__ import annotations

import io
from typing import Any

from tuner.experiment import events as ev
from tuner.progress import (
    Progress,
)
from tuner.progress.screen import PlainScreen, TerminalScreen

ERROR = ev.ErrorInfo(
    "ValueError",
    "boom\nand more",
    'Traceback (most recent call last):\n  File "user.py", line 12, in train\n    step(model)\n'
    + "".join(f'  File "/v/site-packages/lib.py", line {n}, in f{n}\n    f{n}()\n' for n in range(40))
    + "ValueError: boom\n",
)


def plain(clock: Any = None, **settings: Any) -> tuple[Progress, io.StringIO]:
    out = io.StringIO()
    settings = {"metric": "loss", "mode": "min", "verbose": 2, **settings}
    return Progress(screen=PlainScreen(out), clock=clock, **settings), out


def terminal(clock: Any = None, **settings: Any) -> tuple[Progress, io.StringIO]:
    from rich.console import Console

    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=120, height=30, legacy_windows=False)
    settings = {"metric": "loss", "mode": "min", "verbose": 2, **settings}
    return Progress(screen=TerminalScreen(console), clock=clock, **settings), out
