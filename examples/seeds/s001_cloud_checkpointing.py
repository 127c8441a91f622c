import tuner as tune
from your_module import my_trainable

# configure how checkpoints are sync'd to the scheduler/sampler
# we recommend cloud storage checkpointing as it survives the cluster when
# instances are terminated, and has better performance
sync_config = tune.SyncConfig(
    upload_dir="s3://my-checkpoints-bucket/path/",  # requires AWS credentials
)

# this starts the run!
tune.run(
    my_trainable,

    # name of your experiment
    name="my-tune-exp",

    # a directory where results are stored before being
    # sync'd to head node/cloud storage
    local_dir="/tmp/mypath",

    # see above! we will sync our checkpoints to S3 directory
    sync_config=sync_config,

    # we'll keep the best five checkpoints at all times
    # checkpoints (by AUC score, reported by the trainable, descending)
    checkpoint_score_attr="max-auc",
    keep_checkpoints_num=5,

    # a very useful trick! this will resume from the last run specified by
    # sync_config (if one exists), otherwise it will start a new tuning run
    resume="AUTO",
)
