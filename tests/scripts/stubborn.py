"""A process that leaves session and parent and ignores SIGTERM; prints its pid when it has."""

import os
import signal
import sys

signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.setsid()
if os.fork():
    os._exit(0)
os.setsid()
sys.stdout.write(str(os.getpid()) + "\n")
sys.stdout.flush()
while True:
    signal.pause()
