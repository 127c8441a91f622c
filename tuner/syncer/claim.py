"""The claim of a generation in a replica (design rule R12): the numbers are the local ones, created exclusively.

`generations/000003.json` is created once and stays; the owner's heartbeats are a second object that is replaced.
"""

from __future__ import annotations

import logging

import msgspec

from trainables.errors import ObjectExistsError, ObjectNotFoundError
from trainables.places import child_of
from trainables.quick_dataclass import dataclass
from trainables.transfer import transfer_jobs
from tuner.clock import Clock
from tuner.error import OwnedElsewhereError
from tuner.experiment.generations import GenerationRecord, decode_record, read_record
from tuner.experiment.ownership import STALE_S
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.paths import heartbeat_name as heartbeat_name
from tuner.experiment.processes import Processes
from tuner.syncer.remote_experiment import RemoteExperiment, generation_of

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


def encode_heartbeat(state: str, beats: int) -> bytes:
    return f"{state} {beats}\n".encode()


def decode_heartbeat(data: bytes) -> tuple[str, int]:
    """(state, count); of what cannot be read nothing is believed but that it is held."""
    state, _, beats = data.decode(errors="replace").partition(" ")
    return (state, int(beats)) if beats.strip().isdigit() else ("held", 0)


class RemoteClaim:
    """One driver's look at who owns a replica, and its wait until nobody does.

    Args:
        remote, paths: the experiment in the replica, and here.
    """

    def __init__(self, remote: RemoteExperiment, paths: ExperimentPaths, clock: Clock) -> None:
        self._remote, self._paths, self._clock, self._processes = remote, paths, clock, Processes()

    def last_owner(self) -> RemoteOwner:
        """As it was when the experiment was looked at; released, too, where only its record here could say so."""
        highest = max(filter(None, map(generation_of, self._remote.keys)), default=0)
        if not highest:
            return RemoteOwner(0)
        key = f"generations/{highest:06d}.json"
        try:
            record = decode_record(self._remote.read(key), child_of(self._remote.uri, key))
        except msgspec.DecodeError:
            return RemoteOwner(highest)
        try:
            state, beats = decode_heartbeat(self._remote.read(f"generations/{heartbeat_name(highest)}"))
        except ObjectNotFoundError:
            state, beats = "held", 0
        local = read_record(self._paths.generation(highest))
        if local is not None and local.id == record.id and local.released:
            state = local.state
        return RemoteOwner(highest, record, state, beats)

    def free(self, owner: RemoteOwner, *, takeover: bool) -> RemoteOwner:
        """The last owner, once it is known to be gone; what it brought there meanwhile is seen. Raises as below."""
        while self.wait_until_free(owner, takeover=takeover):
            self._remote.look()
            if (now := self.last_owner()).highest == owner.highest:
                break
            owner = now
        return owner

    def wait_until_free(self, owner: RemoteOwner, *, takeover: bool) -> bool:
        """Return when the last owner is known to be gone. Raises OwnedElsewhereError: it lives.

        True: it was waited for, and may have brought more there meanwhile.
        """
        record, uri = owner.record, self._remote.uri
        if record is None or owner.released:
            return False
        owned = OwnedElsewhereError(
            f"{uri} is owned by another driver ({record}). Wait until it has ended, end it, or use another name"
        )
        if self._processes.sees(record.owner):
            if self._processes.lives(record.owner):
                if not (record.brief and self._ends(owner.highest, record)):
                    raise owned
                return True
            return False
        if takeover:
            return False
        log.warning(
            "%s was last owned by %s, which cannot be seen from here: waiting up to %.0f s for a sign of life "
            "(takeover=True does not wait)",
            uri,
            record,
            STALE_S,
        )
        key = f"generations/{heartbeat_name(owner.highest)}"
        until = self._clock.monotonic() + STALE_S
        while self._clock.monotonic() < until:
            self._clock.sleep(LOOK_S)
            try:
                state, beats = decode_heartbeat(self._remote.read(key))
            except ObjectNotFoundError:
                continue
            if state != "held":
                break
            if beats != owner.beats:
                raise owned
        return True

    def _ends(self, generation: int, record: GenerationRecord) -> bool:
        """Wait for a command that is done in a moment; False: it takes long."""
        until = self._clock.monotonic() + STALE_S
        while self._clock.monotonic() < until:
            if not self._processes.lives(record.owner):
                return True
            try:
                if decode_heartbeat(self._remote.read(f"generations/{heartbeat_name(generation)}"))[0] != "held":
                    return True
            except ObjectNotFoundError:
                pass
            self._clock.sleep(LOOK_S / 4)
        return False


def take_generation(remote: RemoteExperiment, record: GenerationRecord) -> bool:
    """Create the record of this driver's generation in the replica; False: somebody was faster."""
    key = f"generations/{record.generation:06d}.json"
    data, exclusive = msgspec.json.encode(record), remote.uploader.can.exclusive
    try:
        remote.call(transfer_jobs.Put(key=f"{remote.name}/{key}", data=data, exclusive=exclusive))
    except ObjectExistsError:
        return remote.read(key) == data  # ours all the same, if only the first answer was lost
    return True
