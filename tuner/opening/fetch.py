"""The replica of a run: opened, looked at and claimed before anything is touched; what is newer there is fetched."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cloudpickle

from trainables.config import SyncConfig
from trainables.errors import InvalidSettingError
from trainables.group.group_trainable import GroupTrainable
from trainables.job import Replicated
from trainables.net.backoff import patient
from trainables.store import fs
from trainables.transfer import transfer_jobs
from trainables.transfer.client import InlineClient, ProcessClient, TransferClient
from trainables.transfer.open import shown
from tuner.clock import Clock
from tuner.error import (
    ExperimentDamagedError,
    ExperimentDivergedError,
    ExperimentExistsError,
    ResumeError,
    SettingError,
)
from tuner.experiment import driver_log
from tuner.experiment.generations import GenerationRecord, read_records
from tuner.experiment.incoming import beside
from tuner.experiment.journal import JournalWriter, read_journal
from tuner.experiment.lock import claim
from tuner.experiment.ownership import Ownership
from tuner.experiment.paths import ExperimentPaths, as_local_path, cache_of, is_elsewhere
from tuner.experiment.reader import is_experiment, lies_at, load_state, read_settings
from tuner.experiment.resume import Base, Elsewhere, LetGo
from tuner.experiment.state import ExperimentState
from tuner.opening.start import ask, check_same
from tuner.spec import Spec
from tuner.syncer.adoption import adopt, quarantine
from tuner.syncer.claim import RELEASE_S, RemoteClaim, encode_heartbeat, heartbeat_name, take_generation
from tuner.syncer.inventory import CheckpointOrigin, take_inventory
from tuner.syncer.relation import Relation, at_rest, relate, unchanged
from tuner.syncer.remote_experiment import REPLACED, RemoteExperiment, complete
from tuner.syncer.replica import Replica

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Link:
    """The line to the place where copies go, from the start of a run to its end."""

    uploader: TransferClient
    config: SyncConfig
    remote: RemoteExperiment | None = None
    highest: int = 0
    """The highest generation that the replica knows."""
    fetched: bool = False
    """The experiment was brought here from there: its checkpoints come when they are needed."""
    unsettled: bool = False
    """What is void of the history that was here may still be here: another one continues it."""
    made: list[Path] = field(default_factory=list)
    """The directories that were made for that, where there was none: the experiment's own first."""
    aside: Path | None = None
    """Where the history lies that was here, and made room for the one that was brought."""
    taken: Ownership | None = None
    """Whose generation was claimed over there too."""
    origins: dict[tuple[str, str], CheckpointOrigin] | None = None
    """(trial directory, name) -> where a checkpoint is that neither this machine nor the replica has; None: nowhere."""
    let_go: set[tuple[str, str]] = field(default_factory=set)
    """(trial id, name) of checkpoints here that whoever went on elsewhere could see, or that were let go of."""
    void: list[str] = field(default_factory=list)
    """Keys over there of a history that was not chosen; none: what is there belongs to the one that is here."""
    notes: list[str] = field(default_factory=list)

    def close(self) -> None:
        """End it; `Replica.release` does that for a run that ended in order."""
        self.uploader.close()


def check_apart(spec: Spec) -> None:
    """Raise SettingError where copies would lie with what they are copies of; nothing was looked at or made then."""
    config = spec.sync_config
    place = config.upload_dir
    if place is None or config.syncer != "auto" or is_elsewhere(place):
        return
    if as_local_path(place).resolve() == spec.storage.resolve():
        raise SettingError(
            f"upload_dir={str(place)!r} is where the experiment itself lies (storage_path): copies need another place; "
            "on a shared directory none are needed"
        )
    if spec.name is not None:
        root = spec.storage.resolve() / spec.name
        if as_local_path(place).resolve().is_relative_to(root):
            raise SettingError(
                f"upload_dir={str(place)!r} lies within the experiment's own directory {root}: "
                "copies need another place"
            )


