"""`SocketLink`: the line of a trial's process to its driver, over two sockets."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

from trainables.net.frames import READ, Frames, frame
from trainables.starting import start_thread
from trainables.wire import (
    Answer,
    AttemptErrored,
    Decided,
    DriverLink,
    Durable,
    Finished,
    Halt,
    Preempted,
    Report,
    Reusable,
    SideMessage,
    decode_to_trial,
    nothing,
)


class SocketLink(DriverLink):
    """`DriverLink` over the two sockets of a trial's process.

    What is said goes over the main socket, from whatever thread, and is heard in that order; answers on it are for the
    thread that reports. The side socket has one reader at a time: the trial's thread, without blocking, as long as
    nobody has to wait for anything there; from the first `wait_durable` on a thread that does nothing else. A trial
    that never saves so stays with one thread, and may fork as it likes.
    """

    def __init__(self, main: socket.socket, side: socket.socket) -> None:
        self._main, self._side = main, side
        self._main_frames, self._side_frames = Frames(), Frames()
        self._changed = threading.Condition()
        self._sending = threading.Lock()
        self._reader: threading.Thread | None = None
        self._changed_hook: Callable[[], None] = nothing
        self._durable = -1
        self._halted = False
        self._gone = False
        self._decided: Decided | None = None
        self._ended_at: int | None = None
        """The result on which the trial was ended while it went on."""

    def call(self, report: Report, meanwhile: Callable[[], None] = nothing) -> Answer:
        self._send(self._main, frame(report))
        try:
            meanwhile()
        finally:
            answer = self._receive()  # whatever happened: the next report must not find this one's answer
        return answer

    def _receive(self) -> Answer:
        while True:
            data = self._main.recv(READ)
            if not data:
                raise ConnectionError("the driver is gone")
            for body in self._main_frames.feed(data):
                answer = decode_to_trial(body)
                if not isinstance(answer, Answer):
                    raise ConnectionError(f"expected an Answer from the driver, got {type(answer).__name__}")
                if answer.should_stop:
                    self._halted = True
                return answer

    def tell(self, report: Report) -> None:
        self._send(self._main, frame(report))

    def decided(self) -> Decided | None:
        self.halted()  # reads what has come, if no thread does
        if self._decided is None:
            return None
        with self._changed:
            decided, self._decided = self._decided, None
        return decided

    def send(self, message: Finished | AttemptErrored | Preempted | Reusable) -> None:
        self._send(self._main, frame(message))

    def close(self) -> None:
        """Nothing is said or heard here any more, and no thread waits: for a process that goes on without this line."""
        self._gone = True
        for end in (self._main, self._side):
            with contextlib.suppress(OSError):  # the driver has closed it
                end.shutdown(socket.SHUT_RDWR)  # wakes the reader
        if self._reader is not None:
            self._reader.join()
        self._main.close()
        self._side.close()

    def post(self, message: SideMessage) -> None:
        self._send(self._main, frame(message))

    def wait_durable(self, iteration: int) -> None:
        with self._changed:
            self._start_reader()
            self._changed.wait_for(lambda: self._durable >= iteration or self._gone or self._is_void(iteration))
            if self._durable < iteration or self._is_void(iteration):
                raise ConnectionError("the driver is gone, or had ended the trial before")

    def halted(self) -> bool:
        if not self._halted and self._reader is None:
            with self._changed:
                if self._reader is None:
                    self._look_at_side()
        return self._halted or self._gone

    def watch(self, changed: Callable[[], None]) -> None:
        with self._changed:
            self._changed_hook = changed
            if changed is not nothing:
                self._start_reader()

    def _is_void(self, iteration: int) -> bool:
        return self._ended_at is not None and iteration > self._ended_at

    def _send(self, end: socket.socket, data: bytes) -> None:
        with self._sending:  # the timer of a preemption may speak while the trial's thread does
            end.sendall(data)

    def _start_reader(self) -> None:
        if self._reader is None:
            self._reader = start_thread(self._read_side, name="trial-side-reader")

    def _look_at_side(self) -> None:
        try:
            data = self._side.recv(READ, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return  # nothing said
        except OSError:
            data = b""
        self._heard(data)

    def _read_side(self) -> None:
        while not self._gone:
            try:
                data = self._side.recv(READ)
            except OSError:
                data = b""  # reset: nobody speaks any more
            with self._changed:
                self._heard(data)
                self._changed.notify_all()
                changed = self._changed_hook if self._halted or self._gone else nothing
            changed()

    def _heard(self, data: bytes) -> None:
        if not data:
            self._gone = True
            return
        for body in self._side_frames.feed(data):
            message = decode_to_trial(body)
            if isinstance(message, Durable):
                self._durable = max(self._durable, message.iteration)
            elif isinstance(message, Decided):
                self._decided = message
                if message.answer.then != "continue":
                    self._ended_at = message.iteration
            elif isinstance(message, Halt):
                self._halted = True
