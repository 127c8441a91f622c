"""What a reader can know of an experiment, as plain values: checkpoints and why, lineage, differences, changes."""
