"""Subprocesses of back ends (rsync, ssh, a user's command), never through a shell of this host."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainables.errors import LimitError, MissingExtraError, TransferError
from trainables.extras import how_to_install
from trainables.net.failed import DISK
from trainables.starting import no_process, refused, signal_name, start

GRACE_S = 5.0
"""Seconds between asking a program to end and killing it: rsync removes its temporary files meanwhile."""
_LAST_LINES = 5
_PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None, use_errno=True).prctl


@dataclass(frozen=True, slots=True)
class Ended:
    """A program that has ended."""

    code: int
    """Its exit status; negative when a signal ended it."""
    out: bytes
    """What it printed; empty where somebody watched."""
    err: str
    timed_out: bool

    @property
    def last_lines(self) -> str:
        """The end of what it complained about, for an error of ours."""
        lines = [line.strip() for line in (self.err or self.out.decode("utf-8", "replace")).splitlines()]
        return " | ".join([line for line in lines if line][-_LAST_LINES:])

    @property
    def errno(self) -> int | None:
        """That a disk is full, or is not to be written, where it complained of that: a program has no other way."""
        return next((code for code in sorted(DISK) if os.strerror(code) in self.err), None)

    @property
    def how(self) -> str:
        """How it ended, in words."""
        if self.timed_out:
            return "did not end in time and was stopped"
        if self.code < 0:
            return f"was ended by {signal_name(-self.code)}"
        return f"ended with exit status {self.code}"


def run(
    program: Sequence[str | Path],
    *,
    stdin: bytes = b"",
    timeout_s: float | None = None,
    watch: Callable[[str], None] | None = None,
) -> Ended:
    """Run a program to its end, in a process group of its own.

    Args:
        program: its name or path, and its arguments as they are.
        timeout_s: seconds after which its whole process group is ended.
        watch: told what it prints, piece by piece, from another thread. What raises in it ends the program, and is
            raised here.

    Raises:
        TransferError: there is no such program.
        MissingExtraError: the library that runs programs is not installed.
    """
    name, *arguments = (str(argument) for argument in program)
    raised: list[BaseException] = []
    ending = _Ending()

    def on_output(piece: str | bytes) -> None:
        if watch is None or raised:
            return
        try:
            watch(piece if isinstance(piece, str) else piece.decode("utf-8", "replace"))
        except BaseException as error:  # raised where it was called from
            raised.append(error)
            ending.begin()

    process = _started(name, arguments, stdin, on_output if watch else None)
    ending.process = found = process.process
    if raised:
        ending.begin()  # it printed before anybody could end it
    timed_out = _waited_for(process, ending, timeout_s)
    if raised:
        raise raised[0]
    return Ended(found.exit_code, found.stdout, found.stderr.decode("utf-8", "replace"), timed_out)


def _started(name: str, arguments: Sequence[str], stdin: bytes, on_output: Callable[[str | bytes], None] | None) -> Any:
    try:
        import sh
    except ImportError as error:
        raise MissingExtraError(
            f"running rsync and sync commands needs the library sh: {how_to_install('rsync')}"
        ) from error
    options: dict[str, Any] = {"_out": on_output, "_out_bufsize": 0} if on_output else {}
    try:
        return sh.Command(name)(
            *arguments,
            _in=stdin,
            _bg=True,
            _bg_exc=False,
            _new_group=True,
            _tty_out=False,
            _encoding="utf-8",
            _decode_errors="replace",
            _return_cmd=True,
            _no_pipe=True,
            _preexec_fn=_end_with(os.getpid()),
            **options,
        )
    except sh.CommandNotFound as error:
        raise TransferError(f"there is no program {name!r} on this host: install it, or correct its name") from error
    except (OSError, RuntimeError) as error:  # it takes processes and threads
        if isinstance(error, OSError) and not refused(error):
            raise
        raise TransferError(str(no_process(name)), transient=True) from error


def _waited_for(process: Any, ending: _Ending, timeout_s: float | None) -> bool:
    """Wait until a program has ended; returns whether it took too long."""
    import sh

    timed_out = threading.Event()

    def on_timeout() -> None:
        timed_out.set()
        ending.begin()

    timer = threading.Timer(timeout_s, on_timeout) if timeout_s is not None else None
    try:
        if timer is not None:
            start(timer)
        try:
            process.wait()
        except sh.ErrorReturnCode:
            pass  # the caller knows what its exit status means
        except BaseException:  # Ctrl-C, or an exception that ends this thread: nothing of ours goes on behind it
            ending.begin()
            raise
    except LimitError as error:
        ending.now()
        raise TransferError(str(error), transient=True) from error
    finally:
        if timer is not None:
            timer.cancel()
        ending.over()
    return timed_out.is_set()


def _end_with(parent: int) -> Callable[[], None]:
    """Called in the new process: it is asked to end when the one that waits for it is killed, which could not."""

    def end_with() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # an agent ignores it, and programs would go on to
        _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)  # it was killed meanwhile

    return end_with


class _Ending:
    """Ends a process group: asks it first, kills it after a grace time."""

    def __init__(self) -> None:
        self.process: Any = None
        self._kill: threading.Timer | None = None
        self._lock = threading.Lock()
        self._over = False

    def begin(self) -> None:
        with self._lock:
            if self._over or self._kill is not None or self.process is None:
                return
            kill = threading.Timer(GRACE_S, self._signal, [signal.SIGKILL])
            kill.daemon = True
            try:
                start(kill)
            except LimitError:
                self.now()  # nobody could do it later
                return
            self._kill = kill
        self._signal(signal.SIGTERM)

    def now(self) -> None:
        self._signal(signal.SIGKILL)

    def over(self) -> None:
        """The program has ended: its children are not waited for."""
        with self._lock:
            self._over = True
            begun = self._kill is not None
            if self._kill is not None:
                self._kill.cancel()
        if begun:
            self._signal(signal.SIGKILL)  # what it left behind in its group

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):  # it has ended by itself
            os.killpg(self.process.pgid, number)
