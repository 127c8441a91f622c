"""`Sender`: the thread that talks to a tracker, so that neither the loop nor a trial ever waits for one."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from trainables.errors import LimitError
from trainables.net.backoff import BackOff
from trainables.starting import start_thread
from tuner.tracking.delivery import Delivery
from tuner.tracking.due import Due

log = logging.getLogger(__name__)

LATER_S = 0.2
"""After so long a trial's file is looked at again for results that were not there yet."""
SAY_AFTER_S = 5.0
"""A wait at the end of the run that takes longer is announced."""


class Sender:
    """Delivers, one trial after the other; what fails is tried again, later each time.

    Its memory is one `Due` for each trial of which something is due: results wait in the trials' files.
    """

    def __init__(self, name: str, make: Callable[[], Delivery]) -> None:
        self._name, self._make = name, make
        self._delivery: Delivery | None = None
        self._change = threading.Condition()
        self._due: dict[str, Due] = {}
        self._at: Due | None = None
        """What the thread is delivering; others wait meanwhile."""
        self._pauses: dict[str, BackOff] = {}
        self._trouble: str = ""
        """Why the last delivery failed; empty: it did not."""
        self._ending = False
        self._thread: threading.Thread | None = None

    def tell(self, due: Due) -> None:
        """Say what is due, in addition to what was. Returns at once."""
        with self._change:
            known = self._due.get(due.about.trial_id)
            if known is None:
                self._due[due.about.trial_id] = due
            else:
                known.take_in(due)
            if self._thread is None and not self._ending:
                try:
                    self._thread = start_thread(self._run, name=f"tracker-{self._name}")
                except LimitError as error:
                    self._ending = True
                    log.warning("%s gets nothing, the run goes on: %s", self._name, error)
            self._change.notify_all()

    def pending(self) -> list[str]:
        """Ids of the trials of which something is due."""
        with self._change:
            return sorted({*self._due, *([self._at.about.trial_id] if self._at is not None else ())})

    def drain(self, limit_s: float, resume: str) -> None:
        """Wait until nothing is due, at most so long; then end. What is left is named in one line, and stays due.

        Ctrl-C ends the wait.

        Args:
            resume: the words that continue the experiment.
        """
        until = time.monotonic() + limit_s
        announced = time.monotonic() + SAY_AFTER_S
        try:
            with self._change:
                self._pauses.clear()  # what was refused is tried once more at once
                self._change.notify_all()
                while self._thread is not None and (self._due or self._at is not None):
                    now = time.monotonic()
                    if now >= until:
                        break
                    if announced is not None and now >= announced:
                        log.warning("waiting for %s: %s; Ctrl-C does not wait", self._name, self._owed())
                        announced = until
                    self._change.wait(min(until, announced) - now if announced > now else until - now)
        except KeyboardInterrupt:
            pass
        with self._change:
            self._ending = True
            self._change.notify_all()
            if self._due or self._at is not None:
                why = f" ({self._trouble})" if self._trouble else ""
                log.warning(
                    "%s did not get everything%s: %s; a resume of this experiment (%s) sends it",
                    self._name,
                    why,
                    self._owed(),
                    resume,
                )

    # --- the thread ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (due := self._next()) is not None:
            arrived, failed = False, True
            try:
                if self._delivery is None:
                    self._delivery = self._make()
                arrived, failed = self._delivery.deliver(due), False
            except Exception as error:  # whatever a library raises: it is down, or refuses this
                self._complain(error)
            self._delivered(due, arrived=arrived, failed=failed)

    def _next(self) -> Due | None:
        with self._change:
            while not self._ending:
                now = time.monotonic()
                soonest: float | None = None
                for trial_id, due in self._due.items():
                    pause = self._pauses.get(trial_id)
                    if pause is None or pause.until <= now:
                        self._at = self._due.pop(trial_id)
                        return due
                    soonest = pause.until if soonest is None else min(soonest, pause.until)
                self._change.wait(None if soonest is None else soonest - now)
            return None

    def _delivered(self, due: Due, *, arrived: bool, failed: bool) -> None:
        trial_id = due.about.trial_id
        with self._change:
            self._at = None
            if arrived:
                self._pauses.pop(trial_id, None)
                self._trouble = ""
            else:
                pause = self._pauses.setdefault(trial_id, BackOff())
                if failed:
                    pause.failed(time.monotonic())
                else:
                    pause.failures, pause.until = 0, time.monotonic() + LATER_S
                if (newer := self._due.pop(trial_id, None)) is not None:
                    due.take_in(newer)
                self._due[trial_id] = due
            self._change.notify_all()

    def _complain(self, error: Exception) -> None:
        """Once until it works again."""
        said = f"{type(error).__name__}: {error}".strip().splitlines()[0][:300]
        if not self._trouble:
            log.warning(
                "%s cannot be reached, or refuses: %s; the run goes on, and it is tried again", self._name, said
            )
        log.debug("%s", self._name, exc_info=error)
        self._trouble = said

    def _owed(self) -> str:
        """Of how many trials something is due; the lock is held."""
        count = len(self._due) + (self._at is not None and self._at.about.trial_id not in self._due)
        return f"something of {count} trial{'s' * (count != 1)} is due"
