"""The examples of schedulers and callbacks run in a fresh process, and print what they are about."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.listings import ROOT, run, said_by

SAY = {
    "hyperband": "iterations of the trials: [3, 3, 3, 3, 3, 3, 9, 9, 9, 9, 9, 9, 27,",
    "pbt": ": from ",
    "pb2": "best config: {'rate':",
    "custom_scheduler": "{1: 3, 2: 3, 3: 8, 4: 8}",
    "custom_callback": "saved at iterations [1, 2, 4]",
}


@pytest.mark.parametrize("name", sorted(SAY))
def test_it_runs_and_says(name: str, tmp_path: Path) -> None:
    assert SAY[name] in said_by(run(ROOT / "examples" / f"{name}.py", tmp_path))
