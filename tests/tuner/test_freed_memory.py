"""What was freed goes back to the system, also from between what stays."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import psutil
from tuner.freed_memory import give_back
held = lambda: psutil.Process().memory_info().rss
blocks = [bytes([number % 256]) * 3000 for number in range(20000)]
stay = blocks[::100]
blocks.clear()
before = held()
give_back()
print(before - held())
"""


def test_what_lies_free_between_what_stays_is_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 40e6, "of 60 MB"
