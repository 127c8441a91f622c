"""The recipe of docs/fine-tuning.md runs with the real TRL and PEFT, and continues after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import tuner as tune
from tests.listings import ROOT, environment, run, said_by

EXAMPLE = (ROOT / "examples" / "fine_tune_lora.py").read_text()


@pytest.mark.torch
@pytest.mark.timeout(900)
def test_killed_it_goes_on_and_keeps_adapters_only(tmp_path: Path) -> None:
    script = tmp_path / "fine_tune_lora.py"
    assert EXAMPLE.count("num_samples=6") == EXAMPLE.count("grace_period=2") == 1
    script.write_text(EXAMPLE.replace("num_samples=6", "num_samples=2").replace("grace_period=2", "grace_period=6"))
    results = tmp_path / "tuner_results" / "fine_tune_lora"

    driver = subprocess.Popen([sys.executable, script], cwd=tmp_path, env=environment(tmp_path))
    while not list(results.glob("*/checkpoint_00000[2-6]/.manifest.json")):
        assert driver.poll() is None
        time.sleep(0.1)
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    assert "resuming from" in said_by(run(script, tmp_path, timeout=600))

    trials = tune.ExperimentAnalysis(results).trials
    assert [trial.status for trial in trials] == ["TERMINATED"] * 2
    for trial in trials:
        rows = [json.loads(line) for line in (Path(trial.path) / "result.json").read_text().splitlines()]
        assert [row["step"] for row in rows] == [5, 10, 15, 20, 25, 30]
        assert all(row["eval_loss"] > 0 for row in rows)
        for checkpoint in Path(trial.path).glob("checkpoint_*"):
            names = {path.name for path in checkpoint.rglob("*.safetensors")}
            assert names == {"adapter_model.safetensors"}  # and nothing of the base model's
