"""Ownership of a replica (design rule R12): the same numbers as here, taken by exclusive creation over there.

`generations/000003.json` is created once and stays; the owner's signs of life are a second object that is replaced.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec

from trainables.errors import ObjectExistsError, ObjectNotFoundError
from trainables.transfer import agent
from tuner.clock import Clock
from tuner.error import OwnedElsewhereError
from tuner.experiment.generations import GenerationRecord, decode_record, read_record
from tuner.experiment.ownership import STALE_S
from tuner.experiment.paths import ExperimentPaths, parse_generation
from tuner.experiment.processes import Processes
from tuner.syncer.uploader import Uploader

log = logging.getLogger(__name__)

LOOK_S = 2.0
RELEASE_S = 5.0


@dataclass(frozen=True, slots=True)
class RemoteOwner:
    """Who owned the replica last."""

    highest: int
    """The highest generation that left a record, an unreadable one too; 0: none did."""
    record: GenerationRecord | None = None
    state: str = "held"
    beats: int = 0

    @property
    def released(self) -> bool:
        return self.state != "held"


def as_ended_here(head: RemoteOwner, paths: ExperimentPaths) -> RemoteOwner:
    """The same, released where the record of that generation says so here: its end could not be told over there."""
    mine = read_record(paths.generation(head.highest))
    if head.record is None or mine is None or mine.id != head.record.id or not mine.released:
        return head
    return replace(head, state=mine.state)


def heartbeat_name(generation: int) -> str:
    """The file of an owner's signs of life."""
    return f"{generation:06d}.beat"


def encode_heartbeat(state: str, beats: int) -> bytes:
    return f"{state} {beats}\n".encode()


def decode_heartbeat(data: bytes) -> tuple[str, int]:
    """(state, count); of what cannot be read nothing is believed but that it is held."""
    state, _, beats = data.decode(errors="replace").partition(" ")
    return (state, int(beats)) if beats.strip().isdigit() else ("held", 0)


class RemoteClaim:
    """One driver's way to its generation in a replica.

    Args:
        name: of the experiment, as the key that all others lie under.
        place: how messages call the replica.
        timeout_s: without progress, after which an operation is given up.
        wait: sleeps for that many seconds.
        say: gets the line that explains a wait.
    """

    def __init__(
        self,
        uploader: Uploader,
        name: str,
        *,
        place: str,
        clock: Clock,
        timeout_s: float,
        processes: Processes | None = None,
        wait: Callable[[float], None] = time.sleep,
        say: Callable[[str], None] = log.warning,
    ) -> None:
        self._uploader, self._name, self._place, self._clock = uploader, name, place, clock
        self._timeout_s, self._wait, self._say = timeout_s, wait, say
        self._processes = processes or Processes()

    def head(self, keys: list[str]) -> RemoteOwner:
        """The last owner, of all `keys` that the experiment has over there."""
        prefix = f"{self._name}/generations/"
        numbers = [parse_generation(key.removeprefix(prefix)) for key in keys if key.startswith(prefix)]
        highest = max(filter(None, numbers), default=0)
        if not highest:
            return RemoteOwner(0)
        try:
            key = f"{highest:06d}.json"
            record = decode_record(self._read(prefix + key), f"{self._place}/generations/{key}")
        except msgspec.DecodeError:
            return RemoteOwner(highest)
        try:
            return RemoteOwner(highest, record, *decode_heartbeat(self._read(prefix + heartbeat_name(highest))))
        except ObjectNotFoundError:
            return RemoteOwner(highest, record)

    def wait_until_free(self, head: RemoteOwner, *, takeover: bool) -> bool:
        """Return when the last owner is known to be gone. Raises OwnedElsewhereError: it lives.

        True: it was waited for, and may have brought more there meanwhile.
        """
        record = head.record
        if record is None or head.released:
            return False
        owned = OwnedElsewhereError(
            f"{self._place} is owned by another driver ({record}). Wait until it has ended, end it, or use another name"
        )
        mine, its = self._processes.me(), record.owner
        if (mine.host, mine.boot, mine.pid_namespace) == (its.host, its.boot, its.pid_namespace):
            if self._processes.start_time(its.pid) == its.start:
                raise owned
            return False
        if takeover:
            return False
        self._say(
            f"{self._place} was last owned by {record}, which cannot be seen from here: waiting up to {STALE_S:.0f} s "
            "for a sign of life (takeover=True does not wait)"
        )
        key = f"{self._name}/generations/{heartbeat_name(head.highest)}"
        until = self._clock.monotonic() + STALE_S
        while self._clock.monotonic() < until:
            self._wait(LOOK_S)
            try:
                state, beats = decode_heartbeat(self._read(key))
            except ObjectNotFoundError:
                continue
            if state != "held":
                break
            if beats != head.beats:
                raise owned
        return True

    def take(self, record: GenerationRecord) -> bool:
        """Create the record of this driver's generation; False: somebody was faster."""
        key = f"{self._name}/generations/{record.generation:06d}.json"
        try:
            job = agent.Put(key=key, data=msgspec.json.encode(record), exclusive=self._uploader.can.exclusive)
            self._uploader.call(job, timeout_s=self._timeout_s)
        except ObjectExistsError:
            # Ours all the same, if only the first answer was lost.
            return self._read(key) == job.data
        return True

    def _read(self, key: str) -> bytes:
        return self._uploader.call(agent.Read(key=key), timeout_s=self._timeout_s)
