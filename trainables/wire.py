"""What a trial and its driver say to each other.

A trial has two sockets. On *main* it sends a `Report` and blocks for one `Answer`, unless it knows that
one already (`Answer.free_until`); at the end it sends one of `Finished`, `AttemptErrored`, `Preempted`.
What other threads say (`SavePublished`, `SaveFailed`, `CheckpointOpened`, ...) goes there too, so that the
driver hears all in the order in which it was said. On *side* the driver alone speaks: `Durable` to the
publisher thread, `Halt` and `Decided`. The body of a frame is a JSON object with a tag.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol, Union

import msgspec

from trainables.decoding import decoder


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


class Report(msgspec.Struct, frozen=True, tag="report", tag_field="kind", omit_defaults=True):
    """One result."""

    iteration: int
    metrics: msgspec.Raw
    """The whole result with its automatic keys, as tagged JSON (see `trainables.tagged`)."""
    saving: PendingSave | None = None
    save_due: bool = False
    """A class trainable finds that it pays to save now."""
    save_s: float = 0.0
    """What the save before took of the trial's time; 0: none was measured since the last result."""
    waits: bool = True
    """The trial blocks until it has the `Answer`. False: it goes on; another answer than "continue" is `Decided`."""


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


class SaveBehind(msgspec.Struct, frozen=True, tag="behind", tag_field="kind"):
    """A save follows of a result that was delivered without it: it may become visible once that is `Durable`."""

    ref: CheckpointRef


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


class Answer(msgspec.Struct, frozen=True, tag="answer", tag_field="kind", omit_defaults=True):
    """The driver's decision on one `Report`."""

    then: Literal["continue", "stop", "pause"] = "continue"
    """stop / pause: the trial ends after this; its process goes."""
    save: bool = False
    """Class trainables save now (before they stop or pause)."""
    should_checkpoint: bool = False
    """Somebody asked for a save: function trainables see it by `should_save()`."""
    should_stop: bool = False
    """The experiment ends early: `get_context().should_stop()`."""
    budget_error: str | None = None
    """The save does not fit: `report` raises `CheckpointBudgetError` with this text, the staged files go."""
    free_until: int = 0
    """Nobody decides about results before this iteration: the trial need not wait for the answers to them."""


class Decided(msgspec.Struct, frozen=True, tag="decided", tag_field="kind"):
    """The answer to a result that did not wait for it, and which is not "continue". The next result waits.

    After stop and pause what the trial has reported since does not count, nor do its saves.
    """

    iteration: int
    answer: Answer


class Durable(msgspec.Struct, frozen=True, tag="durable", tag_field="kind"):
    """The journal is durable up to the result of this iteration: its checkpoint may become visible."""

    iteration: int


class Halt(msgspec.Struct, frozen=True, tag="halt", tag_field="kind"):
    """The experiment ends early: save at the next step boundary (class), or see `should_stop()`."""


SideMessage = Union[SaveBehind, SavePublished, SaveFailed, SaveUploaded, CheckpointOpened, CheckpointClosed, Listening]
"""What a trial says beside its results, from any thread."""
FromTrial = Union[Report, Finished, AttemptErrored, Preempted, Reusable, SideMessage]
ToTrial = Union[Answer, Decided, Durable, Halt]

decode_from_trial: Callable[[bytes], FromTrial] = decoder(FromTrial)
decode_to_trial: Callable[[bytes], ToTrial] = decoder(ToTrial)


def nothing() -> None:
    """What a trial does while it waits, unless it has something to do."""


class DriverLink(Protocol):
    """A trial's end of the line to its driver; sockets in a process, plain calls in the inline executor."""

    def call(self, report: Report, meanwhile: Callable[[], None] = nothing) -> Answer:
        """Send a result and block for the decision.

        `meanwhile` is called once, while the driver decides; what it raises is raised when the answer is there. Raises
        ConnectionError when the driver is gone.
        """

    def tell(self, report: Report) -> None:
        """Send a result and go on (`Report.waits` is False). Raises ConnectionError when the driver is gone."""
        self.call(report)  # a line whose driver gives no answers ahead is never asked

    def decided(self) -> Decided | None:
        """What came of such results since the last call, where that is not "continue"; never blocks, never raises."""
        return None

    def send(self, message: Finished | AttemptErrored | Preempted) -> None:
        """Say how the trial ended (main line)."""

    def post(self, message: SideMessage) -> None:
        """Tell of a publish, of a copy, of who reads a checkpoint, or of a port; from any thread."""

    def wait_durable(self, iteration: int) -> None:
        """Block the publisher until the journal is durable up to that iteration's result.

        Raises ConnectionError when that will not be: the driver is gone, or the trial had ended before that result.
        """

    def halted(self) -> bool:
        """True once the driver said `Halt` or is gone; never blocks, never raises."""

    def watch(self, changed: Callable[[], None]) -> None:
        """Have `changed` called, in a thread, when `halted` has become true. A line that cannot tell never calls."""
        return