def connect(spec: Spec, *, inline: bool, wake: Any, cluster: bool = False) -> Link | None:
    """Open the place that the settings name, and look whether it takes what is written to it.

    Raises SettingError or TransferError, within about 10 s, before anything is touched. None: no copies are made.
    """
    config = spec.sync_config
    if config.upload_dir is None:
        if config.keep_local != "all":
            raise SettingError(
                f"SyncConfig: keep_local={config.keep_local!r} is not accepted without upload_dir=: what is "
                'here is all there is; accepted is "all"'
            )
        if config.syncer not in (None, "auto") and not cluster:
            log.warning(
                "syncer=%.60r has nothing to copy: on one machine every trial's checkpoints are where the driver is; "
                "upload_dir= says where copies should go",
                config.syncer,
            )
        return None
    if config.syncer is None:
        log.warning("upload_dir=%r is not used: syncer=None means that nothing is copied", str(config.upload_dir))
        return None
    check_apart(spec)
    place = config.upload_dir
    spec.has_replica = True
    arguments = config.place()
    made: type[InlineClient] | type[ProcessClient]
    here = inline or arguments["place"].startswith("memory://")  # that one lives in this process
    made = InlineClient if here else ProcessClient
    try:
        uploader = patient(lambda: made(arguments, wake=wake), config.sync_timeout)
    except InvalidSettingError as error:
        address = os.fspath(place)
        if shown(address) not in str(error):
            raise
        setting = "storage_path" if spec.storage_path == cache_of(address) else "SyncConfig: upload_dir"
        raise InvalidSettingError(f"{setting}: {error}") from None
    if config.keep_local != "all" and not uploader.can.verify:
        uploader.close()
        raise SettingError(
            f"SyncConfig: keep_local={config.keep_local!r} is not accepted for {uploader.uri}: what copies there does "
            'not look whether everything arrived, and these would be the only copies; accepted is "all"'
        )
    return Link(uploader, config)


def join(link: Link, spec: Spec, paths: ExperimentPaths, clock: Clock) -> None:
    """Look what the replica has of this experiment, wait until nobody owns it, and bring here what is newer there.

    Raises ExperimentExistsError, ResumeError, ExperimentDivergedError or OwnedElsewhereError; nothing is lost by it.
    """
    remote = link.remote = RemoteExperiment(
        link.uploader, link.uploader.uri, paths.root.name, timeout_s=link.config.sync_timeout
    )
    link.fetched, link.void, link.made, link.aside, link.let_go = False, [], [], None, set()
    link.notes = _limits(link)
    if fs.exists(paths.taking_over):  # a driver was killed before it had cleared away what is void here
        link.unsettled = True
        link.let_go = {(trial, name) for trial, name in json.loads(fs.read_file(paths.taking_over))}
    claim = RemoteClaim(remote, paths, clock)
    head = claim.last_owner()
    link.highest = head.highest
    if not remote.exists and REPLACED in remote.keys:
        if claim.wait_until_free(head, takeover=spec.takeover):
            remote.look()
        if not remote.exists:  # a driver was killed before all of it had gone
            link.void = [key for key in remote.keys if not key.startswith("generations/")]
            remote.keys = [key for key in remote.keys if key.startswith("generations/")]
    if not remote.exists:
        if spec.resume_choice.base is Base.REMOTE:
            raise ResumeError(f'resume="REMOTE": there is no experiment at {remote.uri}')
        if not spec.overwrite and any(complete(remote.checkpoints()).values()):
            raise ExperimentDamagedError(
                f"{remote.uri} holds checkpoints but no experiment.json: it is left alone. Bring the file back, choose "
                "another name or upload_dir, or say overwrite=True"
            )
        return
    if spec.overwrite:
        claim.wait_until_free(head, takeover=spec.takeover)
        return
    base = spec.resume_choice.base
    if base is Base.LOCAL and not is_experiment(paths):
        return  # said as without a replica: there is nothing here to resume
    if base is Base.NEW and not _ever_told(remote, paths):
        claim.wait_until_free(head, takeover=spec.takeover)
        return
    if base is Base.NEW:
        raise ExperimentExistsError(
            f'there is an experiment at {remote.uri}: resume="AUTO" continues it, overwrite=True replaces it, another '
            "name or upload_dir leaves it alone"
        )
    link.highest = claim.free(head, takeover=spec.takeover).highest
    if base is Base.PROMPT and not is_experiment(paths):
        if not ask(remote.uri):
            raise ExperimentExistsError(
                f"not resumed as answered: {remote.uri} is left alone; overwrite=True replaces it"
            )
        spec.resume_choice = dataclasses.replace(spec.resume_choice, base=Base.AUTO)
    if base is Base.LOCAL and is_experiment(paths):
        _check_local(remote, paths, link)
        return
    missing = [path for path in (paths.root, *paths.root.parents) if not fs.exists(path)]
    before = read_records(paths)
    with beside(paths.root, "incoming") as incoming:
        relation = relate(remote, paths, incoming)
        if relation is Relation.DIVERGED and base is not Base.REMOTE:
            raise ExperimentDivergedError(
                f"{paths.root} and {remote.uri} hold two histories of which neither continues the other; choose "
                'one with resume="LOCAL" or resume="REMOTE"'
            )
        if relation is Relation.OLDER:
            return
        _check_books(remote, spec, incoming)
        books = ExperimentPaths(incoming)
        continues = relation is Relation.NEWER and is_experiment(paths)
        if remote.uploader.can.list:
            _fetch_rest(remote, paths, books, continues=continues)
        elif not link.config.sync_artifacts:  # with them it could be a user's own directory
            remote.remove_partials(incoming)
        with _owned(link, spec, paths, before, books, clock) as ownership:
            if ownership is not None:
                if relation is Relation.DIVERGED:
                    _replace(link, incoming, books, paths, ownership)
                else:
                    if continues:
                        _note_taken_over(link, remote, paths)
                    link.made = missing
                    _lay(incoming, books, paths)
                link.fetched = True
    if not link.fetched:
        join(link, spec, paths, clock)  # another driver was here meanwhile: it may be another one that is newer


