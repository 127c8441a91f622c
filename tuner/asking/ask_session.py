"""A session: an experiment that is open in this process, whose trials run in whatever process asks for them."""

from __future__ import annotations

import logging
import os
import pickle
import select
import socket
import threading
import time
import weakref
from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from trainables.errors import SessionError
from trainables.job import Job
from trainables.user_frames import from_the_call
from tuner.asking.asked_trial import AskedTrial
from tuner.asking.caller_door import CallerDoor
from tuner.asking.caller_link import CallerLink, CallerSockets, receive
from tuner.asking.driver_address import (
    DriverAddress,
    elsewhere_of,
    is_elsewhere,
    is_gone,
    is_session_driver,
    knock,
    owner_of,
    read_address,
)
from tuner.asking.driver_line import DriverLine, raise_error
from tuner.asking.driver_order import spec_of, start_driver
from tuner.asking.listening import listen_address
from tuner.error import OwnedElsewhereError, ResumeError, SettingError, TuneError
from tuner.executors.callers.caller_words import AskFor, Handed, NoTrial, RunOver
from tuner.experiment.generations import GenerationRecord
from tuner.experiment.ownership import STALE_S
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.processes import Processes
from tuner.experiment.reader import read_settings
from tuner.experiment.resume import Base, parse
from tuner.search.space import fingerprint, space_difference

log = logging.getLogger(__name__)

LOOK_S = 0.05
"""How often it is looked whether a driver that starts, or ends, has come so far."""
KILLED_AT_MOST = 5
"""Drivers that are started in turn where one after the other is killed before it has let the caller in."""
OWN_S = 10.0
"""After so long a wait for trials that are not over it is said which of them this process has itself."""


