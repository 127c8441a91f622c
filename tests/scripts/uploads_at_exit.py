"""Saves three times and ends at once: DIRECTORY PLACE (return | raise)."""

import multiprocessing
import sys
from pathlib import Path

from trainables import SyncConfig
from trainables.torch import AtomicDirectory

config = SyncConfig(upload_dir=sys.argv[2], sync_period=10**6)
saver = AtomicDirectory(sys.argv[1], True, "run", sync_config=config)
for number in range(3):
    directory = saver.prepare_checkpoint_directory()
    for name in "abc":
        Path(directory, name).write_text(str(number))
    saver.symlink_latest(directory)
child = multiprocessing.get_context("fork").Process(target=int)  # as a DataLoader's worker
child.start()
child.join()
assert "torch" not in sys.modules
if sys.argv[3] == "raise":
    raise SystemExit("as it happens")
