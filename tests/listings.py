"""Running the examples as a person would: a fresh process, with a home and a temporary directory of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SEEDS = ROOT / "examples" / "seeds"
SCRIPTS = ROOT / "tests" / "scripts"
"""What tests run as processes of their own."""


def environment(home: Path, **more: str) -> dict[str, str]:
    """What a process sees whose home and temporary directory are a test's own; `more` is set besides."""
    temporary = home / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("TUNE_", "TUNER_", "AWS_"))}
    programs = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"  # `aws` of this environment
    own = {"HOME": str(home), "TMPDIR": str(temporary), "PYTHONPATH": str(ROOT), "PATH": programs}
    return kept | own | more


def run(
    script: Path, home: Path, *arguments: str, timeout: float = 100, launcher: Sequence[str] = (), **more: str
) -> subprocess.CompletedProcess[str]:
    """Run a script to its end; `more` is set in its environment besides."""
    return subprocess.run(
        [sys.executable, *launcher, str(script), *arguments],
        env=environment(home, **more),
        cwd=home,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def said_by(done: subprocess.CompletedProcess[str]) -> str:
    """What a script printed that ended well."""
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def as_written(name: str, home: Path, *, steps: int = 8) -> Path:
    """The listing, with its places inside this test's directory; what it imports saves so many steps."""
    script = home / "listing" / f"{name}.py"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text((SEEDS / f"{name}.py").read_text().replace("/tmp/mypath", str(home / "mypath")))
    module = (SEEDS / "your_module.py").read_text()
    assert module.count("range(start, 8)") == 1
    (script.parent / "your_module.py").write_text(module.replace("range(start, 8)", f"range(start, {steps})"))
    return script


def checkpoints(place: Path) -> list[str]:
    """The names of the complete checkpoints anywhere below a directory, sorted."""
    return sorted(manifest.parent.name for manifest in place.rglob("checkpoint_*/.manifest.json"))


EIGHT = [f"checkpoint_{step:06d}" for step in range(8)]
FOUR = EIGHT[:4]
"""Where a program or a connection is started for each checkpoint, and each takes a second."""
BEST_FIVE = EIGHT[3:]

BUCKETS = {
    "s001_cloud_storage": ("bucket-name", "sub-path/experiment_name", EIGHT),
    "s001_cloud_custom_command": ("bucket-name", "sub-path/experiment_name", FOUR),
    "s001_cloud_checkpointing": ("my-checkpoints-bucket", "path/my-tune-exp", BEST_FIVE),
    "s001_cloud_restart": ("my-checkpoints-bucket", "path/my-tune-exp-restart", BEST_FIVE),
    "s002_storage_path": (
        "remote-bucket",
        "location/*",
        ["checkpoint_000001", "checkpoint_000002", "checkpoint_000005"],
    ),
}
"""Listing -> the bucket that it names, where in it the experiment lies, and the checkpoints that are kept there."""
