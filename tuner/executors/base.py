"""The seam between the loop and whatever runs trials.

An executor starts attempts, carries messages both ways, and says when an attempt is over. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from trainables.job import Job
from trainables.wire import FromTrial, ToTrial
from tuner.clock import Clock, SystemClock

if TYPE_CHECKING:
    from tuner.executors.remote_hosts import RemoteHosts

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


Event = Started | Message | Exited
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

    keeps_processes: bool = False
    """A process may go on with another attempt (`Launch.reuse`), and `end_idle` does something."""

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

    def launch(self, launch: Launch) -> None:
        """Start an attempt. Its `Started` follows. Needs `can_launch`."""

    def tell(self, trial_id: str, message: ToTrial) -> None:
        """Send an Answer, a Durable or a Halt to a running attempt; one that is already gone is no error."""

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
