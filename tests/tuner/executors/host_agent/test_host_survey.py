"""What an agent finds on its host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tuner.executors.remote.harness import (
    KEY,
    Scene,
)
from trainables.errors import (
    CheckpointError,
)
from trainables.store import verify
from tuner.executors.host_agent.host_survey import check


def test_a_checkpoint_that_a_host_cannot_read_just_now_is_not_set_aside_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path)
    scene.saved("a")
    there = scene.disk("a").there / KEY

    def unreadable(path: Path, **settings: Any) -> None:
        raise CheckpointError(f"{path} cannot be read just now: Input/output error")

    monkeypatch.setattr(verify, "check", unreadable)
    with pytest.raises(CheckpointError, match="just now"):
        check(there, "")
    assert there.is_dir()