def _fetch_rest(remote: RemoteExperiment, paths: ExperimentPaths, books: ExperimentPaths, *, continues: bool) -> None:
    """Bring to `books` what belongs to them; `continues`: they continue what is here, and what did not change is here.

    Of trials that went on elsewhere what is here is less than what is there, and no later start could tell.
    """
    there = read_journal(books)
    later = at_rest(there, books.root, complete(remote.checkpoints()))
    same: set[str] = set()
    if continues:
        same = unchanged(read_journal(paths), there, paths.root)
        later = {dirname for dirname in later if dirname in same or not fs.exists(paths.root / dirname)}

    def have(key: str) -> bool:
        directory = key.partition("/")[0]
        return continues and (directory == paths.blobs.name or directory in same) and fs.exists(paths.root / key)

    remote.fetch_rest(books.root, have=have, later=later)
    remote.fetch_log(books.root)


@contextmanager
def _owned(
    link: Link,
    spec: Spec,
    paths: ExperimentPaths,
    before: Sequence[GenerationRecord],
    books: ExperimentPaths,
    clock: Clock,
) -> Iterator[Ownership | None]:
    """Own what is here while it changes; the run claims a generation of its own afterwards.

    `before`: the generations that were here when it was looked at; None is yielded when there is another one by now.
    Raises OwnedElsewhereError: somebody owns it here, who need not know of the replica.
    """
    # Of an owner whose generation is known over there, it was looked at over there whether it lives.
    known = bool(before) and before[-1].id in {record.id for record in read_records(books)}
    ownership = claim(paths, takeover=spec.takeover or known, above=link.highest, clock=clock, wait=clock.sleep)
    try:
        parent = ownership.parent.id if ownership.parent is not None else None
        yield ownership if parent == (before[-1].id if before else None) else None
    finally:
        # Nothing was written under this number: it is free again, and follows the highest one over there.
        fs.remove_quietly(paths.generation(ownership.generation))
        ownership.release()


