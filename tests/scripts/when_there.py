"""Waits until a directory holds an experiment, then becomes a command on it.

usage: when_there.py EXPERIMENT COMMAND ...
"""

import os
import sys
import time

while not os.path.exists(os.path.join(sys.argv[1], "experiment.json")):
    time.sleep(0.02)
os.execv(sys.argv[2], [*sys.argv[2:], sys.argv[1]])
