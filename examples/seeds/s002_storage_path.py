import tuner as tune
import trainables as train
from trainables import Checkpoint
from trainables import RunConfig, CheckpointConfig


def train_func(config):
    for epoch in range(5):
        checkpoint = Checkpoint.from_dict(
            dict(epoch=epoch)
        )
        train.report({"mean_accuracy": 1 - 0.1 * abs(epoch - 1)}, checkpoint=checkpoint)


run_config = RunConfig(
    checkpoint_config=CheckpointConfig(
        # Only keep the 2 *best* checkpoints and delete the others.
        num_to_keep=2,
        # *Best* checkpoints are determined by these params:
        checkpoint_score_attribute="mean_accuracy",
        checkpoint_score_order="max",
    ),
    # This will store checkpoints on S3.
    storage_path="s3://remote-bucket/location",
)
tune.Tuner(train_func, run_config=run_config).fit()
