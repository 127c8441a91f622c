"""Warnings of this package, shown once per cause while a run goes on."""

from __future__ import annotations

import atexit
import logging
from collections import Counter
from collections.abc import Callable

from trainables.masking import masked
from tuner.experiment.driver_log import PACKAGES, DriverLog


class WarnOnce(logging.Handler):
    """Shows the first warning of each cause (its format, without the values) and counts the others.

    It is in charge only where nobody configured logging: then Python itself would print every one of them. A warning
    that is logged with `extra={"each": True}` is shown every time: what it names is lost, and nobody else says so.

    Args:
        show: gets the text; None swallows all (`verbose=0`).
        repeat: show all.
    """

    def __init__(self, show: Callable[[str], None] | None, *, repeat: bool = False) -> None:
        super().__init__(logging.WARNING)
        self._show, self._repeat = show, repeat
        self._seen: Counter[tuple[str, str]] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        cause = (record.name, str(record.msg))
        each = getattr(record, "each", False)
        self._seen[cause] += not each
        if self._show is not None and (self._repeat or each or self._seen[cause] == 1):
            try:
                self._show(f"{record.levelname.lower()}: {masked(record.getMessage())}")
            except Exception:
                self.handleError(record)

    def more(self) -> int:
        """How many warnings were not shown."""
        return 0 if self._repeat or self._show is None else sum(max(count - 1, 0) for count in self._seen.values())

    def install(self) -> None:
        """Take charge, in place of an earlier run's. Safe to call again."""
        configured = bool(logging.getLogger().handlers)
        for name in PACKAGES:
            logger = logging.getLogger(name)
            for handler in [each for each in logger.handlers if isinstance(each, WarnOnce) and each is not self]:
                logger.removeHandler(handler)
            if not configured and all(isinstance(handler, DriverLog) for handler in logger.handlers):
                logger.addHandler(self)
        atexit.register(self.remove)

    def remove(self) -> None:
        """Let Python do as it did. Safe to call again."""
        for name in PACKAGES:
            logging.getLogger(name).removeHandler(self)
        atexit.unregister(self.remove)
