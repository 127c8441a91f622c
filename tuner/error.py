"""Everything that `tuner` raises on purpose.

TuneError
 ├── SettingError (ValueError)            an option, literal or name that is not accepted
 ├── ResourceError (ValueError)           more is asked for than there is
 ├── ExperimentExistsError (FileExistsError)
 ├── ExperimentNotFoundError (FileNotFoundError)
 ├── ExperimentDamagedError               a directory that is no experiment, or cannot be read
 │    └── NewerFormatError                a newer version of the package wrote it
 ├── ExperimentDivergedError              two histories, each with facts that the other lacks
 ├── ResumeError                          a resume that cannot be done; nothing was touched
 ├── OwnedElsewhereError                  another driver owns the experiment
 ├── ToolError (ValueError)               what an agent asks of `tuner mcp` is not accepted, or beyond its budget
 ├── OrderError (ValueError)              an order that cannot be read, or cannot be given there
 ├── StorageError (OSError)               results cannot be kept at that place
 │    └── StorageFullError                the disk is full
 ├── NotHereError (NotImplementedError)   a name of Ray's that has no counterpart here
 │    └── NoSuchAttributeError (AttributeError)
 ├── SlurmSilentError (ConnectionError)   the controller of Slurm does not answer
 ├── SerializationError (TypeError)       a trainable or config that cannot be shipped
 ├── MetricMissingError (KeyError, ValueError)   a metric that is needed, or anything at all, was not reported
 ├── TrialError                           one trial failed
 │    ├── TrialTimeoutError (TimeoutError)
 │    └── TrialProcessDiedError           its process ended without a word
 ├── TrialsFailedError                    some trials of a run failed (`raise_on_failed_trial`)
 └── SyncError                            the run has ended, and something did not reach its copy elsewhere
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainables.masking import masked
from trainables.printable import printable
from trainables.user_frames import OnPurposeError


class TuneError(OnPurposeError):
    """Root of all errors of this package. Its text may quote anything: secrets and control characters are not in it.

    Example:
        >>> try:
        ...     tune.run(train, mode="lowest")
        ... except tune.TuneError as error:
        ...     print(error)
    """

    def __init__(self, *args: object) -> None:
        super().__init__(*(printable(masked(part)) if isinstance(part, str) else part for part in args))


class SettingError(TuneError, ValueError):
    """An option, literal or name that is not accepted; the message lists what is."""


def refused(name: str, value: object, accepted: str) -> SettingError:
    """The error about a value that does not fit; `accepted` says in words what does."""
    return SettingError(f"{name}={value!r} is not accepted; {accepted}")


def require(fits: object, name: str, value: object, accepted: str) -> None:
    """Refuse a value that does not fit."""
    if not fits:
        raise refused(name, value, accepted)


class ResourceError(TuneError, ValueError):
    """A trial asks for more than this machine has; the message names both numbers."""


class ExperimentExistsError(TuneError, FileExistsError):
    """The name is taken; the message says how to resume or to overwrite."""


class ExperimentNotFoundError(TuneError, FileNotFoundError):
    """There is no experiment at that path."""


class ExperimentDamagedError(TuneError):
    """A directory is not an experiment of ours, or its state cannot be read."""


class NewerFormatError(ExperimentDamagedError):
    """A newer version of the package wrote it, in a format that this one does not know; nothing of it was used."""


class ExperimentDivergedError(TuneError):
    """Two histories of one experiment each hold facts that the other lacks."""


class ResumeError(TuneError):
    """A resume cannot be done. Nothing was touched."""


class ToolError(TuneError, ValueError):
    """What an agent asks of `tuner mcp` is not accepted, or beyond its budget; the text quotes nothing of a trial."""


class OrderError(TuneError, ValueError):
    """An order to an experiment that cannot be read, or cannot be given there; the message says what is accepted."""


class OwnedElsewhereError(TuneError):
    """Another driver owns the experiment; the message says which."""


class StorageError(TuneError, OSError):
    """Results cannot be kept at that place; the message gives the path and the cause."""


class StorageFullError(StorageError):
    """The disk is full; the message gives the path and the free bytes."""


class NotHereError(TuneError, NotImplementedError):
    """A name of Ray's was used that has no counterpart here; the message says what to use instead."""


class NoSuchAttributeError(NotHereError, AttributeError):
    """An object of ours was asked for what Ray's has, and it has not; `hasattr` says so too."""


class SlurmSilentError(TuneError, ConnectionError):
    """Slurm's controller does not answer its commands, for longer than they are tried again."""


class SerializationError(TuneError, TypeError):
    """A trainable or a config cannot be shipped to a trial; the message names the variable."""


class MetricMissingError(TuneError, KeyError, ValueError):
    """A metric that is needed was not reported; the message lists the nearest keys. Ray's is a ValueError."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class TrialError(TuneError):
    """One trial failed. `traceback` holds the text of the trial's own traceback."""

    def __init__(self, message: str, traceback: str = "") -> None:
        super().__init__(message)
        self.traceback = traceback


class TrialTimeoutError(TrialError, TimeoutError):
    """A trial ran longer than `trial_timeout_s` and was ended."""


class TrialProcessDiedError(TrialError):
    """A trial's process ended without a word, by a signal or by `os._exit`."""


class TrialsFailedError(TuneError):
    """Some trials failed. `analysis` holds the results of all the others."""

    def __init__(self, message: str, analysis: Any = None) -> None:
        super().__init__(message)
        self.analysis = analysis


class Interrupted(KeyboardInterrupt):
    """Ctrl-C has stopped a run; what its trials had come to is saved as far as they could, and a resume continues it.

    A script that does not catch it ends as Python ends on Ctrl-C, with a few lines in place of a traceback.

    Attributes:
        analysis: the results so far, an `ExperimentAnalysis`.
        results: the same as `Tuner.fit` returns them, a `ResultGrid`.

    Example:
        >>> try:
        ...     analysis = tune.run(train, resume="AUTO")
        ... except tune.Interrupted as stopped:
        ...     analysis = stopped.analysis
    """

    def __init__(self, message: str = "", analysis: Any = None, results: Any = None) -> None:
        super().__init__(message)
        self.analysis, self.results = analysis, results

    def _render_traceback_(self) -> list[str]:
        """What IPython shows."""
        return str(self).splitlines()


class SyncError(TuneError):
    """The run has ended, and something did not reach its copy elsewhere within `sync_timeout`. Here nothing is missing.

    Attributes:
        analysis: the results, an `ExperimentAnalysis`.
        missing: what did not arrive, one line each.
    """

    def __init__(self, message: str, analysis: Any = None, missing: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.analysis = analysis
        self.missing = list(missing)
