"""Checkpoints on disk: staged out of sight, published in one atomic step, verified before use, deleted in order."""
