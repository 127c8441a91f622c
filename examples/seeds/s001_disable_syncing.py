import tuner as tune
from your_module import my_trainable as func

sync_config = tune.SyncConfig(syncer=None)
tune.run(func, sync_config=sync_config)
