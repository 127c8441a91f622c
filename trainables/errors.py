"""Everything that `trainables` raises on purpose.

TrainablesError
 ├── MetricError (ValueError)           a reported value that cannot be written down
 ├── InvalidSettingError (ValueError)   a setting with a value that is not accepted
 │    └── InvalidAddressError           an address of a place that is not accepted
 ├── SessionError (RuntimeError)        report() and friends outside a trial, or misused
 ├── MissingExtraError (ImportError)    an optional dependency is not installed
 ├── SamplerError (RuntimeError)        a sampler was moved where it cannot go
 │    ├── AdvancedTooFarError           beyond the end of the epoch
 │    └── HasNotResetProgressError      to another epoch, in the middle of one
 ├── RanksError (RuntimeError)          the ranks of a job disagree, or one of them is gone
 ├── TrainingFailedError (RuntimeError) a trainer's fit() or run() failed; the failure is its cause
 ├── TransferError (OSError)            a place elsewhere did not take, or give, what it should
 │    ├── StoreMissingError             the bucket, the host or the directory is not there
 │    ├── StoreBusyError                the server is overloaded, and wants to be asked later
 │    ├── AccessRefusedError            credentials are missing, refused or expired
 │    ├── ObjectNotFoundError (FileNotFoundError)   there is no file of that key
 │    ├── ObjectExistsError (FileExistsError)       there is one, and it was to be created exclusively
 │    └── TransferCorruptError          what arrived is not what was sent
 ├── LimitError (OSError)               the system starts no further thread or process
 └── CheckpointError
      ├── CheckpointNotFoundError (FileNotFoundError)
      ├── CheckpointCorruptError        a manifest and the files beside it disagree
      ├── PublishError (OSError)        a save did not reach the disk
      └── CheckpointBudgetError         a save does not fit into the experiment's budget
"""

from __future__ import annotations

from typing import Any

from trainables.masking import masked
from trainables.printable import printable
from trainables.user_frames import OnPurposeError


class TrainablesError(OnPurposeError):
    """Root of all errors of this package. Its text may quote anything: secrets and control characters are not in it."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(printable(masked(part)) if isinstance(part, str) else part for part in args))


class MetricError(TrainablesError, ValueError):
    """A reported value cannot be written down; the message names its key."""


class InvalidSettingError(TrainablesError, ValueError):
    """A setting has a value that is not accepted; the message says what is."""


class InvalidAddressError(InvalidSettingError):
    """An address of a place is not accepted; the message says what is."""


class SessionError(TrainablesError, RuntimeError):
    """A function of the session was called where it cannot work."""


class MissingExtraError(TrainablesError, ImportError):
    """An optional dependency is missing; the message names the extra to install."""


class SamplerError(TrainablesError, RuntimeError):
    """A sampler was moved where it cannot go."""


class AdvancedTooFarError(SamplerError):
    """More samples were counted than the epoch has for this rank."""


class HasNotResetProgressError(SamplerError):
    """Another epoch was asked for while this one is not over."""


class RanksError(TrainablesError, RuntimeError):
    """The ranks of a distributed job disagree, or one of them is gone; the message says which and about what."""


class TrainingFailedError(TrainablesError, RuntimeError):
    """A trainer's training failed as often as it may; `__cause__` is the last failure."""


class TransferError(TrainablesError, OSError):
    """A place elsewhere did not take, or give, what it should; the message names place, cause and remedy."""

    def __init__(self, message: str, *, transient: bool = False, errno: int | None = None) -> None:
        super().__init__(message)
        self.transient = transient
        """Trying again may help: a time-out, a reset, a server that is overloaded."""
        self.errno = errno

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.args, {**self.__dict__, "errno": self.errno}  # pickle does not find that one by itself


class StoreMissingError(TransferError):
    """The bucket, the host or the directory is not there."""


class StoreBusyError(TransferError):
    """The server is there and overloaded (503, 429): who asks again later may be served."""


class AccessRefusedError(TransferError):
    """Credentials are missing, were refused, or have expired."""


class ObjectNotFoundError(TransferError, FileNotFoundError):
    """There is no file of that key."""


class ObjectExistsError(TransferError, FileExistsError):
    """There is a file of that key, and it was to be created exclusively."""


class TransferCorruptError(TransferError):
    """What arrived is not what was sent."""


class LimitError(TrainablesError, OSError):
    """The system started no thread or process; the message names the limit that is reached."""


class CheckpointError(TrainablesError):
    """Root of what goes wrong with a checkpoint."""


class CheckpointNotFoundError(CheckpointError, FileNotFoundError):
    """There is no complete checkpoint at that path."""


class CheckpointCorruptError(CheckpointError):
    """The files of a checkpoint are not those that its manifest names."""


class PublishError(CheckpointError, OSError):
    """A save did not reach the disk: the message gives the path and the free bytes."""


class CheckpointBudgetError(CheckpointError):
    """A save was refused because it does not fit into the experiment's budget."""
