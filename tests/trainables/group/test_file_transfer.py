"""Files of a group between its hosts: what a rank saved goes to the leader, a checkpoint comes from there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.trainables.group.harness import leftovers, notes, run_nodes, save_all
from trainables.wire import Finished


def test_hosts_that_share_the_directory_send_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trainables.group.file_transfer import LeaderFiles

    monkeypatch.setattr(LeaderFiles, "send", lambda *_: os._exit(9))
    monkeypatch.setattr(LeaderFiles, "fetch", lambda *_: os._exit(9))

    link = run_nodes(save_all, tmp_path, shared=True)

    assert link.end == Finished()
    assert link.ended() == [0]
    assert [each["newest"]["of_2"] for each in notes(tmp_path)] == ["1"] * 3
    assert not leftovers(tmp_path)
