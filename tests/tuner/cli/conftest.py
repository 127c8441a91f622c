import shutil
from pathlib import Path

import pytest

from tests.tuner.replicated import bucket, cache, place, server
from tuner.cli import main

__all__ = ["bucket", "cache", "place", "server"]

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A config file, with its trainable beside it."""
    shutil.copy(SCRIPTS / "saves_each_step.py", tmp_path / "train.py")
    path = tmp_path / "small.yaml"
    said = (SCRIPTS / "saves_each_step.yaml").read_text()
    path.write_text(said + f"storage_path: {tmp_path / 'results'}\n")
    return path


@pytest.fixture
def experiment(config: Path) -> Path:
    """What a run by that file has left."""
    assert main(["run", str(config)]) == 0
    return config.parent / "results" / "small"
