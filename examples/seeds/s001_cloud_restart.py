import tuner as tune
from your_module import my_trainable

# the listing before this one in the guide defines it
sync_config = tune.SyncConfig(
    upload_dir="s3://my-checkpoints-bucket/path/",  # requires AWS credentials
)

# Restored previous trial from the given checkpoint
tune.run(
    # our same trainable as before
    my_trainable,

    # The name can be different from your original name
    name="my-tune-exp-restart",

    # our same config as above!
    restore=sync_config,
)
