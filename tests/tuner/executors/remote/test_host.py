"""A node as the driver knows it, with a real agent: Ray runs on this machine alone, and the "host" is a directory."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.timeout(400)]

_REPOSITORY = Path(__file__).resolve().parents[4]
_SCRIPT = _REPOSITORY / "tests" / "scripts" / "host_with_an_agent.py"


@pytest.fixture
def ray_directory() -> Iterator[str]:
    """Short, for there are sockets in it."""
    directory = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


def seen(what: str, root: Path, ray_directory: str) -> dict[str, Any]:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "TUNER_"))},
        "PYTHONPATH": str(_REPOSITORY),
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    command = [sys.executable, _SCRIPT, root, ray_directory, what]
    ran = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=200)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    line = next(line for line in ran.stdout.splitlines() if line.startswith("SEEN "))
    found: dict[str, Any] = json.loads(line.removeprefix("SEEN "))
    return found


def test_a_host_that_cannot_use_the_place_now_is_not_taken_for_one_that_is_gone(
    tmp_path: Path, ray_directory: str
) -> None:
    found = seen("uploads", tmp_path, ray_directory)
    first = found["first"]
    assert not first["kind"].startswith("checkpoint"), first  # that would say that there is nothing to copy any more
    assert "mount" in first["message"] and "gone" not in first["message"]
    assert found["later"] == ["Done", "Done"]
    assert found["there"] == [".manifest.json", "model"]
    assert found["dead"] == "checkpoint lost"


def test_the_end_of_a_host_that_is_reached_through_the_engine_alone_is_waited_for(
    tmp_path: Path, ray_directory: str
) -> None:
    assert seen("ends", tmp_path, ray_directory) == {"left": False}
