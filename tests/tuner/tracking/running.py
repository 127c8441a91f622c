"""Runs `tests/scripts/tracked.py`: once to its kill, and once more to its end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).parents[2] / "scripts" / "tracked.py"


def tracked(tracker: str, directory: Path, *, killed_at: int = 0, life: str = "", **settings: Any) -> list[str]:
    """The ids of the trials; [] of a driver that was killed."""
    command = [sys.executable, str(SCRIPT), tracker, str(directory), json.dumps(settings)]
    environment = {**os.environ, "LIFE": life, "PYTHONPATH": str(SCRIPT.parents[2]), "WANDB_SILENT": "true"}
    if killed_at:
        done = subprocess.run([*command, str(killed_at)], env=environment, capture_output=True, text=True, timeout=100)
        assert done.returncode == -9, done.stdout + done.stderr
        return []
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    ids: list[str] = json.loads(done.stdout.splitlines()[-1].replace("'", '"'))
    return ids


def killed_and_resumed(tracker: str, directory: Path, **settings: Any) -> list[str]:
    tracked(tracker, directory, killed_at=5, life="1", **settings)
    return tracked(tracker, directory, life="2", **settings)
