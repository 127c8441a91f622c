"""The examples run, each in a fresh process and an own home, and leave on disk what they say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SEEDS = ROOT / "examples" / "seeds"

# Directories of checkpoints that each of the guides' listings leaves, over all its trials. The last is the latest.
KEPT = {
    "s001_shared_directory": [f"checkpoint_{step:06d}" for step in range(8)],
    "s001_custom_sync_function": [f"checkpoint_{step:06d}" for step in range(8)],
    "s001_local_checkpointing": [f"checkpoint_{step:06d}" for step in range(3, 8)],
    "s001_disable_syncing": [f"checkpoint_{step:06d}" for step in range(8)],
    "s003_function_api": [f"checkpoint_{epoch:06d}" for epoch in range(1, 6)],
    "s003_function_every_three": [f"checkpoint_{epoch:06d}" for epoch in (3, 6, 9, 12)],
    "s003_class_api": ["checkpoint_000002"],
    "s003_periodic": [],
    "s003_at_end": ["checkpoint_000002"],
    "s003_manual_by_callback": [f"checkpoint_{step:06d}" for step in (1, 3, 5)],
}


def environment(home: Path) -> dict[str, str]:
    """What a process sees whose home and temporary directory are a test's own."""
    temporary = home / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("TUNE_", "TUNER_"))}
    return kept | {"HOME": str(home), "TMPDIR": str(temporary), "PYTHONPATH": str(ROOT)}


def run(script: Path, home: Path, *, timeout: float = 100) -> str:
    """Run a script as a person would, but with a home of its own; returns what it printed."""
    done = subprocess.run(
        [sys.executable, str(script)],
        env=environment(home),
        cwd=home,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def checkpoints(home: Path) -> list[str]:
    return sorted(manifest.parent.name for manifest in home.rglob("checkpoint_*/.manifest.json"))


def as_written(name: str, home: Path) -> Path:
    """The listing, with its places inside this test's directory."""
    script = home / "listing" / f"{name}.py"
    script.parent.mkdir(parents=True)
    script.write_text((SEEDS / f"{name}.py").read_text().replace("/tmp/mypath", str(home / "mypath")))
    (script.parent / "your_module.py").write_text((SEEDS / "your_module.py").read_text())
    return script


@pytest.mark.torch
@pytest.mark.parametrize("name", sorted(KEPT))
def test_the_guides_listing_runs_as_written(name: str, tmp_path: Path) -> None:
    run(as_written(name, tmp_path), tmp_path)

    assert checkpoints(tmp_path) == KEPT[name]


def test_a_trainable_that_detects_preemption_saves_by_itself(tmp_path: Path) -> None:
    script = as_written("s003_manual_by_trainable", tmp_path)
    # 1 % of 200 steps is a matter of luck; a seed is not in the listing, so it is put before it.
    script.write_text(script.read_text().replace("choice <= 1", "choice <= 10"))

    run(script, tmp_path)

    assert checkpoints(tmp_path)


def test_every_listing_is_tested() -> None:
    listings = {path.stem for path in SEEDS.glob("s0*.py")}

    assert listings == set(KEPT) | {"s003_manual_by_trainable"}


def test_running_the_local_listing_again_shows_its_results_and_runs_nothing(tmp_path: Path) -> None:
    script = as_written("s001_local_checkpointing", tmp_path)
    run(script, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("checkpoint_*/*")}

    run(script, tmp_path)

    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("checkpoint_*/*")} == before


def test_function_trainable(tmp_path: Path) -> None:
    said = run(ROOT / "examples" / "function_trainable.py", tmp_path)

    assert "best config: {'lr': 0.4}" in said
    assert "'step': 20" in said


def test_class_trainable(tmp_path: Path) -> None:
    said = run(ROOT / "examples" / "class_trainable.py", tmp_path)

    assert "best loss:" in said
    assert len(checkpoints(tmp_path)) == 4 * 2


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.timeout(400)
def test_the_main_job_killed_in_the_middle_and_run_again_ends_with_a_good_model(tmp_path: Path) -> None:
    script = ROOT / "examples" / "digits_asha.py"
    with subprocess.Popen(
        [sys.executable, str(script)], env=environment(tmp_path), cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as first:
        assert first.stdout is not None
        next(line for line in first.stdout if "finished" in line)
        first.kill()

    said = run(script, tmp_path, timeout=380)

    assert "resuming from" in said
    closing = said.strip().splitlines()[-1]
    assert closing.startswith("accuracy of the model loaded back from it, on held-out data: ")
    assert float(closing.rpartition(" ")[2]) > 0.9
    assert "best config" in said
    assert "best checkpoint" in said
    trials = [trial for trial in tmp_path.rglob("train_*") if trial.is_dir()]
    assert len(trials) == 24
    for trial in trials:
        assert len(list(trial.glob("checkpoint_*"))) <= 3
        rows = [json.loads(line)["training_iteration"] for line in (trial / "result.json").read_text().splitlines()]
        assert rows == list(range(1, len(rows) + 1))
