import tuner as tune
from your_module import my_trainable as trainable

tune.run(
    trainable,
    name="experiment_name",
    sync_config=tune.SyncConfig(
        upload_dir="s3://bucket-name/sub-path/",
        syncer="aws s3 sync {source} {target}",  # Custom sync command
    )
)