def _replace(link: Link, incoming: Path, books: ExperimentPaths, paths: ExperimentPaths, ownership: Ownership) -> None:
    """Lay another history in the place of the one that is here."""
    aside = link.aside = quarantine(paths)
    said = f"{paths.root} was set aside: it lies at {aside} now"
    fs.remove_quietly(ExperimentPaths(aside).generation(ownership.generation))
    try:
        _lay(incoming, books, paths)
    except BaseException as error:
        error.add_note(said)
        raise
    link.notes.append(said)


def _note_taken_over(link: Link, remote: RemoteExperiment, paths: ExperimentPaths) -> None:
    link.notes.append(f"{remote.uri} continues what is at {paths.root}, and is taken over from there")
    for trial in load_state(paths).trials:
        copied = (record.ref for record in trial.checkpoints if record.copies)
        link.let_go |= {(trial.trial_id, ref.name) for ref in (*copied, *trial.forgotten)}
    link.unsettled = True
    fs.replace_file(paths.taking_over, json.dumps(sorted(link.let_go)).encode())


def _limits(link: Link) -> list[str]:
    """What the place cannot do, one line each."""
    can, uri, limits = link.uploader.can, link.uploader.uri, []
    if not can.exclusive:
        limits.append(f"{uri} cannot create a file only where there is none: two drivers on it are not prevented")
    if not can.delete:
        limits.append(f"{uri}: nothing can be deleted there, and it grows: give a delete_template= to mend that")
    return limits


def _ever_told(remote: RemoteExperiment, paths: ExperimentPaths) -> bool:
    """Whether the experiment over there had a result; one that never had is replaced."""
    with beside(paths.root, "incoming") as incoming, lies_at(incoming, remote.uri):
        return any(trial.told for trial in load_state(remote.fetch_journal(incoming)).trials)


def _check_books(remote: RemoteExperiment, spec: Spec, incoming: Path) -> None:
    """Raises ExperimentDamagedError or ResumeError when this run cannot continue it; nothing is laid down then."""
    books = ExperimentPaths(incoming)
    with lies_at(incoming, remote.uri):
        check_same(spec, read_settings(books), books)
    if remote.uploader.can.list and not any(key.startswith("journal/") for key in remote.keys):
        raise ExperimentDamagedError(
            f"{remote.uri} has no journal any more, and what it said is lost: bring it back from a copy; "
            "overwrite=True replaces the experiment, another name leaves it alone"
        )


def _check_local(remote: RemoteExperiment, paths: ExperimentPaths, link: Link) -> None:
    """What is here was chosen: what over there does not belong to it goes out of the way, and is kept here."""
    with beside(paths.root, "incoming") as incoming:
        relation = relate(remote, paths, incoming)
        if relation in (Relation.OLDER, Relation.ABSENT):
            return
        kept = quarantine(ExperimentPaths(incoming))
        fs.make_dirs(incoming)
        link.notes.append(f'what {remote.uri} held beyond {paths.root} is void by resume="LOCAL"; its journal: {kept}')
        # All of it, also what is called as something here: two histories number segments and checkpoints alike.
        link.void = [key for key in remote.keys if key.split("/")[0] in ("journal", "generations")]
        for trial in load_state(paths).trials:
            link.void += remote.others_of(trial)
        stale = {*link.void, *(key for key in remote.keys if key.endswith("/result.json"))}
        remote.keys = [key for key in remote.keys if key not in stale]


def _lay(incoming: Path, books: ExperimentPaths, paths: ExperimentPaths) -> None:
    """Give what was fetched its place: small files first, then the books that make it an experiment."""
    for directory in [entry for entry in sorted(incoming.iterdir()) if entry.is_dir()]:
        if directory.name in (books.journal.name, books.generations.name):
            continue
        for file in (file for file in sorted(directory.rglob("*")) if file.is_file()):
            target = paths.root / file.relative_to(incoming)
            fs.make_dirs(target.parent)
            os.replace(file, target)
    driver_log.merge(paths, books)
    adopt(books, paths)


