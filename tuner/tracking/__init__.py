"""Trackers of others: what trials report, sent to Weights & Biases, MLflow, Comet or Aim; one module for each."""
