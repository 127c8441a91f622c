"""Places elsewhere that are no bucket: a host's directory, over ssh."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.servers import hosts
from tests.tuner.ui.served import client, data, serving
from tuner.ui import served_places


def test_experiments_on_another_host_are_served(
    experiment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts.require()
    monkeypatch.setattr(served_places, "START_S", 60.0)  # else a slow ssh is one line more
    with hosts.network(tmp_path) as net:
        host = net.host()
        ssh = tmp_path / "bin" / "ssh"
        ssh.parent.mkdir()
        ssh.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {net.ssh_config} "$@"\n')
        ssh.chmod(0o755)
        monkeypatch.setenv("PATH", f"{ssh.parent}:{os.environ['PATH']}")
        with net.enter():
            subprocess.run(["rsync", "-a", experiment, host.uri("/srv/home/")], check=True)
            told: list[str] = []
            places = [host.uri("/srv/home"), host.uri("/srv/home/first"), host.uri("/srv/home/none")]
            with serving(places, tell=told.append) as server, client(server) as pages:
                assert data(pages, "experiments.json")["experiments"]["name"] == ["first"]
                overview = data(pages, "e/first/overview.json")
            assert (overview["trials"], overview["state"], overview["trouble"]) == (6, "finished", None)
            (line,) = told
            assert f"there is no experiment at {places[2]}" in line
