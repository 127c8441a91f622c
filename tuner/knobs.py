"""The only place of `tuner` that reads environment variables: one function per knob."""

from __future__ import annotations

import os


def result_dir() -> str | None:
    """TUNE_RESULT_DIR: where experiments go when no `storage_path` is given."""
    return os.environ.get("TUNE_RESULT_DIR")


def cuda_visible_devices() -> str | None:
    """CUDA_VISIBLE_DEVICES: the GPUs that this process was given."""
    return os.environ.get("CUDA_VISIBLE_DEVICES")


def environment() -> dict[str, str]:
    """A copy of the whole environment, for a process that is to be started with it."""
    return dict(os.environ)
