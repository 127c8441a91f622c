"""The seam between the loop and whatever runs trials.

An executor starts attempts, carries messages both ways, and says when an attempt is over. It decides nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from trainables.job import Job
from trainables.quick_dataclass import dataclass
from trainables.wire import FromTrial, ToTrial
from tuner.clock import Clock, SystemClock

if TYPE_CHECKING:
    from tuner.executors.remote_hosts import RemoteHosts

log = logging.getLogger(__name__)

Resources = Mapping[str, float]
"""{"cpu": 1, "gpu": 0.5, "custom": 2}; lower-case keys, amounts may be fractions."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One attempt to start. It is durable in the journal before an executor sees it."""

    job: Job
    resources: Resources
    timeout_s: float | None = None
    """Hard limit on the attempt's wall time; then the process group is ended and `Exited.reason` is "timeout"."""
    stdout: Path | None = None
    stderr: Path | None = None
    """Files that the process's output is appended to; None leaves it where the driver's goes."""
    tee: bool = False
    """Show the output on the driver's terminal as well."""
    environment: Mapping[str, str] = field(default_factory=dict)
    digest: str = ""
    """BLAKE3 of the manifest of the checkpoint that it starts from, where it has one."""
    packed: bytes | None = None
    """The job as its process gets it, where somebody has pickled it already."""
    reuse: bool = False
    """Its trainable can take one config after another: a process that has run others may run it, and others after it.
    Only processes of this machine, and of hosts with an agent, do."""


@dataclass(frozen=True, slots=True)
class Started:
    """The attempt's process runs (or the inline trial is about to)."""

    trial_id: str
    attempt: int
    pid: int


@dataclass(frozen=True, slots=True)
class Message:
    """The trial said something."""

    trial_id: str
    attempt: int
    body: FromTrial


ExitReason = Literal["killed", "timeout", "lost", "unusable"]
"""Asked by `kill`; its time was up; keeper, fork server or host died; or the checkpoint that it was to start from is
damaged, or cannot be found: it has not begun."""
KILLED = -9
"""`Exited.status` of what was ended by SIGKILL."""


class OutOfMemory(Enum):
    """Whether the kernel killed a process for want of memory."""

    KILLED = "killed"
    NOT_KILLED = "not killed"
    """It counts such kills, and has counted none meanwhile."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Death:
    """What is known of a process that ended without a word and without having been told to."""

    peak_bytes: int = 0
    """The most memory that it had at once, and whatever it had started and left; 0: not known."""
    out_of_memory: OutOfMemory = OutOfMemory.UNKNOWN
    evidence: str = ""
    """Where it stands that the kernel did, or did not."""
    limit_bytes: int | None = None
    """What its cgroup may have."""


@dataclass(frozen=True, slots=True)
class Exited:
    """The attempt is over: no process of it is left, its resources are free, all its messages were delivered before."""

    trial_id: str
    attempt: int
    status: int
    """Exit status; negative: the number of the signal that ended it."""
    reason: ExitReason | None = None
    """None: by itself."""
    death: Death | None = field(default=None, compare=False)
    """Of a process of this machine or of a host's that a signal has ended, or that left with a status."""


@dataclass(frozen=True, slots=True)
class Offered:
    """A process that no driver has started goes on with an attempt of a driver that was killed, if it may."""

    trial_id: str
    attempt: int
    generation: int
    iteration: int = 0
    """Of a report of its that was not answered; 0: there is none."""


@dataclass(frozen=True, slots=True)
class Released:
    """The process is gone that had outlived the driver of an attempt (`Executor.outlives`)."""

    trial_id: str
    attempt: int


Told = Literal["continue", "stop", "pause"]
Event = Started | Message | Exited | Offered | Released
Dispatch = Callable[[Sequence[Event]], None]
"""The loop's handler of a batch of events. When it returns, the answers have been given with `tell`."""


