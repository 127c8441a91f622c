"""`tuner ui` as people start it."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tuner.cli import main

UI = [sys.executable, "-m", "tuner.cli", "ui"]


def test_one_line_a_page_and_an_end_in_order(experiment: Path, tmp_path: Path) -> None:
    environ = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    command = [*UI, str(experiment.parent)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ, text=True) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            address = process.stdout.readline().strip()
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[A-Za-z0-9_-]{32,}", address)
            with httpx.Client(follow_redirects=True, trust_env=False) as pages:
                assert pages.get(address).status_code == 200
                base = address.partition("?")[0]
                with pages.stream("GET", f"{base}e/{experiment.name}/events") as events:
                    assert next(events.iter_lines()).startswith("retry")
                    process.send_signal(signal.SIGTERM)
                    assert process.wait(20) == 0
            assert process.stdout.read() == "" and "Traceback" not in process.stderr.read()
        finally:
            process.kill()
    (token,) = tmp_path.rglob("ui-token")
    assert stat.S_IMODE(token.stat().st_mode) == 0o600 and token.read_text().strip() in address


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["/nowhere/at/all"], "there is no experiment at /nowhere/at/all"),
        ([".", "--read-only", "nothing://x/y"], "the scheme 'nothing' is not known"),
        ([".", "--host", "300.1.1.1"], "300.1.1.1:0 cannot be listened on"),
        ([".", "--port", "70000"], "port=70000 is not accepted; accepted are 1 to 65535"),
        ([".", "--allow-host", "https://hub"], "allow_host='https://hub' is not accepted; accepted is a host's name"),
    ],
)
def test_what_cannot_be_served_is_said(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert main(["ui", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_path_that_cannot_be_looked_at_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ui", "x" * 300]) == 1
    said = capsys.readouterr().err
    assert "x" * 300 in said and "File name too long" in said and "not understood" not in said
