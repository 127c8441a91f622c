"""Path, manifest and metadata of a checkpoint, read without opening its payload."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainables import address_finder
from trainables.addresses import CheckpointAddress
from trainables.checkpoint_files import as_local_path
from trainables.errors import CheckpointError, CheckpointNotFoundError
from trainables.masking import masked
from trainables.places import is_elsewhere
from trainables.store import fs, manifest
from trainables.store.manifest import MANIFEST_NAME, Manifest

if TYPE_CHECKING:
    from trainables.transfer.cached import CachedCheckpoint

METADATA_FILE = ".metadata.json"


def place_of(place: str, digest: str = "") -> tuple[Path | None, CachedCheckpoint | None]:
    """A directory of this machine, or a place elsewhere, which is not connected to yet."""
    if not is_elsewhere(place):
        return as_local_path(place), None
    from trainables.transfer.cached import CachedCheckpoint

    return None, CachedCheckpoint(place, digest)


class CheckpointFacts:
    """The part of `Checkpoint` that says what it is and does not open its files."""

    _metadata: dict[str, Any]
    _address: CheckpointAddress | None = None
    """What it was called, where that may be an address in an experiment, and is looked for when it is used."""

    @functools.cached_property
    def _path(self) -> Path | None:
        return self._place[0]

    @functools.cached_property
    def _elsewhere(self) -> CachedCheckpoint | None:
        return self._place[1]

    @functools.cached_property
    def _place(self) -> tuple[Path | None, CachedCheckpoint | None]:
        """The directory, or the place elsewhere, that its address means. Raises CheckpointNotFoundError."""
        assert self._address is not None
        found = address_finder.found(self._address)
        return (
            place_of(self._address.anchored(self._address.text)) if found is None else (found._path, found._elsewhere)
        )

    @property
    def unread_address(self) -> str:
        """The address that it was made of, without a password, until it is used; "" of all others."""
        return masked(self._address.text) if self._address is not None and "_path" not in self.__dict__ else ""

    @property
    def path(self) -> str:
        """The directory, or the URI where it lies elsewhere; `fetched()` and `as_directory()` bring it here.

        Raises CheckpointError for a dict or bytes, which has none before it is reported.
        """
        if self._elsewhere is not None:
            return self._elsewhere.uri
        if self._path is None:
            raise CheckpointError("this checkpoint is in memory: use as_directory() or to_directory()")
        return str(self._path)

    @property
    def in_memory(self) -> bool:
        """Whether it is a dict or bytes, to be written into a staging directory by `_materialize`."""
        return self._path is None and self._elsewhere is None

    @property
    def manifest(self) -> Manifest | None:
        """What is known about a published checkpoint; None for others."""
        try:
            if self._elsewhere is not None:
                return self._elsewhere.look().manifest
            if self._path is None:
                return None
            return manifest.read(self._path).manifest
        except CheckpointNotFoundError:
            return None

    @property
    def iteration(self) -> int | None:
        """`training_iteration` of the result that it was reported with; None when it was not published."""
        found = self.manifest
        return None if found is None else found.iteration

    @property
    def metrics(self) -> dict[str, Any] | None:
        """The result that it was reported with; None when it was not published."""
        found = self.manifest
        if found is None:
            return None
        from trainables import tagged

        metrics = tagged.loads(bytes(found.metrics))
        return metrics if isinstance(metrics, dict) else None

    def get_metadata(self) -> dict[str, Any]:
        """What `set_metadata` stored; {} when nothing was. Of a checkpoint elsewhere only that file is fetched."""
        if self.in_memory:
            return dict(self._metadata)
        try:
            content = self._read_metadata()
            data = {} if content is None else json.loads(content)
        except ValueError as error:
            raise CheckpointError(f"{self.path}/{METADATA_FILE} is no JSON: {error}") from error
        return data if isinstance(data, dict) else {}

    def set_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Store a dict of JSON values with the checkpoint, instead of what was stored. Do so before reporting it.

        Raises CheckpointError for a published checkpoint, which never changes, and TypeError for what is no JSON.
        """
        text = json.dumps(dict(metadata))
        if self._elsewhere is not None:
            raise CheckpointError(f"{self.path} is published and never changes: report a copy (to_directory())")
        if self._path is None:
            self._metadata = json.loads(text)
            return
        if fs.exists(self._path / MANIFEST_NAME):
            raise CheckpointError(
                f"{self._path} is published and never changes: set its metadata before it is reported, "
                "or report a copy (to_directory())"
            )
        if not self._path.is_dir():
            raise CheckpointNotFoundError(f"there is no checkpoint directory {self._path}")
        fs.replace_file(self._path / METADATA_FILE, text.encode())

    def update_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Add to the metadata; raises as `set_metadata` does."""
        self.set_metadata({**self.get_metadata(), **metadata})

    def _read_metadata(self) -> bytes | None:
        if self._elsewhere is not None:
            return self._elsewhere.read(METADATA_FILE)
        assert self._path is not None
        try:
            return fs.read_file(self._path / METADATA_FILE)
        except FileNotFoundError:
            return None
