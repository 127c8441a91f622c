import os
import tempfile

import tuner as tune
from your_module import my_trainable as trainable

tune.run(
    trainable,
    name="experiment_name",
    local_dir=os.path.join(tempfile.gettempdir(), "shared_storage"),
    sync_config=tune.SyncConfig(
        syncer=None  # Disable syncing
    )
)
