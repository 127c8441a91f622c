"""Processes that a trial starts run the user's script only where that cannot start the run again."""

from __future__ import annotations

import os
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from tuner.executors.local.script_pickling import runnable_script


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """The user's script as the driver's main module."""
    main = types.ModuleType("__main__")
    main.__file__ = "/scripts/train.py"
    monkeypatch.setitem(sys.modules, "__main__", main)
    return main


GUARDED = {
    'if __name__ == "__main__":\n    start()\n': True,
    "def main():\n    start()\n\nif '__main__' == __name__:\n    main()\n": True,
    "if __name__ == '__main__' and start:\n    start()\n": True,
    "start()\nif __name__ == '__main__':\n    pass\n": False,
    "if __name__ == '__main__':\n    pass\nelse:\n    pass\nstart()\n": False,
    "if __name__ != '__main__':\n    pass\nelse:\n    start()\n": False,
}


@pytest.mark.parametrize("text", GUARDED)
def test_children_run_a_script_only_if_its_guard_keeps_the_run_out(text: str, script: Any, tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(text)
    found: list[Any] = []
    script.__file__ = str(file)
    script.start = lambda: found.append(runnable_script())
    exec(compile(text, str(file), "exec"), vars(script))
    assert found == [(str(file), "", os.getcwd()) if GUARDED[text] else None]


def test_children_run_no_script_that_is_none(script: Any) -> None:
    """Of `-c` and of a notebook, and one whose statements have ended."""
    assert runnable_script() is None
    del script.__file__
    assert runnable_script() is None
