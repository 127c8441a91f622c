"""Saves and deletes checkpoints in lives that are killed at each instant: DIRECTORY SIZE (lent | handed over)."""

import os
import signal
import sys
from pathlib import Path

import msgspec

from trainables.store import delete, fs, publish, staging
from trainables.wire import CheckpointRef

root, size, how = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
CALLS = (
    "mkdir",
    "rename",
    "create",
    "write",
    "close",
    "fsync",
    "fsync_file",
    "fsync_dir",
    "copy_file",
    "unlink",
    "rmdir",
)
originals = {name: getattr(fs, name) for name in CALLS}
left = 0


def instant():
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)


def killing(name):
    def call(*args, **kwargs):
        instant()
        if name == "copy_file":  # killed in the middle of the bytes
            data = Path(args[0]).read_bytes()
            with open(args[1], "wb", buffering=0) as file:
                for quarter in range(4):
                    file.write(data[quarter * len(data) // 4 : (quarter + 1) * len(data) // 4])
                    instant()
            return len(data)
        return originals[name](*args, **kwargs)

    return call


def save(trial_dir, index):
    ref = CheckpointRef("t", publish.checkpoint_name(index, 1, 1), 1, 1, index, index)
    if how == "lent":
        mine = trial_dir.parent / "mine"
        mine.mkdir(parents=True, exist_ok=True)
        (mine / "model.bin").write_bytes(bytes([index]) * size)
        staged = staging.lend(mine, trial_dir, str(index))
    else:
        staged = staging.new_directory(trial_dir, str(index))
        with open(staged / "model.bin", "wb", buffering=0) as file:  # the user's own torch.save
            for _ in range(4):
                file.write(bytes([index]) * (size // 4))
                instant()
    prepared = publish.prepare(staged, ref=ref, metrics=msgspec.Raw(b"{}"), created=0.0)
    publish.commit(prepared, trial_dir / ref.name)
    return trial_dir / ref.name


number = 0
while True:
    number += 1
    trial_dir = root / f"{number:03d}" / "trial"
    child = os.fork()
    if child == 0:
        old = save(trial_dir, 1)
        for name in CALLS:
            setattr(fs, name, killing(name))
        left = number
        save(trial_dir, 2)
        delete.delete(old)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status):
        sys.exit(os.WEXITSTATUS(status))
    print(trial_dir, flush=True)
    sys.stdin.readline()  # looked at
