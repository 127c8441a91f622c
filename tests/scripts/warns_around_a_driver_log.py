"""Warns before, while and after the log of a driver listens, and once another one does too: `... ROOT`."""

import logging
import sys
from pathlib import Path

from tuner.clock import SystemClock
from tuner.experiment.driver_log import DriverLog
from tuner.experiment.paths import ExperimentPaths

log = logging.getLogger("tuner.x")
log.warning("one")
with DriverLog(SystemClock()).attached() as attached:
    attached.open(ExperimentPaths(Path(sys.argv[1])))
    log.warning("two")
    with DriverLog(SystemClock()).attached() as other:
        log.warning("three")
    logging.basicConfig(format="configured %(message)s")
    log.warning("four")
log.warning("five")
