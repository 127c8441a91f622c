"""Trackers within a trial: `setup_wandb`, `setup_mlflow`, and the mixins and decorators that Ray Tune once had."""
