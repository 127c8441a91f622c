"""Hydra's `hydra/sweeper=tuner`: the jobs of a multirun as the trials of an experiment."""
