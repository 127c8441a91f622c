"""Everything that `trainables` raises on purpose.

TrainablesError
 ├── MetricError (ValueError)           a reported value that cannot be written down
 ├── InvalidSettingError (ValueError)   a setting with a value that is not accepted
 ├── SessionError (RuntimeError)        report() and friends outside a trial, or misused
 ├── MissingExtraError (ImportError)    an optional dependency is not installed
 └── CheckpointError
      ├── CheckpointNotFoundError (FileNotFoundError)
      ├── CheckpointCorruptError        a manifest and the files beside it disagree
      ├── PublishError (OSError)        a save did not reach the disk
      └── CheckpointBudgetError         a save does not fit into the experiment's budget
"""

from __future__ import annotations


class TrainablesError(Exception):
    """Root of all errors of this package."""


class MetricError(TrainablesError, ValueError):
    """A reported value cannot be written down; the message names its key."""


class InvalidSettingError(TrainablesError, ValueError):
    """A setting has a value that is not accepted; the message says what is."""


class SessionError(TrainablesError, RuntimeError):
    """A function of the session was called where it cannot work."""


class MissingExtraError(TrainablesError, ImportError):
    """An optional dependency is missing; the message names the extra to install."""


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
