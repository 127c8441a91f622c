"""The last catch: whatever a view raises is an answer that says so, one line in the log, and never more than that."""

from __future__ import annotations

import logging
import traceback

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trainables.printable import one_line
from tuner.experiment.hostile import UNREADABLE, said
from tuner.ui.guard import answer
from tuner.ui.seen import as_json

log = logging.getLogger(__name__)

LINES = 200
"""Different lines in the log, at most: a page that is open asks again and again."""


class Caught:
    """Answers for the application: 503 where what was read makes no sense, 500 for a mistake of ours."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._logged: set[str] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def noted(message: Message) -> None:
            nonlocal begun
            begun = begun or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except Exception as error:
            self._log(scope.get("path", ""), error)
            if not begun:
                why = said(error) if isinstance(error, UNREADABLE) else f"{type(error).__name__}: {said(error)}"
                body = as_json({"error": f"this cannot be shown: {why}"})
                await answer(send, 503 if isinstance(error, UNREADABLE) else 500, body)

    def _log(self, path: str, error: Exception) -> None:
        last = traceback.extract_tb(error.__traceback__)[-1]
        line = one_line(f"{path}: {type(error).__name__}: {said(error)} ({last.filename}:{last.lineno})")
        if line not in self._logged and len(self._logged) < LINES:
            self._logged.add(line)
            log.error("%s", line)
