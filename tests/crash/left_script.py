"""The script that `test_left_behind.py` runs and kills: `python left_script.py STORAGE PLACE`."""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path
from typing import Any

import tuner as tune

EPOCHS = 5
TRIALS = 3
SIZE = 20_000_000
"""Of the larger file of a checkpoint: an upload in several parts, and long enough to be killed in it."""
FAILS_AT = 3
SAME = random.Random(0).randbytes(200_000)
"""What every checkpoint holds: sent once, then copied over there."""


def train(config: dict[str, Any]) -> None:
    storage = Path(config["storage"])
    checkpoint, start = tune.get_checkpoint(), 0
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            start = int(Path(directory, "epoch").read_text())
    for epoch in range(start + 1, EPOCHS + 1):
        failed = storage / f"failed-{config['i']}"
        if epoch == FAILS_AT and config["i"] == 0 and not failed.exists():
            failed.touch()
            raise ValueError("as it was told to")
        time.sleep(0.02)  # the training
        with tune.checkpoint_dir() as directory:
            Path(directory, "epoch").write_text(str(epoch))
            Path(directory, "deep").mkdir()
            Path(directory, "deep", "same").write_bytes(SAME)
            Path(directory, "weights").write_bytes(os.urandom(SIZE if config["i"] == 1 else 300_000))
        tune.report(v=random.Random(f"{config['i']}:{epoch}").random())


def main(storage: str, place: str) -> None:
    tune.run(
        train,
        name="e",
        config={"i": tune.grid_search(list(range(TRIALS))), "storage": storage},
        keep_checkpoints_num=1,
        checkpoint_score_attr="max-v",
        max_failures=9,
        resume="AUTO+ERRORED",
        seed=3,
        storage_path=storage,
        sync_config=tune.SyncConfig(upload_dir=place),
        resources_per_trial={"cpu": 0.5},
        verbose=0,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
