"""Copies in a bucket: lose the machine, run the same script on another one, and it goes on from the bucket.

    python examples/bucket.py s3://my-bucket/runs

Any place that `upload_dir` takes will do, a directory too.
"""

from __future__ import annotations

import sys

import tuner as tune


def train(config: dict) -> None:
    """Walk down a parabola; the learning rate decides how fast."""
    x, start = 10.0, 0
    checkpoint = tune.get_checkpoint()
    if checkpoint:
        state = checkpoint.to_dict()
        x, start = state["x"], state["step"]
    for step in range(start, 20):
        x -= config["lr"] * 2 * x
        tune.report({"loss": x * x}, checkpoint=tune.Checkpoint.from_dict({"x": x, "step": step + 1}))


if __name__ == "__main__":
    analysis = tune.run(
        train,
        name="bucket",
        config={"lr": tune.grid_search([0.01, 0.1, 0.4])},
        metric="loss",
        mode="min",
        keep_checkpoints_num=2,
        checkpoint_score_attr="min-loss",
        sync_config=tune.SyncConfig(upload_dir=sys.argv[1]),
        resume="AUTO",
    )
    print("best config:", analysis.best_config)
    print("best checkpoint:", analysis.best_checkpoint.to_dict())
