"""Programs that use nothing of ours, run as they are, killed, and continued as if they had not been."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import tuner as tune

OTHERS = Path(__file__).parent / "others"
PYTHON = sys.executable
STATE = {"trainer_state": "{trial_dir}/checkpoint-*/trainer_state.json"}
SAVES = {"glob": "{trial_dir}/checkpoint-(?P<step>[0-9]+)", "complete": {"marker": "trainer_state.json"}}
TRAINER = (
    "--output_dir {trial_dir} --learning_rate {lr} --max_steps 5 --per_device_train_batch_size 4 --save_strategy steps "
    "--save_steps 1 --save_total_limit 2 --logging_steps 1 --report_to none --use_cpu true --disable_tqdm true "
    "[[--resume_from_checkpoint {checkpoint}]]"
)
TIMED = ("runtime", "per_second", "total_flos", "num_tokens")
"""Metrics that measure time or, at TRL, count from the start of a process, by a part of their names."""


def script(place: Path, command: str, given: dict[str, Any], lr: float = 0.05) -> Path:
    """A script that runs the command as a trial, beside all programs."""
    shutil.copytree(OTHERS, place, dirs_exist_ok=True)
    path = place / "script.py"
    path.write_text(
        f"import tuner as tune\ntrain = tune.Command({command!r}, **{given!r})\n"
        f"tune.run(train, config={{'lr': {lr}}}, name='e', storage_path='results', resume='AUTO', verbose=0,\n"
        "         keep_checkpoints_num=1)\n"
    )
    return path


def proven(path: Path) -> None:
    said = subprocess.run(
        [PYTHON, "-m", "tuner.cli", "prove", path.name, "--kills", "1"],
        capture_output=True,
        text=True,
        timeout=115,
        cwd=path.parent,
    )
    assert said.returncode == 0, said.stdout + said.stderr


def results(place: Path) -> list[dict[str, Any]]:
    """What was reported, but for the time it took."""
    (trial,) = tune.ExperimentAnalysis(place / "results" / "e").trials
    assert trial.status == "TERMINATED"
    assert len(list(Path(trial.path).glob("checkpoint_*"))) == 1
    automatic = {"timestamp", "date", "time_total_s", "time_this_iter_s", "pid", "hostname", "node_ip"} | {
        "time_since_restore",
        "iterations_since_restore",
    }
    rows = map(json.loads, (Path(trial.path) / "result.json").read_text().splitlines())
    return [
        {key: value for key, value in row.items() if key not in automatic and not any(part in key for part in TIMED)}
        for row in rows
    ]


def same_after_a_kill(tmp_path: Path, command: str, given: dict[str, Any]) -> list[dict[str, Any]]:
    """Run it whole, and in another place kill it with its driver once something is saved; the results are the same."""
    whole, killed = (script(tmp_path / name, command, given) for name in ("whole", "killed"))
    subprocess.run([PYTHON, whole.name], cwd=whole.parent, check=True, timeout=200)
    driver = subprocess.Popen([PYTHON, killed.name], cwd=killed.parent)
    while not list(killed.parent.glob("results/e/*/checkpoint_00000[23]*")):
        assert driver.poll() is None
        time.sleep(0.05)
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    subprocess.run([PYTHON, killed.name], cwd=killed.parent, check=True, timeout=200)
    expected = results(tmp_path / "whole")
    for row in (both := results(tmp_path / "killed")) + expected:
        row.pop("trial_id"), row.pop("experiment_tag", None)
    assert both == expected
    return both


def test_torchrun_with_two_processes(tmp_path: Path) -> None:
    torchrun = Path(PYTHON).with_name("torchrun")
    line = f"{torchrun} --standalone --nproc-per-node 2 ddp.py --lr {{lr}} --out {{trial_dir}}"
    given = {
        "metrics": {"jsonl": "{trial_dir}/log.jsonl", "step": "step"},
        "checkpoints": {"glob": "{trial_dir}/ckpt-(?P<step>[0-9]+)", "complete": {"marker": "DONE"}},
        "resume": "--resume-from {checkpoint}",
    }
    proven(script(tmp_path, line, given))


def test_xgboost_whose_saves_are_files(tmp_path: Path) -> None:
    line = f"{PYTHON} boost.py --eta {{lr}} --model-dir {{checkpoint_dir}} [[--model-in {{checkpoint}}]]"
    given = {
        "metrics": {"regex": r"train-rmse:(?P<rmse>[0-9.]+)"},
        "checkpoints": {"glob": "{checkpoint_dir}/round-(?P<step>[0-9]+).json", "complete": "renamed"},
    }
    proven(script(tmp_path, line, given))


def test_a_shell_script(tmp_path: Path) -> None:
    given = {
        "metrics": {"regex": r"n=(?P<n>\d+) sum=(?P<sum>\d+)", "step": "n"},
        "checkpoints": {"glob": "{checkpoint_dir}/sum-(?P<step>[0-9]+)", "complete": "renamed"},
    }
    proven(script(tmp_path, "sh count.sh {lr} {checkpoint_dir} [[{checkpoint}]]", given, lr=3))


@pytest.mark.soak
def test_the_trainer_of_transformers(tmp_path: Path) -> None:
    line = f"{PYTHON} hf_trainer.py --width 8 --eval_strategy steps --eval_steps 1 {TRAINER}"
    rows = same_after_a_kill(tmp_path, line, {"metrics": STATE, "checkpoints": SAVES})
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5]
    assert all("eval_loss" in row and "loss" in row for row in rows)


@pytest.mark.soak
def test_trl_with_an_adapter(tmp_path: Path) -> None:
    line = f"{PYTHON} sft.py --lora_r 2 --max_length 16 --packing false {TRAINER}"
    rows = same_after_a_kill(tmp_path, line, {"metrics": STATE, "checkpoints": SAVES})
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5]
    (kept,) = (tmp_path / "killed").glob("results/e/*/checkpoint_*")
    assert (kept / "adapter_model.safetensors").exists() and not (kept / "model.safetensors").exists()


@pytest.mark.soak
def test_the_command_line_of_lightning(tmp_path: Path) -> None:
    pytest.importorskip("jsonargparse", reason="no jsonargparse here: make programs runs this")
    line = f"{PYTHON} {OTHERS / 'cli.py'} fit --config {{config_file}} [[--ckpt_path {{checkpoint}}]]"
    given = {
        "metrics": {"tensorboard": "{trial_dir}"},
        "checkpoints": {"glob": "{trial_dir}/s(?P<step>[0-9]+).ckpt", "complete": {"quiet_s": 0.2}},
        "config": {"file": "cli.yaml", "set": {"model.lr": "lr"}},
        "cwd": "{trial_dir}",
    }
    rows = same_after_a_kill(tmp_path, line, given)
    assert len([row for row in rows if "loss" in row]) == 6
