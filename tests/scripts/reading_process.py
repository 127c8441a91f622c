"""Reads a journal again and again until it holds so many facts, all of them once and in order: `... ROOT FACTS`."""

import json
import sys
from pathlib import Path

from tuner.experiment.journal import read_journal
from tuner.experiment.paths import ExperimentPaths

paths, low = ExperimentPaths(Path(sys.argv[1])), 0
while low < int(sys.argv[2]):
    found = read_journal(paths)
    start = json.loads(found.snapshot)[0] if found.snapshot else 0
    assert start == found.snapshot_seq
    assert [seq for seq, _ in found.bodies] == list(range(start + 1, found.last_seq + 1))
    assert found.last_seq >= low
    low = found.last_seq
