"""Publishes one checkpoint after the other, and says the number of each: DIRECTORY."""

import sys
from pathlib import Path

import msgspec

from trainables.store import publish, staging
from trainables.wire import CheckpointRef

trial_dir = Path(sys.argv[1])
for index in range(1, 10_000):
    ref = CheckpointRef("t", publish.checkpoint_name(index, 1, 1), 1, 1, index, index)
    staged = staging.new_directory(trial_dir, str(index))
    for part in range(8):
        (staged / f"part{part}").write_bytes(bytes([index % 256]) * 200_000)
    prepared = publish.prepare(staged, ref=ref, metrics=msgspec.Raw(b"{}"), created=0.0)
    publish.commit(prepared, trial_dir / ref.name)
    print(index, flush=True)
