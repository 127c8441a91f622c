"""What all loggers of a process have, put back to what a fresh trial finds."""

from __future__ import annotations

import logging
from typing import Any


class LoggingState:
    """Handlers and levels of all loggers; one that was not there then keeps its level, and has no handlers."""

    def __init__(self) -> None:
        self._loggers = {
            logger: (list(logger.handlers), logger.level, logger.propagate, logger.disabled) for logger in _loggers()
        }
        self._disabled = logging.root.manager.disable

    def put_back(self) -> None:
        logging.disable(self._disabled)
        for logger in _loggers():
            handlers, level, propagate, disabled = self._loggers.get(
                logger, ([], logger.level, logger.propagate, logger.disabled)
            )
            for handler in [each for each in logger.handlers if each not in handlers]:
                logger.removeHandler(handler)
                _close(handler)
            for handler in [each for each in handlers if each not in logger.handlers]:
                logger.addHandler(handler)
            logger.propagate, logger.disabled = propagate, disabled
            if logger.level != level:
                logger.setLevel(level)


def _loggers() -> list[logging.Logger]:
    named = list(logging.root.manager.loggerDict.values())
    return [logging.root, *(logger for logger in named if isinstance(logger, logging.Logger))]


def _close(handler: Any) -> None:
    try:
        handler.close()
    except Exception:
        pass  # the user's own class: nobody is left whom that would help
