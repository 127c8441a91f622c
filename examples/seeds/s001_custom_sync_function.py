import subprocess

import tuner as tune
from your_module import my_trainable as trainable


def custom_sync_func(source, target):
    sync_cmd = "rsync {source} {target}".format(
        source=source,
        target=target)
    sync_process = subprocess.Popen(sync_cmd, shell=True)
    sync_process.wait()

tune.run(
    trainable,
    name="experiment_name",
    sync_config=tune.SyncConfig(
        syncer=custom_sync_func,
        sync_period=60  # Synchronize more often
    )
)
