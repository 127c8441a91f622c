"""A second run that saves into the same directory: DIRECTORY."""

import sys

from trainables.errors import SessionError
from trainables.torch import AtomicDirectory

try:
    saver = AtomicDirectory(sys.argv[1], True, "run", 1)
except SessionError as error:
    print(error)
else:
    saver.symlink_latest(saver.prepare_checkpoint_directory())
    print("saved", AtomicDirectory(sys.argv[1], True, "another").latest_checkpoint())
