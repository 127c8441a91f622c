"""A trainable that saves at each step, and fails at the third one if its config says so."""

import tuner as tune


def train(config):
    step = 0
    checkpoint = tune.get_checkpoint()
    if checkpoint:
        step = checkpoint.to_dict()["step"]
    while step < config["steps"]:
        step += 1
        if config.get("fails") and step == 3:
            raise RuntimeError("as configured")
        tune.report({"loss": config["x"] / step}, checkpoint=tune.Checkpoint.from_dict({"step": step}))
