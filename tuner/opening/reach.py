"""The place where copies go, as it is reached at a start: opened, and tried, before anything is touched."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence

from trainables.config import SyncConfig
from trainables.errors import InvalidAddressError
from trainables.net.backoff import patient
from trainables.quick_dataclass import dataclass
from trainables.transfer import transfer_jobs
from trainables.transfer.client import InlineClient, ProcessClient, TransferClient
from tuner.error import SettingError
from tuner.experiment.ownership import Ownership
from tuner.experiment.paths import as_local_path, cache_of, is_elsewhere
from tuner.spec import Spec
from tuner.syncer.claim import RELEASE_S, encode_heartbeat, heartbeat_name
from tuner.syncer.remote_experiment import RemoteExperiment

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReplicaConnection:
    """The way to the place that the settings name, open from the start of a run to its end."""

    uploader: TransferClient
    config: SyncConfig

    def remote(self, name: str) -> RemoteExperiment:
        """Look what that place has of an experiment."""
        return RemoteExperiment(self.uploader, self.uploader.uri, name, timeout_s=self.config.sync_timeout)

    def give_up(self, remote: RemoteExperiment, ownership: Ownership) -> None:
        """Release it after a start or a run that failed; where that cannot be said there, the next start waits."""
        if self.uploader.closed:
            return
        prefix, generation = f"{remote.name}/generations", ownership.generation
        guard = f"{prefix}/{generation + 1:06d}.json"  # whoever was taken over writes nothing more
        beat = transfer_jobs.Put(
            key=f"{prefix}/{heartbeat_name(generation)}", data=encode_heartbeat("released", 0), guard=guard
        )
        try:
            self.uploader.call(beat, timeout_s=RELEASE_S)
        except OSError as error:
            log.warning("%s: not released: %s", remote.uri, error)

    @property
    def limits(self) -> Sequence[str]:
        """What the place cannot do, one line each."""
        can, uri, limits = self.uploader.can, self.uploader.uri, []
        if not can.exclusive:
            limits.append(f"{uri} cannot create a file only where there is none: two drivers on it are not prevented")
        if not can.delete:
            limits.append(f"{uri}: nothing can be deleted there, and it grows: give a delete_template= to mend that")
        return limits


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


def connect(spec: Spec, *, inline: bool, wake: Callable[[], None], hosts: bool) -> ReplicaConnection | None:
    """Open the place that the settings name, and look whether it takes what is written to it.

    Args:
        inline: do the work in this process.
        wake: called when there is something to hear.
        hosts: trials run on other hosts too.

    Raises SettingError or TransferError, within about 10 s, before anything is touched. None: no copies are made.
    """
    config = spec.sync_config
    if config.upload_dir is None or config.syncer is None:
        _say_unused(config, hosts)
        return None
    check_apart(spec)
    uploader = _opened(spec, config, inline=inline, wake=wake)
    if config.keep_local != "all" and not uploader.can.verify:
        uploader.close()
        raise SettingError(
            f"SyncConfig: keep_local={config.keep_local!r} is not accepted for {uploader.uri}: what copies there does "
            'not look whether everything arrived, and these would be the only copies; accepted is "all"'
        )
    return ReplicaConnection(uploader, config)


def _say_unused(config: SyncConfig, hosts: bool) -> None:
    """Say what has no effect where nothing is copied."""
    if config.upload_dir is not None:
        log.warning("upload_dir=%r is not used: syncer=None means that nothing is copied", str(config.upload_dir))
        return
    if config.keep_local != "all":
        raise SettingError(
            f"SyncConfig: keep_local={config.keep_local!r} is not accepted without upload_dir=: what is "
            'here is all there is; accepted is "all"'
        )
    if config.s3_extra_args is not None:
        raise SettingError(
            f"SyncConfig: s3_extra_args={config.s3_extra_args!r} is not accepted without a bucket of S3: give "
            "upload_dir= or storage_path= (s3://...)"
        )
    if config.syncer not in (None, "auto") and not hosts:
        log.warning(
            "syncer=%.60r has nothing to copy: on one machine every trial's checkpoints are where the driver is; "
            "upload_dir= says where copies should go",
            config.syncer,
        )


def _opened(spec: Spec, config: SyncConfig, *, inline: bool, wake: Callable[[], None]) -> TransferClient:
    arguments = config.place()
    here = inline or arguments["place"].startswith("memory://")  # that one lives in this process
    made: type[InlineClient] | type[ProcessClient] = InlineClient if here else ProcessClient
    try:
        return patient(lambda: made(arguments, wake=wake), config.sync_timeout)
    except InvalidAddressError as error:
        given_as = cache_of(os.fspath(config.upload_dir or ""))
        setting = "storage_path" if spec.storage_path == given_as else "SyncConfig: upload_dir"
        raise InvalidAddressError(f"{setting}: {error}") from None
