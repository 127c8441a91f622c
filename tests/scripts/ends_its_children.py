"""Ends a child that exits or waits, and the grandchild that outlives it: `... exit|wait`. Prints what came of it."""

import os
import signal
import sys

from tuner.executors.local import process_tree

process_tree.adopt_orphans()
read, write = os.pipe()
child = os.fork()
if child == 0:
    if os.fork() == 0:  # it outlives its parent, in a session of its own
        os.setsid()
        os.write(write, b".")
        signal.pause()
    if sys.argv[1] == "exit":
        os._exit(3)
    signal.pause()
os.read(read, 1)
if sys.argv[1] == "exit":
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
print(process_tree.end_children(keep=child), process_tree.children(os.getpid()))
