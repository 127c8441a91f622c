"""A place elsewhere that somebody named: an experiment, or what is below it, asked again now and then."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from trainables.errors import TrainablesError, TransferError
from trainables.places import child_of, trim_slash
from trainables.starting import start_thread
from trainables.transfer.open import check_scheme, shown
from tuner.clock import Clock
from tuner.error import ExperimentNotFoundError, TuneError
from tuner.experiment.hostile import said
from tuner.syncer import views

AGAIN_S = 10.0
"""Between two looks at what is below it, at least; nobody asks it while nobody asks us."""


class RemotePlace:
    """It is asked by threads of its own, the first time at once: nobody has to wait for a place that is silent.

    Args:
        uri: a bucket with a path, or a host's directory. Raises SettingError, InvalidAddressError.
    """

    def __init__(self, uri: str, clock: Clock) -> None:
        check_scheme(uri)
        self._uri, self._clock = trim_slash(uri), clock
        self.address = shown(self._uri)
        self.error: TuneError | TrainablesError | None = None
        """Why the last look saw nothing."""
        self._names: list[str] | None = None
        """Of the experiments below it; None: that is not known, or it is one itself."""
        self._itself = False
        self._answered = threading.Event()
        self._looking = False
        self._looked = 0.0
        self._lock = threading.Lock()
        self._ask()

    def wait(self, seconds: float) -> None:
        """Wait for the first answer; afterwards `error` says if there was none."""
        if not self._answered.wait(seconds) and self.error is None:
            self.error = TransferError(f"{self.address} has not answered for {seconds:.0f} s")

    def found(self) -> Sequence[str]:
        """The experiments that are known by now; asks again, beside the caller, if that is a while ago."""
        if not self._itself and self._clock.monotonic() - self._looked >= AGAIN_S:
            self._ask()
        return [self._uri] if self._itself else [child_of(self._uri, name) for name in self._names or ()]

    def _ask(self) -> None:
        with self._lock:
            if self._looking:
                return
            self._looking = True
        start_thread(self._look, name=f"ui-place-{self.address}")

    def _look(self) -> None:
        try:
            if self._names is None and views.is_at(self._uri):
                self._itself = True
            else:
                _, self._names = views.names_under(self._uri, self._names or ())
                if not self._names:
                    raise ExperimentNotFoundError(f"there is no experiment at {self.address}, nor one in it")
            self.error = None
        except (TuneError, TrainablesError) as error:
            self.error = error
        except Exception as error:  # of somebody's filesystem, which may raise anything
            self.error = TransferError(f"{self.address}: {type(error).__name__}: {said(error)}")
        finally:
            self._looked = self._clock.monotonic()
            self._looking = False
            self._answered.set()
