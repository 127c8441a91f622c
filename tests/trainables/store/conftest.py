"""A trial's directory, and saves into it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from trainables.store import publish, staging
from trainables.store.manifest import Published
from trainables.wire import CheckpointRef

Save = Callable[..., Published]


def reference(index: int, *, generation: int = 1, attempt: int = 1, iteration: int | None = None) -> CheckpointRef:
    number = index if iteration is None else iteration
    name = publish.checkpoint_name(number, generation, attempt)
    return CheckpointRef("abc_00000", name, generation, attempt, index, number)


@pytest.fixture
def trial_dir(tmp_path: Path) -> Path:
    directory = tmp_path / "train_abc_00000"
    directory.mkdir()
    return directory


@pytest.fixture
def save(trial_dir: Path) -> Save:
    """save(index, {"a.bin": b"..."}) publishes a checkpoint of those files."""

    def make(index: int, files: dict[str, bytes] | None = None, **place: int) -> Published:
        ref = reference(index, **place)
        staged = staging.new_directory(trial_dir, str(index))
        for name, data in (files or {"model.bin": bytes([index % 256]) * 1000}).items():
            (staged / name).parent.mkdir(parents=True, exist_ok=True)
            (staged / name).write_bytes(data)
        prepared = publish.prepare(staged, ref=ref, metrics=msgspec.Raw(b'{"loss":0.5}'), created=1e9)
        return publish.commit(prepared, trial_dir / ref.name)

    return make


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of 2 MB of its own."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "none", place], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"mounting is not allowed here: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)
