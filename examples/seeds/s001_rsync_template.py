import tuner as tune
from your_module import my_trainable as trainable

tune.run(
    trainable,
    name="experiment_name",
    sync_config=tune.SyncConfig(
        # Do not specify an upload dir here
        syncer='rsync -savz -e "ssh -i ssh_key.pem" {source} {target}',  # Custom sync command
    )
)
