"""What a rank and its leader say to each other, pickled, over a socket of this machine.

A rank asks and waits for one answer, but for `Held`, `RankUploaded` and its last word (`Returned` or `Raised`), which
have none. What many calls have to see without asking is in `Flags`, a few bytes of memory that all of them share.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Any

import msgspec

from trainables.group.merging import Part


class GroupMessage(msgspec.Struct, frozen=True):
    """Something that processes of a group say to one another, pickled."""


# ---------------------------------------------------------------- from a rank


class Hello(GroupMessage, frozen=True):
    """The first message: who speaks. Answer: `Welcome`, before which nothing of the user's runs."""

    rank: int
    pid: int


class RankReport(GroupMessage, frozen=True):
    """A call of `report()`. Answers: `Go`, `End`, `Refused`."""

    metrics: dict[str, Any]
    staged: Path | None = None
    """The save, in a hidden directory of the rank's own."""
    failure: OSError | None = None
    """Why the disk did not take the save."""


class Stopping(GroupMessage, frozen=True):
    """A call of `should_stop()` after the flag was set. Answer: `StopAt`."""

    call: int
    """The number of the call, from 1."""


class Newest(GroupMessage, frozen=True):
    """A call of `get_checkpoint()`. Answer: `Found`."""


class Held(GroupMessage, frozen=True):
    """The rank reads a checkpoint, or does so no longer: it is not to be deleted meanwhile."""

    path: Path
    held: bool


class RankUploaded(GroupMessage, frozen=True):
    """What came of an `Upload`; the rank copies nothing of that save any more."""

    save: int
    sent: dict[str, str]
    """Name of a file of the checkpoint -> BLAKE3 of what is in the replica now, hex."""
    problem: str = ""
    """Why it could not be copied."""


class Returned(GroupMessage, frozen=True):
    """The function returned, or was told to end."""

    value: bytes | None = None
    """What it returned, cloudpickled; None: nothing, or nothing that can be."""


class Raised(GroupMessage, frozen=True):
    """The function raised."""

    type: str
    message: str
    traceback: str
    pickled: bytes = b""
    """The exception itself, with its traceback as text; b"" where it does not survive the way."""
    waited: bool = False
    """It may come of another rank's end: this one waited for the others (`Framework.waited`)."""


# ---------------------------------------------------------------- to a rank


class Welcome(GroupMessage, frozen=True):
    """The leader knows the rank's process, and will see its end however soon that is."""


class Upload(GroupMessage, frozen=True):
    """The rank's save is part of a checkpoint: copy it to the replica. Answer, in its time: `RankUploaded`."""

    save: int
    """The group's number of it."""
    checkpoint: str
    """What it will be called."""
    part: Part


class Go(GroupMessage, frozen=True):
    """The result was taken: go on."""

    should_checkpoint: bool = False
    next_save: int = 0
    """The number that the next save of the group will have."""
    upload: Upload | None = None


class End(GroupMessage, frozen=True):
    """The driver ended the trial: unwind."""

    upload: Upload | None = None


class Refused(GroupMessage, frozen=True):
    """`report()` raises this at every rank."""

    error: bytes
    """The exception, cloudpickled."""


class StopAt(GroupMessage, frozen=True):
    """From this call on `should_stop()` is True, at every rank."""

    call: int


class Found(GroupMessage, frozen=True):
    """The newest checkpoint, if there is one."""

    path: Path | None


FromRank = Hello | RankReport | Stopping | Newest | Held | RankUploaded | Returned | Raised

# ---------------------------------------------------------------- seen by all

STOP, CHECKPOINT = 1, 2
_LOOKS = 2
_LOOKED = STOP | CHECKPOINT
_WORD = struct.Struct("<Q")
"""What a rank has looked at: `should_stop()`, `should_checkpoint()`."""


class Flags:
    """A word for the group (it is to leave) and one for each rank (what it has looked at), in shared memory.

    Only a rank's own process writes its word: the low bits say what it has asked for, the rest counts its calls of
    `should_stop()`.
    """

    def __init__(self, path: Path, size: int, *, create: bool = False) -> None:
        length = _WORD.size * (1 + size)
        if create:
            path.write_bytes(bytes(length))
        with open(path, "r+b") as file:
            self._memory = mmap.mmap(file.fileno(), length)
        self._size = size

    @property
    def leaving(self) -> bool:
        """The trial was told to leave."""
        return self._memory[0] != 0

    def leave(self) -> None:
        self._memory[0] = 1

    def looked(self, rank: int, at: int) -> None:
        self.copy(rank, self.word(rank) | at)

    def called(self, rank: int, calls: int) -> None:
        """Rank `rank` is in its call of that number of `should_stop()`."""
        self.copy(rank, (calls << _LOOKS) | (self.word(rank) & _LOOKED) | STOP)

    def calls(self, rank: int) -> int:
        """The number of the call that rank `rank` has come to; 0: it has never asked."""
        return self.word(rank) >> _LOOKS

    def any_looked(self, at: int) -> bool:
        return any(self.word(rank) & at for rank in range(self._size))

    def word(self, rank: int) -> int:
        """All that is known of rank `rank`, for `copy`."""
        found: int = _WORD.unpack_from(self._memory, _WORD.size * (1 + rank))[0]
        return found

    def copy(self, rank: int, word: int) -> None:
        """Write down what the flags of another host say of a rank there."""
        _WORD.pack_into(self._memory, _WORD.size * (1 + rank), word)

    def close(self) -> None:
        self._memory.close()
