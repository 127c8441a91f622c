"""The caller's end of a trial's line, which outlives the driver.

A driver may be killed at any moment. The attempt that runs here goes on: it is *offered* to the driver's next life,
which takes it up under the same generation and attempt (`tuner.driver.adoption`). Nobody else ever has that pair, so
that whatever is published keeps its name and its place in the lineage, also a save that was under way. Its start stands
in the journal twice then, once for each driver. A further attempt in its place would need other names for such saves,
and a start that goes on from results which have no checkpoint.

The journal has every result that was answered (`CallerExecutor`). Of one that was not it may have it or not: the driver
says how far it goes, and the report is sent again, or the journaled answer stands. So a result is journaled once.

If the trial has ended, or somebody else has it by now, the attempt is over here: see `CallerLink.over`.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

from trainables import wire
from trainables.net.frames import READ, Frames
from trainables.net.silence import is_gone
from trainables.socket_link import SocketLink
from trainables.wire import Answer, AttemptErrored, Finished, Preempted, Report, SideMessage
from tuner.asking.driver_line import DriverLine
from tuner.error import TuneError
from tuner.executors.callers.caller_words import Adopted, Offer, OnMain, Over, Settled, decode_on_main


class CallerSockets(SocketLink):
    """Main and side of one line, which end with it."""

    def __init__(self, main: socket.socket, side: socket.socket, iteration: int = -1) -> None:
        super().__init__(main, side)
        self._durable = iteration

    @property
    def told_to_halt(self) -> bool:
        """The driver has said so; not that it is gone."""
        super().halted()
        return self._halted

    def let_go(self) -> None:
        """Close the descriptors of this process; the line goes on in another."""
        self._main.close()
        self._side.close()

    def send_last(self, message: Finished | AttemptErrored | Preempted) -> None:
        """Say how the attempt ended; returns when that is in the journal. Raises ConnectionError."""
        self.send(message)
        if not isinstance(receive(self._main), Settled):
            raise ConnectionError("the driver said something else")


def receive(main: socket.socket) -> OnMain:
    """The next word on main. Raises ConnectionError when there comes none."""
    frames = Frames()
    try:
        while data := main.recv(READ):
            for body in frames.feed(data):
                return decode_on_main(body)
    except OSError as error:
        if not is_gone(error):
            raise
    raise ConnectionError("the driver is gone")


class CallerLink(wire.DriverLink):
    """`DriverLink` of an attempt that a caller runs. Used by the trial's thread, and by the thread that publishes.

    Args:
        key: trial id, generation and attempt.
        line: to the driver that has handed the trial over.
        renew: finds the line to the driver's next life, when that of one is at its end; None: there is none to come.
    """

    def __init__(
        self,
        key: tuple[str, int, int],
        line: DriverLine,
        sockets: CallerSockets,
        renew: Callable[[DriverLine], DriverLine | None],
    ) -> None:
        self.over: Over | None = None
        """The attempt does not go on here, and why."""
        self.on_adopted: Callable[[], None] = wire.nothing
        """Called when another driver has taken the attempt up."""
        self._key = key
        self._line, self._sockets = line, sockets
        self._renew = renew
        self._attaching = threading.Lock()
        self._unanswered: Report | None = None
        self._answered: Answer | None = None
        """What the journal says of the report that was not."""
        self._published: SideMessage | None = None
        """The last word of a save: a driver that was killed may not have heard it."""

    # --- DriverLink -----------------------------------------------------------------------------------------

    def call(self, report: Report, meanwhile: Callable[[], None] = wire.nothing) -> Answer:
        once = _Once(meanwhile)
        self._unanswered, self._answered = report, None
        try:
            while True:
                sockets = self._sockets
                try:
                    if self._answered is None:
                        self._answered = sockets.call(report, once)
                    return self._answered
                except OSError:
                    self._attach(sockets)
        finally:
            self._unanswered = None
            once()

    def send(self, message: Finished | AttemptErrored | Preempted) -> None:
        while True:
            sockets = self._sockets
            try:
                sockets.send_last(message)
                return
            except OSError:
                self._attach(sockets)

    def post(self, message: SideMessage) -> None:
        if isinstance(message, wire.SavePublished | wire.SaveFailed):
            self._published = message
        gone: CallerSockets | None = None
        while (sockets := self._sockets) is not gone:
            try:
                sockets.post(message)
                return
            except OSError:
                gone = sockets  # said again to the next driver, by whoever finds it, or by this loop if that was before

    def wait_durable(self, iteration: int) -> None:
        while True:
            sockets = self._sockets
            try:
                sockets.wait_durable(iteration)
                return
            except OSError:
                try:
                    self._attach(sockets)
                except TuneError as error:  # which the next report raises
                    raise ConnectionError(str(error)) from error

    def halted(self) -> bool:
        return self._sockets.told_to_halt

    # --- a driver's next life -------------------------------------------------------------------------------

    def _attach(self, gone: CallerSockets) -> None:
        """Offer the attempt to the driver that there is now. Raises ConnectionError when it is over here."""
        with self._attaching:
            while self._sockets is gone:
                if self.over is not None:
                    raise ConnectionError("the attempt is over")
                gone.close()
                line = self._renew(self._line)
                if line is None:
                    self.over = Over("pause")
                    continue
                self._line = line
                with contextlib.suppress(ConnectionError):  # killed again meanwhile
                    self._offer()

    def _offer(self) -> None:
        trial_id, generation, attempt = self._key
        unanswered = self._unanswered
        iteration = 0 if unanswered is None else unanswered.iteration
        main, side = self._line.ask(Offer(trial_id, generation, attempt, iteration))
        try:
            word = receive(main)
        except ConnectionError:
            main.close()
            side.close()
            raise
        if isinstance(word, Adopted):
            if iteration and word.iteration >= iteration:
                self._answered = Answer(then=word.then)
            self._sockets = sockets = CallerSockets(main, side, word.iteration)
            self.on_adopted()
            if self._published is not None:
                with contextlib.suppress(OSError):  # killed again
                    sockets.post(self._published)
            return
        main.close()
        side.close()
        self.over = word if isinstance(word, Over) else Over("pause")
        raise ConnectionResetError("the attempt is over")

    def let_go(self) -> None:
        """In a child process: its parent has this line."""
        self._sockets.let_go()

    def close(self) -> None:
        """Nothing is said here any more."""
        if self.over is None:
            self.over = Over("pause")
        self._sockets.close()


class _Once:
    """Calls something the first time only."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function: Callable[[], None] = function

    def __call__(self) -> None:
        function, self._function = self._function, wire.nothing
        function()