class AskSession:
    """An experiment that is open in this process. Several threads may ask, each with its own trial.

    Made by `open_session`. Closing it leaves trials that are not over unfinished.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        spec = spec_of(values)
        self._values = dict(values)
        self._paths = ExperimentPaths(spec.storage / str(spec.name))
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._trials: set[AskedTrial] = set()
        self._closed = self._finished = False
        self._line = self._open(self._values)
        _sessions.add(self)

    @property
    def path(self) -> str:
        """The experiment's directory, for `tune.open_experiment` and `tune.ExperimentAnalysis`."""
        return str(self._paths.root)

    @property
    def finished(self) -> bool:
        """Whether there will be no more trials, as `ask()` has found when it last returned None.

        Example:
            >>> while not session.finished:  # doctest: +SKIP
            ...     if (trial := session.ask()) is None:
            ...         serve_requests()  # none just now: others hold the last ones
            ...     else:
            ...         train(trial)
        """
        return self._finished

    @from_the_call
    def ask(self, wait: bool = False) -> AskedTrial | None:
        """The next trial: one that waits to go on, or a new one.

        Args:
            wait: until there is one, while others hold trials that may come back.

        Returns:
            A trial; None: there is no more, or, without `wait`, none just now (`finished` tells).

        Raises:
            SessionError: the session is closed, or belongs to another process.
        """
        self._check("ask()")
        if not isinstance(wait, bool):
            raise SettingError(f"wait={wait!r} is not accepted; accepted are True and False")
        while not self._finished:
            line = self._line
            try:
                trial = self._ask(line, wait)
            except ConnectionError:
                self._renew(line)
            else:
                if trial is not None or not wait:
                    return trial
        return None

    @from_the_call
    def close(self) -> None:
        """Leave the session. The last to leave waits until everything is written down, and copied where it is to be.

        Raises SyncError when something did not arrive there, and what else has ended the run.
        """
        if self._closed or os.getpid() != self._pid:
            return
        for trial in list(self._trials):
            trial._leave()
        self._closed = True
        try:
            if not self._finished:  # else what has ended it was raised where that was found out
                self._line.leave()
        finally:
            self._line.close()

    def __enter__(self) -> AskSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- the driver -----------------------------------------------------------------------------------------

    def _ask(self, line: DriverLine, wait: bool) -> AskedTrial | None:
        main, side = line.ask(AskFor(wait))
        with ExitStack() as unless_taken:
            unless_taken.callback(side.close)
            unless_taken.callback(main.close)
            if wait:
                self._say_own(main)
            word = receive(main)
            if isinstance(word, NoTrial) and word.ends:
                raise ConnectionError("the run ends: the driver's last word says how")
            if not isinstance(word, Handed):
                return None
            job: Job = pickle.loads(word.job)  # of a process of the same user
            unless_taken.pop_all()
        key = job.trial_id, job.generation, job.attempt
        link = CallerLink(key, line, CallerSockets(main, side), self._renew)
        trial = AskedTrial(job, link, ended=self._trials.discard)
        self._trials.add(trial)
        return trial

    def _say_own(self, main: socket.socket) -> None:
        """Wait for a word, and warn where it may be this process that keeps it from coming."""
        said = select.poll()
        said.register(main, select.POLLIN)
        if not said.poll(OWN_S * 1000) and (own := sorted(trial.trial_id for trial in self._trials)):
            log.warning(
                "ask(wait=True) of %s waits for trials that are not over; this process has %d of them: %s. A trial is "
                "over after finish(), fail(), or a report() that has returned \"stop\" or \"pause\"",
                self._paths.root, len(own), ", ".join(own[:5]),
            )  # fmt: skip

    def _renew(self, gone: DriverLine) -> DriverLine | None:
        """The line to the driver's next life, after that of one is at its end; None: it has ended, and all is done.

        Raises what the driver has raised.
        """
        word = gone.last_word()
        with self._lock:
            if self._line is gone and not self._finished:
                if isinstance(word, RunOver):
                    self._finished = True
                    raise_error(word)
                else:
                    gone.close()
                    self._line = self._open(self._values | {"resume": "AUTO", "overwrite": False})
            return None if self._finished else self._line

    def _open(self, values: Mapping[str, Any]) -> DriverLine:
        """The door of the driver, which is started where there is none."""
        paths, joins = self._paths, parse(values["resume"]).base is not Base.NEW
        killed = 0
        while True:
            silent = read_address(paths)
            door = knock(paths) if joins else None
            if door is not None:
                self._check_space(door)
                return DriverLine(door)
            if joins:
                self._say_wait(silent)

            def look(silent: DriverAddress | None = silent, joins: bool = joins) -> CallerDoor | None:
                return knock(paths) if joins and read_address(paths) != silent else None

            try:
                door = start_driver(values, listen=listen_address(), look=look)
            except OwnedElsewhereError as error:
                owner = owner_of(paths)
                if not joins or (owner is not None and not self._wait_for(owner)):
                    raise elsewhere_of(owner, paths, error) from error
                joins = True
                continue
            if door is not None:
                return DriverLine(door)
            killed += 1
            if killed == KILLED_AT_MOST:
                raise TuneError(
                    f"{killed} drivers of the session of {paths.root} were killed, one after the other, before "
                    "they let anybody in; they wrote nothing. Is there too little memory?"
                )

    def _say_wait(self, silent: DriverAddress | None) -> None:
        owner = owner_of(self._paths)
        if owner is not None and silent is not None and silent.far is not None and not Processes().sees(owner.owner):
            log.warning(
                "the driver of %s on %s (%s:%d) does not answer: its next life begins there, or here when it has given "
                "no sign of life for %.0f s",
                self._paths.root, owner.owner.host, *silent.far, STALE_S,
            )  # fmt: skip

    def _check_space(self, door: CallerDoor) -> None:
        """Raise ResumeError where others search another space."""
        own = fingerprint(spec_of(self._values).param_space)
        changed = space_difference(read_settings(self._paths).get("space", {}), own)
        if changed:
            door.close()
            raise ResumeError(
                f"the search space is not the one of the session that is open at {self._paths.root}; give this one "
                "another name, or the same space:\n  " + "\n  ".join(changed)
            )

    def _wait_for(self, owner: GenerationRecord) -> bool:
        """Wait until another driver of this session lets callers in, or has ended; False: it is none of a session."""
        paths, until = self._paths, time.monotonic() + STALE_S
        while is_session_driver(owner.owner) or (is_elsewhere(owner, paths) and time.monotonic() < until):
            if (door := knock(paths)) is not None:
                door.close()
                return True
            time.sleep(LOOK_S)
        return owner_of(paths) != owner or is_gone(owner.owner)

    # --- this process ---------------------------------------------------------------------------------------

    def _check(self, what: str) -> None:
        if os.getpid() != self._pid:
            raise SessionError(
                f"{what} in a child process of the one that has opened the session: open it there with "
                "tune.open_session, and it joins the same experiment"
            )
        if self._closed:
            raise SessionError(f"{what} after close(): the session of {self._paths.root} is closed; open it again")

    def _let_go(self) -> None:
        """In a child process: lines end with the process that has opened them."""
        self._line.close()
        for trial in self._trials:
            trial._let_go()


_sessions: weakref.WeakSet[AskSession] = weakref.WeakSet()


def _after_fork() -> None:
    for session in list(_sessions):
        session._let_go()


os.register_at_fork(after_in_child=_after_fork)
