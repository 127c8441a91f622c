"""Giving an experiment another name in a replica, without it coming through this machine.

Where the place can rename, that is one step. In a bucket everything is copied there, experiment.json last, then
compared by size; the instant at which the old experiment.json is deleted is the one from which on it has the new name,
and then the rest of the old goes. A marker, `NAME/.moving-aside`, is there from first to last: whoever finds it takes
the copies back where the old experiment.json is still there, and ends the move where it is not. The newest record of a
generation stays under the old name, so that an owner who was taken for dead still finds that it is not one any more.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec

from trainables.errors import ObjectNotFoundError, TransferCorruptError
from trainables.net.backoff import patient
from trainables.places import child_of
from trainables.quick_dataclass import dataclass
from trainables.store.manifest import MANIFEST_NAME
from trainables.transfer import transfer_jobs
from trainables.transfer.backend import Can
from trainables.transfer.transfer_jobs import AnyJob
from tuner.clock import Clock
from tuner.experiment.generations import GenerationRecord
from tuner.experiment.ownership import HEARTBEAT_S
from tuner.syncer.claim import encode_heartbeat, heartbeat_name
from tuner.syncer.remote_experiment import RemoteExperiment

MARKER = ".moving-aside"
DESCRIPTION = "experiment.json"
_AT_ONCE = 200
"""Files per job; between two of them a heartbeat is given."""


def can_move(can: Can) -> bool:
    """Whether such a place can give an experiment another name by itself."""
    return can.list and can.delete and (can.rename or can.copy)


@dataclass(frozen=True, slots=True)
class MoveIntent:
    """What the marker says."""

    to: str
    """The new name."""
    id: str
    """Of the experiment."""

    def encode(self) -> bytes:
        return json.dumps({"to": self.to, "id": self.id}).encode()

    @classmethod
    def decode(cls, data: bytes) -> MoveIntent | None:
        """None: it cannot be read, and nothing was begun."""
        try:
            found = json.loads(data)
            return cls(str(found["to"]), str(found["id"]))
        except (ValueError, KeyError, TypeError):
            return None


def intent_at(remote: RemoteExperiment) -> MoveIntent | None:
    """What the marker there says, if there is one."""
    return MoveIntent.decode(remote.read(MARKER)) if MARKER in remote.keys else None


class RemoteMove:
    """One experiment on its way to another name, for who has claimed it under its old one.

    Args:
        record: of the generation that was claimed.
        timeout_s: so long an overloaded store is waited for.
    """

    def __init__(
        self, remote: RemoteExperiment, intent: MoveIntent, record: GenerationRecord, *, clock: Clock, timeout_s: float
    ) -> None:
        self._remote, self._intent, self._record = remote, intent, record
        self._clock, self._timeout_s = clock, timeout_s
        self._renames = remote.uploader.can.rename
        self._beats, self._beat_at = 0, clock.monotonic()
        self._guard = f"{remote.name}/{_record_key(record.generation + 1)}"

    def carry_out(self) -> None:
        """Give it the new name. Raises TransferError: it has the old one still, and `take_back` removes the rest."""
        self._remote.look()
        self._put(f"{self._remote.name}/{MARKER}", self._intent.encode())
        if self._renames:
            self._do(transfer_jobs.RenameTree(prefix=self._remote.name, target=self._intent.to, guard=self._guard))
        else:
            self._copy()
            self._delete([f"{self._remote.name}/{DESCRIPTION}"])  # from this instant on it has the new name

    def is_done(self) -> bool:
        """Whether it has the new name already."""
        self._remote.look()
        return not self._remote.exists and self._id_at_target() == self._intent.id

    def clean_up(self) -> None:
        """Remove what is left of it under the old name: it has the new one. Done again after a kill, it ends that."""
        name, to, generation = self._remote.name, self._intent.to, self._record.generation
        record, beat = _record_key(generation), f"generations/{heartbeat_name(generation)}"
        released = encode_heartbeat("released", self._beats + 1)
        if self._renames:
            self._put(f"{name}/{record}", msgspec.json.encode(self._record))
            self._put(f"{to}/{record}", msgspec.json.encode(self._record))
            self._put(f"{to}/{beat}", released)
            self._delete([f"{to}/{MARKER}"])
        else:
            self._remote.look()
            left = [key for key in self._remote.keys if key not in (MARKER, record, beat)]
            self._delete([f"{name}/{key}" for key in sorted(left, key=_manifests_first)])
        self._put(f"{name}/{beat}", released)
        self._delete([f"{name}/{MARKER}"])

    def take_back(self) -> None:
        """Remove what was copied: it has its old name."""
        if not self._renames and self._id_at_target() in (None, self._intent.id):
            self._do(transfer_jobs.Delete(keys=self._keys_at_target(), guard=self._guard))
        self._delete([f"{self._remote.name}/{MARKER}"])

    def _copy(self) -> None:
        name, to = self._remote.name, self._intent.to
        sizes = {key: size for key, size in self._sizes(name).items() if key not in (MARKER, DESCRIPTION)}
        payload = [key for key in sizes if not key.endswith(f"/{MANIFEST_NAME}")]
        for keys in (payload, [key for key in sizes if key.endswith(f"/{MANIFEST_NAME}")]):
            for start in range(0, len(keys), _AT_ONCE):
                names = keys[start : start + _AT_ONCE]
                self._do(transfer_jobs.CopyFiles(source=name, prefix=to, names=names, guard=self._guard))
                self._heartbeat()
        there = self._sizes(to)
        beats = f"generations/{heartbeat_name(self._record.generation)}"
        lacking = [key for key, size in sizes.items() if there.get(key) != size and key != beats]
        if lacking:
            raise TransferCorruptError(f"{child_of(self._remote.place, f'{to}/{lacking[0]}')} did not arrive whole")
        self._put(f"{to}/{beats}", encode_heartbeat("released", self._beats + 1))
        self._do(transfer_jobs.CopyFiles(source=name, prefix=to, names=[DESCRIPTION], guard=self._guard))

    def _heartbeat(self) -> None:
        """A sign of life, where the last one is a while ago."""
        now = self._clock.monotonic()
        if now - self._beat_at >= HEARTBEAT_S:
            self._beat_at, self._beats = now, self._beats + 1
            key = f"{self._remote.name}/generations/{heartbeat_name(self._record.generation)}"
            self._put(key, encode_heartbeat("held", self._beats))

    def _id_at_target(self) -> str | None:
        """The id of the experiment that has the new name; None: none has."""
        try:
            data = self._do(transfer_jobs.Read(key=f"{self._intent.to}/{DESCRIPTION}"))
            return str(json.loads(data).get("id"))
        except ObjectNotFoundError:
            return None
        except ValueError:
            return ""

    def _keys_at_target(self) -> list[str]:
        """Its description first: from then on it is none."""
        keys = sorted(self._sizes(self._intent.to), key=lambda key: (key != DESCRIPTION, _manifests_first(key)))
        return [f"{self._intent.to}/{key}" for key in keys]

    def _sizes(self, name: str) -> dict[str, int]:
        found = msgspec.json.decode(self._do(transfer_jobs.ListKeys(prefix=name)), type=dict[str, int])
        return {key.removeprefix(f"{name}/"): size for key, size in found.items()}

    def _put(self, key: str, data: bytes) -> None:
        self._do(transfer_jobs.Put(key=key, data=data, guard=self._guard))

    def _delete(self, keys: Sequence[str]) -> None:
        for start in range(0, len(keys), _AT_ONCE):
            self._do(transfer_jobs.Delete(keys=list(keys[start : start + _AT_ONCE]), guard=self._guard))
            self._heartbeat()

    def _do(self, job: AnyJob) -> bytes:
        """Done twice each of these comes to the same."""
        return patient(lambda: self._remote.call(job), self._timeout_s)


def _record_key(generation: int) -> str:
    return f"generations/{generation:06d}.json"


def _manifests_first(key: str) -> tuple[bool, str]:
    return (not key.endswith(f"/{MANIFEST_NAME}"), key)
