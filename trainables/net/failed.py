"""A failure as it crosses from one process to another: a value whose kind decides, and whose message is for people."""

from __future__ import annotations

import errno
from enum import Enum
from typing import TypeVar

import msgspec

from trainables import errors

DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
"""Errors that say that a disk is full, or is not to be written."""


class FailureKind(Enum):
    """What has failed."""

    ADDRESS = "address"
    SETTING = "setting"
    EXTRA_MISSING = "extra missing"
    STORE_MISSING = "store missing"
    STORE_BUSY = "store busy"
    ACCESS_REFUSED = "access refused"
    OBJECT_NOT_FOUND = "object not found"
    OBJECT_EXISTS = "object exists"
    TRANSFER_CORRUPT = "transfer corrupt"
    TRANSFER = "transfer"
    LIMIT = "limit"
    CHECKPOINT_NOT_FOUND = "checkpoint not found"
    CHECKPOINT_CORRUPT = "checkpoint corrupt"
    PUBLISH = "publish"
    CHECKPOINT = "checkpoint"
    """Anything else that is wrong with a checkpoint."""
    CHECKPOINT_LOST = "checkpoint lost"
    """The host is gone, and what only it had."""
    OWNER_TAKEN = "owner taken"
    """Another driver owns the replica: its guard is there."""
    PROCESS_LOST = "process lost"
    """The process that was to do it was ended, or has died, over it."""
    OTHER = "other"


_KINDS: dict[FailureKind, type[Exception]] = {
    FailureKind.ADDRESS: errors.InvalidAddressError,
    FailureKind.SETTING: errors.InvalidSettingError,
    FailureKind.EXTRA_MISSING: errors.MissingExtraError,
    FailureKind.STORE_MISSING: errors.StoreMissingError,
    FailureKind.STORE_BUSY: errors.StoreBusyError,
    FailureKind.ACCESS_REFUSED: errors.AccessRefusedError,
    FailureKind.OBJECT_NOT_FOUND: errors.ObjectNotFoundError,
    FailureKind.OBJECT_EXISTS: errors.ObjectExistsError,
    FailureKind.TRANSFER_CORRUPT: errors.TransferCorruptError,
    FailureKind.TRANSFER: errors.TransferError,
    FailureKind.LIMIT: errors.LimitError,
    FailureKind.CHECKPOINT_NOT_FOUND: errors.CheckpointNotFoundError,
    FailureKind.CHECKPOINT_CORRUPT: errors.CheckpointCorruptError,
    FailureKind.PUBLISH: errors.PublishError,
    FailureKind.CHECKPOINT: errors.CheckpointError,
}
"""The error of each, the more special ones first."""
_UNUSABLE = {FailureKind.CHECKPOINT_NOT_FOUND, FailureKind.CHECKPOINT_CORRUPT}
_OF_CHECKPOINT = _UNUSABLE | {FailureKind.CHECKPOINT, FailureKind.CHECKPOINT_LOST}

F = TypeVar("F", bound="Failed")


class Failed(msgspec.Struct, frozen=True):
    """Why something was not done."""

    kind: FailureKind
    message: str
    transient: bool = False
    """Trying again may help."""
    errno: int | None = None
    """What the system said, where it was that."""
    raised: str = ""
    """The class of what was raised, as people know it; nothing is decided by it."""

    @classmethod
    def of(cls: type[F], error: BaseException, message: str | None = None, **more: int) -> F:
        """What was raised, as a value; `message` in place of its own text."""
        kind = next((kind for kind, known in _KINDS.items() if isinstance(error, known)), FailureKind.OTHER)
        transient = kind is FailureKind.LIMIT or (isinstance(error, errors.TransferError) and error.transient)
        text = str(error) if message is None else message
        return cls(kind, text, transient, errno_of(error), type(error).__name__, **more)

    @property
    def of_checkpoint(self) -> bool:
        """It is the checkpoint that is wrong, and not the way to it."""
        return self.kind in _OF_CHECKPOINT

    @property
    def unusable(self) -> bool:
        """The checkpoint is missing, or not what its manifest says."""
        return self.kind in _UNUSABLE

    @property
    def disk(self) -> bool:
        """A disk of this host is full, or is not to be written."""
        return self.errno in DISK

    def error(self) -> errors.TransferError | errors.InvalidSettingError | errors.MissingExtraError:
        """The error to raise for who has asked a place elsewhere."""
        known = _KINDS.get(self.kind, errors.TransferError)
        if issubclass(known, errors.InvalidSettingError | errors.MissingExtraError):
            return known(self.message)
        if not issubclass(known, errors.TransferError):
            known = errors.TransferError
        return known(self.message, transient=self.transient, errno=self.errno)


def errno_of(error: BaseException | None) -> int | None:
    """That of an error, or of what caused it."""
    while error is not None:
        if isinstance(error, OSError) and error.errno is not None:
            return error.errno
        error = error.__cause__ or error.__context__
    return None