def take(link: Link, ownership: Ownership, clock: Clock) -> bool:
    """Claim the replica under the generation that was claimed here; False: another driver was faster over there."""
    assert link.remote is not None
    taken = take_generation(link.remote, ownership.record)
    link.taken = ownership if taken else None
    return taken


def give_up(link: Link) -> None:
    """Release the replica after a start that failed; where that cannot be said over there, the next start waits."""
    if not link.uploader.closed and link.taken is not None and link.remote is not None:
        prefix, generation = f"{link.remote.name}/generations", link.taken.generation
        guard = f"{prefix}/{generation + 1:06d}.json"  # whoever was taken over writes nothing more
        beat = transfer_jobs.Put(
            key=f"{prefix}/{heartbeat_name(generation)}", data=encode_heartbeat("released", 0), guard=guard
        )
        try:
            link.uploader.call(beat, timeout_s=RELEASE_S)
        except OSError as error:
            log.warning("%s: not released: %s", link.remote.uri, error)


def replica_of(link: Link, paths: ExperimentPaths, journal: JournalWriter, generation: int, clock: Clock) -> Replica:
    """The replica that the loop keeps in step."""
    assert link.remote is not None
    uri, config = link.remote.uri, link.config
    return Replica(link.uploader, uri, config, paths=paths, journal=journal, generation=generation, clock=clock)


def place_for_workers(link: Link | None, spec: Spec, ownership: Ownership) -> Replicated | None:
    """Where the workers of trainers copy what they save themselves (`_checkpoint_upload_from_workers`).

    None: they do not; where they were to, a warning says why.
    """
    if not getattr(spec.checkpoint_config, "_checkpoint_upload_from_workers", False):
        return None
    if not isinstance(spec.trainable, GroupTrainable):
        why = "only the workers of a trainer, as TorchTrainer, have files of their own"
    elif link is None or link.remote is None:
        why = "nothing is copied anywhere; upload_dir= says where copies should go"
    elif link.config.syncer != "auto":
        why = "what syncer= copies it is given whole, once per checkpoint"
    elif not link.uploader.beside:
        why = f"{link.uploader.uri} is reached by this process alone"
    elif not link.config.sync_on_checkpoint:
        why = "with sync_on_checkpoint=False only what is there every sync_period is copied"
    else:
        prefix = f"{link.remote.name}/generations"
        return Replicated(
            arguments=cloudpickle.dumps(link.config.place()),
            directory=link.remote.name,
            witness=(f"{prefix}/{ownership.generation:06d}.json", ownership.id),
            guard=f"{prefix}/{ownership.generation + 1:06d}.json",
            timeout_s=link.config.sync_timeout,
        )
    log.warning("CheckpointConfig(_checkpoint_upload_from_workers=True) has no effect: %s", why)
    return None


def start(
    link: Link, replica: Replica, state: ExperimentState, *, new: bool, touched: Collection[str] = frozenset()
) -> None:
    """Take up what the replica holds; for a `new` experiment that is of another one, and is to go.

    `touched`: ids of trials of which the journal speaks after its last snapshot.
    """
    assert link.remote is not None
    held = take_inventory(link.remote, state, new=new, void=link.void, touched=touched, origins=link.origins)
    replica.start(state, held)


def elsewhere(link: Link | None) -> Elsewhere:
    """Which checkpoints are complete in the replica, or in another place from which it is to get them."""
    if link is None or link.remote is None:
        return lambda trial, ref: False
    whole, origins = complete(link.remote.checkpoints()), link.origins or {}
    return lambda trial, ref: ref.name in whole.get(trial.dirname, ()) or (trial.dirname, ref.name) in origins


def let_go(link: Link | None) -> LetGo:
    """What the replica still holds complete of what was let go of here: its deletions come later than those here."""
    remote = link.remote if link is not None else None
    if link is None or remote is None or link.void:
        return lambda trial: ()
    return lambda trial: [published for _, published in remote.not_kept(trial) if published is not None]
