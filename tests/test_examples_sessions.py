"""The examples of sessions are killed, with their driver or without, and the same command goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.listings import ROOT, environment, run, said_by
from tests.tuner.asking.callers import driver, history, lives, until

EXAMPLES = ROOT / "examples"


@pytest.mark.torch
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("name", "trials", "whole", "victims"),
    [
        ("session_cross_val_score", 6, 5, "caller"),
        ("session_torch_loop", 6, 6, "both"),
        ("session_command", 4, 6, "driver"),
    ],
)
def test_a_session_that_is_killed_goes_on(name: str, trials: int, whole: int, victims: str, tmp_path: Path) -> None:
    storage = tmp_path / "tuner_results"
    script = subprocess.Popen(
        [sys.executable, str(EXAMPLES / f"{name}.py")],
        env=environment(tmp_path),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with script:
        until(lambda: len(history(storage, name).kind("published")) >= 3 or script.poll() is not None)
        assert script.poll() is None, script.stdout
        if victims in ("driver", "both"):
            os.kill(driver(storage, name), signal.SIGKILL)
        if victims in ("caller", "both"):
            script.kill()
        else:
            said, _ = script.communicate(timeout=250)
            assert "best config:" in said

    if victims == "caller":
        until(lambda: not lives(storage, name))
    said = said_by(run(EXAMPLES / f"{name}.py", tmp_path, timeout=250))

    assert "best config:" in said
    found = history(storage, name)
    ended = found.kind("ended")
    assert len(ended) == len({fact["trial"] for fact in ended}) == trials
    assert {fact["status"] for fact in ended} == {"TERMINATED"}
    continued = [fact for fact in found.kind("attempt") if fact.get("checkpoint") or fact.get("iteration")]
    assert continued, "nothing went on from where it was"
    for trial in {fact["trial"] for fact in ended}:
        iterations = [fact["iteration"] for fact in found.of(trial) if fact["kind"] in ("result", "rolled_back")]
        assert max(iterations) <= whole
        assert json.loads((next((storage / name).glob(f"*{trial}")) / "result.json").read_text().splitlines()[-1])
    until(lambda: not lives(storage, name))
