"""What a trial and its driver say to each other.

A trial has two sockets. On *main* it sends a `Report` and blocks for one `Answer`; at the end it
sends one of `Finished`, `AttemptErrored`, `Preempted`. On *side* the publisher thread sends
`SavePublished` or `SaveFailed` and gets `Durable`; the driver also sends `Halt` there, and the trial
`CheckpointOpened` and `CheckpointClosed`. The body of a frame is a JSON object with a tag.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Literal, Protocol, Union

import msgspec

from trainables.net.frames import READ, Frames, frame
from trainables.starting import start_thread


class CheckpointRef(msgspec.Struct, frozen=True):
    """One published checkpoint, as journal, manifest and messages name it."""

    trial_id: str
    """The trial that saved it."""
    name: str
    """Directory name inside that trial's directory."""
    generation: int
    attempt: int
    index: int
    """Save index within the attempt, from 1: (generation, attempt, index) orders all saves of a trial."""
    iteration: int
    """`training_iteration` of the result that it belongs to."""

    @property
    def order(self) -> tuple[int, int, int]:
        return (self.generation, self.attempt, self.index)


class PendingSave(msgspec.Struct, frozen=True):
    """A checkpoint that was staged with a result and will be published behind it."""

    ref: CheckpointRef
    bytes: int = 0
    """Size of what was staged, for the experiment's budget."""
    uploading: bool = False
    """The processes that saved it copy it to the replica themselves; `SaveUploaded` says when they have."""


class Report(msgspec.Struct, frozen=True, tag="report", tag_field="kind"):
    """One result. The trial blocks until it has the `Answer`."""

    iteration: int
    metrics: msgspec.Raw
    """The whole result with its automatic keys, as tagged JSON (see `trainables.tagged`)."""
    saving: PendingSave | None = None


class Finished(msgspec.Struct, frozen=True, tag="finished", tag_field="kind"):
    """The trainable ended by itself, or as it was told; everything staged is published."""


class AttemptErrored(msgspec.Struct, frozen=True, tag="errored", tag_field="kind"):
    """The trainable raised."""

    type: str
    message: str
    traceback: str
    pickled: bytes = b""
    """The exception itself, cloudpickled, where that was possible."""
    retry: bool = True
    """False: not to be retried (`CheckpointBudgetError`)."""
    disk: bool = False
    """The disk was full, or refused to be written."""


class Preempted(msgspec.Struct, frozen=True, tag="preempted", tag_field="kind"):
    """The trial was told to leave (SIGTERM, SIGUSR1, `Halt`), saved if it can, and left unfinished."""


class SavePublished(msgspec.Struct, frozen=True, tag="published", tag_field="kind"):
    """A checkpoint is on disk under its final name."""

    ref: CheckpointRef
    bytes: int
    digest: str
    """BLAKE3 of the manifest file, hex."""


class SaveFailed(msgspec.Struct, frozen=True, tag="publish_failed", tag_field="kind"):
    ref: CheckpointRef
    error: str
    raised: bool = False
    """The user's code got the error too: where it goes on, it goes on without that save."""


class SaveUploaded(msgspec.Struct, frozen=True, tag="uploaded", tag_field="kind"):
    """No process of the trial copies files of this save to the replica any more. May come before `SavePublished`."""

    ref: CheckpointRef
    sent: dict[str, str]
    """Name of a file of it that is there -> BLAKE3 of what was sent, hex."""
    problem: str = ""
    """Why some are not, as a line for people."""


class CheckpointOpened(msgspec.Struct, frozen=True, tag="opened", tag_field="kind"):
    """A checkpoint is open in the trial (`as_directory`), and nothing else keeps it from being deleted any more.

    Said only once the attempt has published one of its own: what it started from is safe until then.
    """

    ref: CheckpointRef


