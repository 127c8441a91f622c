"""Starts a process where no further file can be opened, and prints what is said of it."""

import resource
import sys

from trainables.errors import LimitError
from trainables.starting import start_process

soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
held = [open("/dev/null") for _ in range(20)]
resource.setrlimit(resource.RLIMIT_NOFILE, (held[-1].fileno() + 2, hard))
try:
    start_process([sys.executable, "-c", ""], what="trial 7", stdout=-1, stderr=-1)
except LimitError as error:
    sys.stdout.write(str(error))
