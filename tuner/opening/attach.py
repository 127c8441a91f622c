"""The replica of an experiment that this driver owns: what was surveyed there, as the loop takes it up."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import cloudpickle

from trainables.errors import StoreMissingError
from trainables.group.group_trainable import GroupTrainable
from trainables.job import Replicated
from trainables.places import child_of, parent_and_name
from trainables.quick_dataclass import dataclass
from trainables.store import fs
from trainables.transfer.client import InlineClient, TransferClient
from tuner.clock import Clock
from tuner.experiment.journal import JournalWriter
from tuner.experiment.ownership import Ownership
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.reader import load_state
from tuner.experiment.resume import Elsewhere, LetGo
from tuner.experiment.state import ExperimentState
from tuner.opening.reach import ReplicaConnection
from tuner.spec import Spec
from tuner.syncer.adoption import quarantine
from tuner.syncer.inventory import CheckpointOrigin, Inventory, take_inventory
from tuner.syncer.remote_experiment import RemoteExperiment, complete
from tuner.syncer.replica import Replica

log = logging.getLogger(__name__)

Origins = Mapping[tuple[str, str], CheckpointOrigin]
"""(trial directory, name) -> where a checkpoint is that neither this machine nor the replica has."""


@dataclass(frozen=True, slots=True)
class OwnedReplica:
    """A replica of which this driver has claimed a generation, as it was found."""

    connection: ReplicaConnection
    remote: RemoteExperiment
    fetched: bool = False
    """The experiment was brought here from there: its checkpoints come when they are needed."""
    unsettled: bool = False
    """What is void of the history that was here may still be here: another one continues it."""
    let_go: frozenset[tuple[str, str]] = frozenset()
    """(trial id, name) of checkpoints here that whoever went on elsewhere could see, or that were let go of."""
    void: Sequence[str] = ()
    """Keys there of a history that was not chosen; none: what is there belongs to the one that is here."""
    notes: Sequence[str] = ()

    @classmethod
    def of(
        cls, connection: ReplicaConnection, remote: RemoteExperiment, paths: ExperimentPaths, void: Sequence[str]
    ) -> OwnedReplica:
        """As it was surveyed; what a driver had not cleared away here when it was killed is noted."""
        found = cls(connection, remote, void=void, notes=connection.limits)
        if not fs.exists(paths.taking_over):
            return found
        let_go = {(trial, name) for trial, name in json.loads(fs.read_file(paths.taking_over))}
        return replace(found, unsettled=True, let_go=frozenset(let_go))

    def continuing(self, paths: ExperimentPaths) -> OwnedReplica:
        """The same before its longer history is laid over the one at `paths`."""
        let_go = set(self.let_go)
        for trial in load_state(paths).trials:
            copied = (record.ref for record in trial.checkpoints if record.copies)
            let_go |= {(trial.trial_id, ref.name) for ref in (*copied, *trial.forgotten)}
        fs.replace_file(paths.taking_over, json.dumps(sorted(let_go)).encode())
        note = f"{self.remote.uri} continues what is at {paths.root}, and is taken over from there"
        return replace(self, let_go=frozenset(let_go), unsettled=True, notes=[*self.notes, note])

    def without_its_history(self, paths: ExperimentPaths, fetched: ExperimentPaths) -> OwnedReplica:
        """The same where what is here was chosen: what does not belong to it goes there, and its journal is kept."""
        kept = quarantine(fetched)
        note = f'what {self.remote.uri} held beyond {paths.root} is void by resume="LOCAL"; its journal: {kept}'
        # All of it, also what is called as something here: two histories number segments and checkpoints alike.
        void = [key for key in self.remote.keys if key.split("/")[0] in ("journal", "generations")]
        for trial in load_state(paths).trials:
            void += self.remote.others_of(trial)
        self.remote.leave_out({*void, *(key for key in self.remote.keys if key.endswith("/result.json"))})
        return replace(self, void=void, notes=[*self.notes, note])

    def through(self, uploader: Callable[[TransferClient], TransferClient]) -> OwnedReplica:
        """The same where an uploader of other hosts does a part of the work."""
        return replace(self, connection=replace(self.connection, uploader=uploader(self.connection.uploader)))

    # --- what a resume asks ---------------------------------------------------------------------------------

    def elsewhere(self, origins: Origins | None) -> Elsewhere:
        """Which checkpoints are complete in the replica, or in another place from which it is to get them."""
        whole, known = complete(self.remote.checkpoints()), origins or {}
        return lambda trial, ref: ref.name in whole.get(trial.dirname, ()) or (trial.dirname, ref.name) in known

    def kept_longer(self) -> LetGo:
        """What it still holds complete of what was let go of here: its deletions come later than those here."""
        if self.void:
            return lambda trial: ()
        return lambda trial: [published for _, published in self.remote.not_kept(trial) if published is not None]

    # --- as the loop keeps it in step -------------------------------------------------------------------------

    def open(self, paths: ExperimentPaths, journal: JournalWriter, generation: int, clock: Clock) -> Replica:
        """The replica that the loop keeps in step."""
        uploader, config = self.connection.uploader, self.connection.config
        return Replica(
            uploader, self.remote.uri, config, paths=paths, journal=journal, generation=generation, clock=clock
        )

    def inventory(
        self, state: ExperimentState, *, new: bool, touched: Collection[str] = (), origins: Origins | None = None
    ) -> Inventory:
        """What it holds, for the loop; beside a `new` experiment that is of another one, and is to go.

        Args:
            touched: ids of trials of which the journal speaks after its last snapshot.
            origins: where checkpoints are that are to be copied there from another place.
        """
        return take_inventory(self.remote, state, new=new, void=self.void, touched=touched, origins=origins)


def find_origins(owned: OwnedReplica, description: Mapping[str, Any], state: ExperimentState) -> Origins | None:
    """Look where the checkpoints of a restored experiment are that neither this machine nor its replica has.

    None: they are not elsewhere. Raises TransferError when that cannot be looked at just now.
    """
    remote = owned.remote
    if not description.get("inherited_from") or not remote.uploader.can.list:
        return None
    there = complete(remote.checkpoints())
    wanted: dict[str, list[tuple[str, str]]] = {}
    for trial in state.trials:
        for record in trial.checkpoints:
            name = record.ref.name
            if name in there.get(trial.dirname, ()) or fs.is_dir(trial.directory / name):
                continue
            uri = description.get("inherited_at") or next(reversed(record.copies), remote.uri)
            wanted.setdefault(uri, []).append((trial.dirname, name))
    wanted.pop(remote.uri, None)
    origins: dict[tuple[str, str], CheckpointOrigin] = {}
    for uri, names in wanted.items():
        place, experiment = parent_and_name(uri)
        whole = complete(_checkpoints_at(owned.connection, place, experiment))
        for dirname, name in names:
            if name in whole.get(dirname, ()):
                origins[dirname, name] = CheckpointOrigin(place, f"{experiment}/{dirname}/{name}")
    return origins if wanted else None


def _checkpoints_at(connection: ReplicaConnection, place: str, name: str) -> dict[str, dict[str, bool]]:
    timeout_s = connection.config.sync_timeout
    if place == connection.uploader.uri:
        return RemoteExperiment(connection.uploader, place, name, timeout_s=timeout_s).checkpoints()
    try:
        uploader = InlineClient({**connection.config.place(), "place": place}, check=False)
        try:
            return RemoteExperiment(uploader, place, name, timeout_s=timeout_s).checkpoints()
        finally:
            uploader.close()
    except StoreMissingError as error:
        log.warning("checkpoints that were inherited from %s are not there any more: %s", child_of(place, name), error)
        return {}


def place_for_workers(owned: OwnedReplica | None, spec: Spec, ownership: Ownership) -> Replicated | None:
    """Where the workers of trainers copy what they save themselves (`_checkpoint_upload_from_workers`).

    None: they do not; where they were to, a warning says why.
    """
    if not spec.checkpoint_config._checkpoint_upload_from_workers:
        return None
    if not isinstance(spec.trainable, GroupTrainable):
        why = "only the workers of a trainer, as TorchTrainer, have files of their own"
    elif owned is None:
        why = "nothing is copied anywhere; upload_dir= says where copies should go"
    elif owned.connection.config.syncer != "auto":
        why = "what syncer= copies it is given whole, once per checkpoint"
    elif not owned.connection.uploader.beside:
        why = f"{owned.connection.uploader.uri} is reached by this process alone"
    elif not owned.connection.config.sync_on_checkpoint:
        why = "with sync_on_checkpoint=False only what is there every sync_period is copied"
    else:
        prefix = f"{owned.remote.name}/generations"
        return Replicated(
            arguments=cloudpickle.dumps(owned.connection.config.place()),
            directory=owned.remote.name,
            witness=(f"{prefix}/{ownership.generation:06d}.json", ownership.id),
            guard=f"{prefix}/{ownership.generation + 1:06d}.json",
            timeout_s=owned.connection.config.sync_timeout,
        )
    log.warning("CheckpointConfig(_checkpoint_upload_from_workers=True) has no effect: %s", why)
    return None
