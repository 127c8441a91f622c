"""The lines to callers: who asks, who offers an attempt, and who runs one. What they say becomes events."""

from __future__ import annotations

import logging
import socket
from collections import deque
from dataclasses import dataclass

import msgspec

from trainables.net.frames import frame
from trainables.wire import AttemptErrored, Finished, Preempted, decode_from_trial
from tuner.executors.base import KILLED, Event, Exited, Message, Offered
from tuner.executors.callers.caller_words import AskFor, FromCaller, Leaving, MayGo, OnMain, RunOver, Settled
from tuner.executors.callers.doors import Doors
from tuner.executors.callers.open_door import Door
from tuner.executors.local.lines import TrialSocket
from tuner.executors.reactor import Reactor

log = logging.getLogger(__name__)

_LAST_WORDS = (Finished, AttemptErrored, Preempted)


@dataclass(eq=False, slots=True)
class CallerLine:
    """Two sockets to a caller: *main* and *side* of a trial, once it has one."""

    door: Door
    main: TrialSocket
    side: TrialSocket
    waits: bool = False
    """It asks, and waits until there is a trial."""
    trial_id: str = ""
    attempt: int = 0

    def say(self, message: OnMain) -> None:
        self.main.send(frame(message))

    def close(self) -> None:
        self.main.close()
        self.side.close()


class CallerLines:
    """All lines of one driver, by what they are for."""

    def __init__(self, reactor: Reactor) -> None:
        self.doors: Doors | None = None
        self.askers: deque[CallerLine] = deque()
        """Whoever wants a trial, the first to ask first."""
        self.offers: dict[str, CallerLine] = {}
        """Trial -> who would go on with it."""
        self.attempts: dict[str, CallerLine] = {}
        """Trial -> who runs it."""
        self._reactor = reactor
        self._leaving: set[Door] = set()
        """Closed last, and wait for the end of the run."""
        self._ending: list[CallerLine] = []
        """Said how their attempts ended, and wait until that is written down."""

    @property
    def anybody(self) -> bool:
        """Whether somebody has the session open."""
        return self.doors is not None and bool(self.doors.open - self._leaving)

    def settle(self) -> None:
        """What was said is in the journal."""
        for line in self._ending:
            line.say(Settled())
            line.close()
        self._ending.clear()

    def close(self) -> None:
        """No line is left; callers have the session open still."""
        if self.doors is not None:
            self.doors.stop_listening()
        for line in (*self.askers, *self.offers.values(), *self.attempts.values(), *self._ending):
            line.close()
        for lines in (self.askers, self.offers, self.attempts, self._ending):
            lines.clear()

    def say_over(self, last: RunOver) -> None:
        """The driver's last word, to all who have the session open; nobody is heard any more."""
        if (doors := self.doors) is not None:
            for door in list(doors.open):
                door.tell(last)
                doors.close(door)

    # --- doors ----------------------------------------------------------------------------------------------

    def said(self, door: Door, message: FromCaller, ends: list[socket.socket], events: list[Event]) -> None:
        """`Visitors.said`."""
        if isinstance(message, Leaving):
            self._leave(door)
        elif len(ends) != 2:
            log.error("a caller (pid %d) asks without a line: not heard", door.pid)
            for end in ends:
                end.close()
        elif isinstance(message, AskFor):
            line = self._line(door, ends)
            line.waits = message.waits
            self.askers.append(line)
        else:
            before = self.attempts.get(message.trial_id)
            if before is not None and before.attempt == message.attempt:
                self._lost(before, events)  # its caller has given that line up
            line = self.offers[message.trial_id] = self._line(door, ends)
            line.trial_id, line.attempt = message.trial_id, message.attempt
            events.append(Offered(message.trial_id, message.attempt, message.generation, message.iteration))

    def gone(self, door: Door, events: list[Event]) -> None:
        """`Visitors.gone`: its process may be, though somebody holds its lines."""
        for line in [*self.askers, *self.offers.values(), *self.attempts.values()]:
            if line.door is door:
                self._ended(line, events)
        self._close_behind()

    def _leave(self, door: Door) -> None:
        assert self.doors is not None
        self._leaving.add(door)
        if self.anybody:
            self._leaving.discard(door)
            door.tell(MayGo())
            self.doors.close(door)
        self._close_behind()

    def _close_behind(self) -> None:
        if self.doors is not None and not self.anybody:
            self.doors.stop_listening()  # who knocks from now on is let in by the next driver

    # --- lines ----------------------------------------------------------------------------------------------

    def _line(self, door: Door, ends: list[socket.socket]) -> CallerLine:
        main = TrialSocket(ends[0], self._reactor, lambda events: self._read(line, line.main, events))
        side = TrialSocket(ends[1], self._reactor, lambda events: self._read(line, line.side, events))
        line = CallerLine(door, main, side)
        return line

    def _read(self, line: CallerLine, end: TrialSocket, events: list[Event]) -> bool:
        """Read once from an end; False when there is nothing more to read now."""
        data = end.read()
        if not data:
            if data is not None:
                end.hush()
                if end is line.main:
                    self._ended(line, events)
            return False
        try:
            for body in end.frames.feed(data):
                self._hear(line, body, events)
        except msgspec.DecodeError as error:
            log.error("the caller of trial %s wrote into its line, which is ended: %s", line.trial_id, error)
            self._ended(line, events)
            return False
        return True

    def _hear(self, line: CallerLine, body: bytes, events: list[Event]) -> None:
        message = decode_from_trial(body)
        if self.attempts.get(line.trial_id) is not line:
            return  # of an attempt that is over
        events.append(Message(line.trial_id, line.attempt, message))
        if isinstance(message, _LAST_WORDS):
            del self.attempts[line.trial_id]
            self._ending.append(line)
            events.append(Exited(line.trial_id, line.attempt, 0))

    def _ended(self, line: CallerLine, events: list[Event]) -> None:
        """A line is at its end, or its caller is."""
        if self.attempts.get(line.trial_id) is line:
            self._lost(line, events)
            return
        if line in self.askers:
            self.askers.remove(line)
        elif self.offers.get(line.trial_id) is line:
            del self.offers[line.trial_id]
        elif line in self._ending:
            self._ending.remove(line)
        line.close()

    def _lost(self, line: CallerLine, events: list[Event]) -> None:
        """Nothing more comes of an attempt, of which nobody has said how it ended."""
        for end in (line.main, line.side):
            while self.attempts.get(line.trial_id) is line and self._hears_out(line, end, events):
                pass
        if self.attempts.get(line.trial_id) is line:
            del self.attempts[line.trial_id]
            line.close()
            events.append(Exited(line.trial_id, line.attempt, KILLED, "lost"))

    def _hears_out(self, line: CallerLine, end: TrialSocket, events: list[Event]) -> bool:
        data = end.read()
        if not data:
            return False
        for body in end.frames.feed(data):
            self._hear(line, body, events)
        return True
