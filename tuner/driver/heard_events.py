"""What an executor tells, each to who handles it."""

from __future__ import annotations

from tuner.driver.adoption import Adoption
from tuner.driver.attempts import LiveAttempt, Phase
from tuner.driver.endings import Endings
from tuner.driver.parts import LoopParts
from tuner.driver.results import ResultHandler
from tuner.executors.base import Event, Exited, Message, Offered, Released


class EventHandler:
    """Hands events on; what is told of an attempt that is over is nothing."""

    def __init__(self, parts: LoopParts, endings: Endings, results: ResultHandler, adoption: Adoption) -> None:
        self._endings, self._results, self._adoption = endings, results, adoption
        self._running, self._checkpoints = parts.attempts.running, parts.checkpoints

    def handle(self, event: Event) -> None:
        """One event."""
        if isinstance(event, Offered):
            self._adoption.offered(event)
        elif isinstance(event, Released):
            self._adoption.released(event.trial_id)
        elif (run := self._running.get(event.trial_id)) is not None and event.attempt == run.number:
            if isinstance(event, Message):
                self._results.on_message(run, event.body)
            elif isinstance(event, Exited):
                self._on_exit(run, event)

    def _on_exit(self, run: LiveAttempt, event: Exited) -> None:
        for ref in list(run.open):
            self._checkpoints.closed(run, ref)
        if run.said is None or run.phase is Phase.REFUSED or event.status != 0:
            for published in self._checkpoints.left_behind(run):
                self._results.on_published(run, published)
        self._endings.on_exit(run, event)
        self._endings.transitions.carry_out()
