"""`python -m tuner.mcp.started_run STORAGE NAME FD`: the process that runs an experiment which an agent had started.

It belongs to no server. Where hours or bytes of the budget are used up, it ends its run in order, whoever used them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainables.starting import start_thread
from tuner.clock import SystemClock
from tuner.error import ToolError, TrialsFailedError, TuneError
from tuner.experiment.paths import ExperimentPaths
from tuner.mcp.budget import AgentBudget
from tuner.mcp.ledger import Ledger, StartRecord
from tuner.orders.giving import give
from tuner.orders.order import ALL, StopOrder
from tuner.run import run as tune_run
from tuner.ui.live_experiment import LiveExperiment
from tuner.ui.sources import LocalSource

LOOK_S = 5.0
"""So often is counted whether the budget is used up."""


def main(storage: Path, name: str, ready: int) -> int:
    ledger = Ledger(storage)
    owned = ledger.own(name)
    if owned is None:
        return 0  # another one runs it, and has just been started too
    os.close(ready)  # whoever started this goes on
    record = ledger.record(name)
    if record is None:
        return 2
    if record.limits.hours is not None or record.limits.bytes is not None:
        start_thread(BudgetWatch(record, storage / name).go_on, name="mcp-budget")
    return _run(record)


def _run(record: StartRecord) -> int:
    from tuner.cli.config_file import Described, KeepConfig

    described = Described(record.said(), Path(record.beside))
    settings = described.arguments()
    settings["callbacks"] = [*settings.get("callbacks", ()), KeepConfig(described)]
    try:
        tune_run(described.load_trainable(), **settings)
    except TrialsFailedError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


class BudgetWatch:
    """Stops an experiment when what all agents may use is used.

    Args:
        root: the experiment.
    """

    def __init__(self, record: StartRecord, root: Path) -> None:
        self._root, self._clock = root, SystemClock()
        self._seen: dict[Path, LiveExperiment] = {}
        ledgers = [Ledger(Path(one)) for one in record.ledgers]
        self._budget = AgentBudget(record.limits, ledgers, self._opened, self._clock)
        self._sleep: Callable[[float], Any] = threading.Event().wait

    def _opened(self, root: Path) -> LiveExperiment:
        if root not in self._seen:
            self._seen[root] = LiveExperiment(root.name, LocalSource(ExperimentPaths(root)), self._clock)
        return self._seen[root]

    def go_on(self) -> None:
        """Look until it is used up; then end the run in order."""
        while not self._is_over():
            self._sleep(LOOK_S)
        while True:
            with contextlib.suppress(TuneError):  # its directory may be on its way
                give(self._root, StopOrder(ALL))
                return
            self._sleep(LOOK_S)

    def _is_over(self) -> bool:
        over = None
        with contextlib.suppress(ToolError):  # what cannot be read now is read the next time
            over = self._budget.overspent(self._budget.spent())
        if over:
            sys.stderr.write(f"the run ends: {over}\n")
        return over is not None


if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the terminal of the server is none of its own
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