class CheckpointClosed(msgspec.Struct, frozen=True, tag="closed", tag_field="kind"):
    """A checkpoint that was `CheckpointOpened` is open no more."""

    ref: CheckpointRef


class Listening(msgspec.Struct, frozen=True, tag="listening", tag_field="kind"):
    """The first process of a group on several nodes waits for the others. Said to its executor; no loop hears it."""

    port: int


class Reusable(msgspec.Struct, frozen=True, tag="reusable", tag_field="kind"):
    """After `Finished`: the process waits for another attempt. Said to its executor; no loop hears it."""


class Answer(msgspec.Struct, frozen=True, tag="answer", tag_field="kind"):
    """The driver's decision on one `Report`."""

    then: Literal["continue", "stop", "pause"] = "continue"
    """stop / pause: the trial ends after this; its process goes."""
    save: bool = False
    """Class trainables save now (before they stop or pause)."""
    should_checkpoint: bool = False
    """Function trainables see it as `get_context().should_checkpoint()`."""
    should_stop: bool = False
    """The experiment ends early: `get_context().should_stop()`."""
    budget_error: str | None = None
    """The save does not fit: `report` raises `CheckpointBudgetError` with this text, the staged files go."""


class Durable(msgspec.Struct, frozen=True, tag="durable", tag_field="kind"):
    """The journal is durable up to the result of this iteration: its checkpoint may become visible."""

    iteration: int


class Halt(msgspec.Struct, frozen=True, tag="halt", tag_field="kind"):
    """The experiment ends early: save at the next step boundary (class), or see `should_stop()`."""


SideMessage = Union[SavePublished, SaveFailed, SaveUploaded, CheckpointOpened, CheckpointClosed, Listening]
"""What a trial says beside its results, from any thread."""
FromTrial = Union[Report, Finished, AttemptErrored, Preempted, Reusable, SideMessage]
ToTrial = Union[Answer, Durable, Halt]

decode_from_trial: Callable[[bytes], FromTrial] = msgspec.json.Decoder(FromTrial).decode
decode_to_trial: Callable[[bytes], ToTrial] = msgspec.json.Decoder(ToTrial).decode


def nothing() -> None:
    """What a trial does while it waits, unless it has something to do."""


class DriverLink(Protocol):
    """A trial's end of the line to its driver; sockets in a process, plain calls in the inline executor."""

    def call(self, report: Report, meanwhile: Callable[[], None] = nothing) -> Answer:
        """Send a result and block for the decision.

        `meanwhile` is called once, while the driver decides; what it raises is raised when the answer is there. Raises
        ConnectionError when the driver is gone.
        """

    def send(self, message: Finished | AttemptErrored | Preempted) -> None:
        """Say how the trial ended (main line)."""

    def post(self, message: SideMessage) -> None:
        """Tell of a publish, of a copy, of who reads a checkpoint, or of a port (side line); from any thread."""

    def wait_durable(self, iteration: int) -> None:
        """Block the publisher until the journal is durable up to that iteration's result."""

    def halted(self) -> bool:
        """True once the driver said `Halt` or is gone; never blocks, never raises."""

    def watch(self, changed: Callable[[], None]) -> None:
        """Have `changed` called, in a thread, when `halted` has become true. A line that cannot tell never calls."""
        return


class SocketLink:
    """`DriverLink` over the two sockets of a trial's process.

    The main socket belongs to the thread that reports. The side socket has one reader at a time: the trial's thread,
    without blocking, as long as nobody has to wait for anything there; from the first `wait_durable` on a thread that
    does nothing else. A trial that never saves so stays with one thread, and may fork as it likes.
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
        self._send(self._side, frame(message))

    def wait_durable(self, iteration: int) -> None:
        with self._changed:
            self._start_reader()
            self._changed.wait_for(lambda: self._durable >= iteration or self._gone)
            if self._durable < iteration:
                raise ConnectionError("the driver is gone")

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
            elif isinstance(message, Halt):
                self._halted = True