class Executor(Protocol):
    """Runs attempts. Every method is called from the loop's thread, except `wake`.

    Life: `start` once, then any number of `launch` / `tell` / `kill` / `run_once`, then `shutdown`. The attributes say
    what it is; those of who derives from this class are those of processes of this machine.
    """

    inline: bool = False
    """Everything happens on the loop's own thread, and in this process."""
    max_concurrent: int | None = None
    """So many attempts are begun at once, whatever the settings say; None: as many as have room."""
    clock: Clock = SystemClock()
    """The time that the whole run goes by."""
    directories: bool = True
    """Trials have directories; False: of each there is what the journal says."""

    virtual_checkpoints: bool = False
    """Checkpoints are facts of the journal, and nothing of them is on a disk. Its trials save when they are told to, as
    classes do, whatever the trainable is."""

    answers_ahead: bool = False
    """A trial may go on before its result is answered, where nobody decides about it (`wire.Answer.free_until`)."""

    note: Callable[[str], None] = log.info
    """Called with a line that belongs into driver.log, and not on the screen. The driver sets it before `start`."""

    keeps_processes: bool = False
    """A process may go on with another attempt (`Launch.reuse`), and `end_idle` does something."""

    @property
    def deserted(self) -> bool:
        """Nobody is left who would run an attempt, nor will anybody come: the run is to end."""
        return False

    @property
    def is_in_users_code(self) -> bool:
        """Whether a trial's own code runs just now in the loop's thread, and not the loop; for signal handlers."""
        return False

    @property
    def remote_hosts(self) -> RemoteHosts | None:
        """The other hosts on which attempts run; None: they run on this one."""
        return None

    def total(self) -> Resources:
        """What there is in all, by resource; known before `start`."""

    def start(self, trainable: Any, *, lock_fds: Sequence[int] = (), marker: str = "", temporary: Path) -> None:
        """Get ready to run `trainable` (a function, a Trainable subclass).

        `lock_fds` are inherited by every process; `marker` is put into every process's environment as
        `TUNER_OWNER`, so that a later owner finds what is left. Raises SerializationError.
        """

    def can_launch(self, resources: Resources, promised: Sequence[Resources] = ()) -> bool:
        """True if a slot with these resources is free now, beside those promised to attempts not launched yet."""

    def awaits_room(self) -> bool:
        """True if room that is not there now was asked for elsewhere, and will come."""
        return False

    def filled(self, coming: int) -> None:
        """Whoever can begin now was chosen, and so many of them are not launched yet. Nothing else begins for now."""
        return

    def prepare(self, launch: Launch) -> Launch:
        """Do what takes time, for a launch that is about to come; its start is on the way to the disk."""
        return launch

    def launch(self, launch: Launch) -> None:
        """Start an attempt. Its `Started` follows. Needs `can_launch`."""

    def outlives(self, trial_id: str, attempt: int, directory: Path) -> bool:
        """Whether the process of the attempt lives that a trial had under the driver before: it is offered then, or
        `Released` follows.
        """
        return False

    def adopt(self, offered: Offered, *, iteration: int, then: Told) -> None:
        """The attempt that was `Offered` runs on, and the journal has its results up to that iteration.

        Args:
            then: what was answered to the last of them.
        """
        return

    def decline(self, offered: Offered, *, ended: bool) -> None:
        """It does not; `ended`: its trial never runs again."""
        return

    def tell(self, trial_id: str, message: ToTrial) -> None:
        """Send an Answer, a Decided, a Durable or a Halt to a running attempt; one that is already gone is no error."""

    def kill(self, trial_id: str) -> None:
        """End an attempt and all its descendants at once; `Exited` with reason "killed" follows."""

    def end_idle(self) -> None:
        """No attempt is to come: have the processes end that wait for one."""
        return

    def run_once(self, dispatch: Dispatch, timeout: float | None) -> None:
        """Wait for something to happen, at most `timeout` seconds (None: no limit), and dispatch it.

        Returns after one batch, after `wake`, or after the timeout. Never polls.
        """

    def wake(self) -> None:
        """Make `run_once` return soon. From any thread, and from a signal handler."""

    def owned_processes(self) -> list[tuple[int, int]]:
        """(pid, start time in clock ticks since boot) of the fork server and keepers, for the generation's record."""
        return []

    def shutdown(self, *, grace_s: float = 0.0) -> None:
        """End everything that is left; when it returns, no process of this executor exists."""
