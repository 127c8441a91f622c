"""`AtomicDirectory`: checkpoints as directories, one owner, and a link to the latest that is never wrong."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from trainables import knobs
from trainables.errors import InvalidSettingError, RanksError, SessionError
from trainables.store import staging
from trainables.store.manifest import stays_inside
from trainables.sync_config import SyncConfig
from trainables.torch.checkpoint_uploads import CheckpointUploader
from trainables.torch.numbered import NumberedCheckpoints, SaverNames
from trainables.torch.ranks import Agreement, has_group, rank_or_zero
from trainables.validation import flag, invalid, one_of, seconds, whole_number

T = TypeVar("T")

STRATEGIES = ("sync_any", "sync_all", "async", "mono")


class AtomicDirectory:
    """Saves each checkpoint into a directory of its own, and keeps a link to the latest complete one.

    Called by all ranks: `prepare_checkpoint_directory()` gives a directory, the ranks write into it, and
    `symlink_latest(directory)` makes it a checkpoint: everything in it durable, a manifest (`.manifest.json`: names,
    sizes, hashes) last, then the pointer, then the link. Only then do older ones go. Killed at any point, the next
    start finds the latest complete checkpoint, and removes what was half written. The ranks need a directory that all
    of them see; one of them, the master, is its owner, and the only one that publishes and deletes.

    In `output_directory` lie `<name>_checkpoint_<number>` (with `_force` at the end of milestones), the link
    `<name>.latest_checkpoint` with the absolute path of the latest, and the file `<name>.latest_checkpoint.name` with
    its bare name, which is what is read here: it stays true when the tree is moved, and where links are refused. A link
    that a move has broken is mended when an AtomicDirectory is built.

    Args:
        output_directory: made when it is missing.
        is_master: whether this rank is the owner: exactly one is under the sync strategies, each under "async".
        name: tells several savers in one directory apart.
        keep_last: how many checkpoints stay, the latest among them, and one more only while saving; -1: all.
            Forced ones stay beside them.
        strategy: what happens when ranks disagree on `force_save`. "sync_any": one is enough; "sync_all": all must
            say so; "async": each rank saves on its own, `_rank_<rank>` is added to its name; "mono": one process saves
            on its own, whatever process group there is.
        device: accepted for cycling_utils' sake; ranks agree over the CPU.
        sync_config: a `SyncConfig` with `upload_dir`: the latest and the forced checkpoints are copied there, at most
            every `sync_period` seconds and when the process ends. When the copy is ahead of this directory (an empty
            machine), its latest is fetched at the start.
        timeout_s: seconds that ranks wait for each other. A rank that dies is noticed at once, a host that vanishes
            after this time.

    Raises:
        InvalidSettingError: an argument that is not accepted.
        RanksError: the ranks disagree, or one of them is gone; there are several and no process group yet.
        SessionError: another process of this machine is saving under this name in `output_directory`.
        PublishError: the disk does not take it.
        TransferError: `upload_dir` cannot be asked for its latest checkpoint.

    Source: the interface is that of StrongResearch/cycling_utils.

    Example:
        >>> import os, tempfile, torch
        >>> from trainables.torch import atomic_torch_save
        >>> output = tempfile.mkdtemp()
        >>> saver = AtomicDirectory(output, is_master=True, keep_last=1)
        >>> for step in range(3):
        ...     directory = saver.prepare_checkpoint_directory(force_save=step == 0)
        ...     atomic_torch_save({"step": step}, os.path.join(directory, "checkpoint.pt"))
        ...     saver.symlink_latest(directory)
        >>> latest = os.readlink(os.path.join(output, saver.symlink_name))
        >>> torch.load(os.path.join(latest, "checkpoint.pt"))
        {'step': 2}
        >>> sorted(name for name in os.listdir(output) if "_checkpoint_" in name and "latest" not in name)
        ['AtomicDirectory_checkpoint_0_force', 'AtomicDirectory_checkpoint_2']
    """

    def __init__(
        self,
        output_directory: str | os.PathLike[str],
        is_master: bool = False,
        name: str = "AtomicDirectory",
        keep_last: int = -1,
        strategy: str = "sync_any",
        *,
        device: Any = None,
        sync_config: SyncConfig | None = None,
        timeout_s: float = 1800.0,
    ) -> None:
        if not isinstance(output_directory, str | os.PathLike) or not os.fspath(output_directory):
            raise invalid("AtomicDirectory: output_directory", output_directory, "a path")
        self.is_master = flag("AtomicDirectory: is_master", is_master)
        if not isinstance(name, str) or "/" in name or not stays_inside(name) or name.startswith("."):
            raise invalid("AtomicDirectory: name", name, "a plain name, without / and without a dot at its start")
        self.strategy = one_of("AtomicDirectory: strategy", strategy, STRATEGIES)
        if keep_last != -1 or isinstance(keep_last, bool):
            accepted = "-1 (all), or a whole number >= 1"
            keep_last = whole_number("AtomicDirectory: keep_last", keep_last, least=1, accepted=accepted)
        seconds("AtomicDirectory: timeout_s", timeout_s, zero=False)
        if sync_config is not None and (not isinstance(sync_config, SyncConfig) or sync_config.upload_dir is None):
            raise invalid("AtomicDirectory: sync_config", sync_config, "None, or a SyncConfig with upload_dir")
        self.output_directory = os.path.abspath(os.fspath(output_directory))
        self.keep_last = keep_last
        self.name = f"{name}_rank_{rank_or_zero()}" if strategy == "async" else name
        self.symlink_name = SaverNames(self.name).link
        self._force_one_is_enough = strategy != "sync_all"
        self._agreement: Agreement | None = None
        self._master = 0
        self._latest: str | None = None
        self._closed = False
        if strategy in ("sync_any", "sync_all") and has_group():
            self._agreement = Agreement(timeout_s=timeout_s)
            self._check_ranks()
        elif strategy in ("sync_any", "sync_all") and (knobs.torchrun_world_size() or 1) > 1:
            raise RanksError(
                f"AtomicDirectory: WORLD_SIZE is {knobs.torchrun_world_size()} and there is no process group: call "
                'torch.distributed.init_process_group(...) first, or pass strategy="async" (each rank saves on its '
                'own) or "mono" (this one alone saves)'
            )
        elif not self.is_master:
            raise invalid(
                "AtomicDirectory: is_master",
                False,
                'True: this process saves alone (strategy "async" or "mono", or no process group was initialized)',
            )
        self._checkpoints: NumberedCheckpoints | None = None
        self._uploader: CheckpointUploader | None = None
        self._latest = self._by_master("looking for the latest checkpoint", lambda: self._open(sync_config))

    def prepare_checkpoint_directory(self, force_save: bool = False) -> str:
        """A new directory to save into; called by all ranks, and all get the same absolute path.

        Nothing is deleted here but what an earlier save left that was never finished.

        Args:
            force_save: make it a milestone, which no retention removes; see `strategy`. What a comparison of numpy or
                torch gives counts as True or False too.

        Raises PublishError, RanksError, SessionError after `close()`.
        """
        if self._closed:
            raise SessionError("prepare_checkpoint_directory: this AtomicDirectory was closed; build another one")
        forced = flag("prepare_checkpoint_directory: force_save", _plain(force_save))
        if self._agreement is not None:
            votes = self._agreement.gather(forced, "preparing a checkpoint")
            forced = any(votes) if self._force_one_is_enough else all(votes)
        directory = self._by_master("preparing a checkpoint", lambda: os.fspath(self._owned().prepare(forced=forced)))
        if not self.is_master:
            os.makedirs(directory, exist_ok=True)  # it is there; but a network filesystem may not show it yet
        return directory

    def symlink_latest(self, checkpoint_directory: str | os.PathLike[str]) -> None:
        """Make the prepared directory a checkpoint, and the latest; called by all ranks when they have written.

        It waits for all ranks, then for the disk: on return the checkpoint survives a power cut.

        Args:
            checkpoint_directory: what `prepare_checkpoint_directory` returned.

        Raises:
            InvalidSettingError: it is another one.
            PublishError, CheckpointError: it could not be saved; it is removed, and the latest is what it was.
            RanksError: a rank is gone, or the master could not publish.
        """
        given = checkpoint_directory
        if isinstance(given, str | os.PathLike):
            given = os.path.abspath(given)
        else:
            given = repr(given)  # refused by the master, who knows the right one
        if self._agreement is not None:
            directories = set(self._agreement.gather(given, "publishing a checkpoint"))
            if len(directories) > 1:
                raise RanksError(f"symlink_latest: the ranks named different directories: {sorted(directories)}")
        self._latest = self._by_master("publishing a checkpoint", lambda: self._publish(Path(given)))

    def latest_checkpoint(self) -> str | None:
        """The absolute path of the latest complete checkpoint; None when there is none. The same on all ranks."""
        return None if self._latest is None else os.path.join(self.output_directory, self._latest)

    def close(self) -> None:
        """Ship what `sync_config` still has to, and wait for it; the end of the process does so too. The last call.

        Raises TransferError that names what did not arrive within `sync_timeout`.
        """
        self._closed = True
        try:
            if self._uploader is not None:
                self._uploader.close()
        finally:
            if self._checkpoints is not None:
                self._checkpoints.prune()  # what was on its way to the copy could not go before
                self._checkpoints.release()

    def __enter__(self) -> AtomicDirectory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self, sync_config: SyncConfig | None) -> str | None:
        keep_last = None if self.keep_last == -1 else self.keep_last
        checkpoints = NumberedCheckpoints(Path(self.output_directory), self.name, keep_last=keep_last)
        try:
            with staging.disk_errors(checkpoints.directory):
                checkpoints.start()
            if sync_config is not None:
                place, names = checkpoints.directory, checkpoints.names
                uploader = CheckpointUploader(sync_config, place, names, keep_last=keep_last)
                here = checkpoints.complete
                fetched = uploader.fetch_newer(here[-1].index if here else -1)
                if fetched is not None:
                    checkpoints.adopt(fetched)
                uploader.start(checkpoints.complete)
                self._uploader = uploader
        except BaseException:
            checkpoints.release()
            raise
        self._checkpoints = checkpoints
        return checkpoints.latest()

    def _publish(self, path: Path) -> str:
        published = self._owned().publish(path)
        if self._uploader is not None:
            self._uploader.offer(published)
        return published.name

    def _owned(self) -> NumberedCheckpoints:
        assert self._checkpoints is not None
        return self._checkpoints

    def _check_ranks(self) -> None:
        assert self._agreement is not None
        facts_here = (self.is_master, self.strategy, self.name, self.keep_last, self.output_directory)
        told = self._agreement.gather(facts_here, "building an AtomicDirectory")
        masters = [rank for rank, facts in enumerate(told) if facts[0]]
        if len(masters) != 1:
            raise InvalidSettingError(
                f"AtomicDirectory: ranks {masters} have is_master=True; accepted: exactly one of the {len(told)} ranks"
            )
        self._master = masters[0]
        for number, what in enumerate(("strategy", "name", "keep_last", "output_directory"), start=1):
            values = [facts[number] for facts in told]
            if len(set(values)) > 1:
                raise InvalidSettingError(f"AtomicDirectory: {what} differs between the ranks: {values}, by rank")

    def _by_master(self, doing: str, work: Callable[[], T]) -> T:
        """Have the master do it, and all ranks learn what came of it."""
        if self._agreement is None:
            return work()
        if self._agreement.rank != self._master:
            found, failure = self._agreement.tell(None, self._master, doing)
            if failure is not None:
                raise RanksError(f"rank {self._master}, the master, failed while {doing}: {failure}")
            return found  # type: ignore[no-any-return]
        try:
            done = work()
        except Exception as error:  # whatever it is, the others must not wait for what will not come
            self._agreement.tell((None, f"{type(error).__name__}: {error}"), self._master, doing)
            raise
        self._agreement.tell((done, None), self._master, doing)
        return done


def _plain(value: Any) -> Any:
    """A truth value of numpy or torch as Python's; anything else as it is."""
    if str(getattr(value, "dtype", "")).removeprefix("torch.") == "bool" and math.prod(value.shape) == 1:
        return value.item()
    return value
