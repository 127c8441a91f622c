"""What checkpoints of Ray 1.13 to 2.6 can do besides, under its names there."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from trainables import pickling
from trainables.absent import SaysInstead
from trainables.errors import CheckpointError
from trainables.store import fs
from trainables.store.manifest import MANIFEST_NAME

PREPROCESSOR_KEY = "_preprocessor"
_PREPROCESSOR_FILE = "preprocessor.pkl"
_REFERENCES = (
    "there are no object references here: hand on Checkpoint.from_dict(data), a path, or a URI that every process reads"
)


class OlderCheckpoint(SaysInstead):
    """The part of `Checkpoint` that programs for older versions call. Nothing newer needs it."""

    _instead: ClassVar[Mapping[str, str]] = {
        "download": "to_directory(path), or as_directory()",
        "upload": "to_uri(uri)",
        "save": "to_directory(path)",
        "delete": "retention (CheckpointConfig) deletes what is not kept",
        "commit": "what is reported is published",
        "result": "metrics",
        "node_ip": "metrics['node_ip']",
        "get_model": "TorchCheckpoint of the same path, or what loads the files in as_directory()",
    }

    @classmethod
    def from_checkpoint(cls, other: Any) -> Any:
        """The same checkpoint as one of this class: `TorchCheckpoint.from_checkpoint(result.checkpoint)`."""
        made = cls.__new__(cls)
        made.__dict__.update(other.__dict__)
        return made

    @classmethod
    def from_object_ref(cls, obj_ref: Any) -> NoReturn:
        """Raises CheckpointError: there is no object store."""
        raise CheckpointError(f"{cls.__name__}.from_object_ref() is not here: {_REFERENCES}")

    def to_object_ref(self) -> NoReturn:
        """Raises CheckpointError: there is no object store."""
        raise CheckpointError(f"{type(self).__name__}.to_object_ref() is not here: {_REFERENCES}")

    def get_internal_representation(self: Any) -> tuple[str, Any]:
        """("local_path", path), ("uri", uri) or ("data_dict", dict)."""
        if self.in_memory:
            return "data_dict", self.to_dict()
        return ("local_path", self.path) if self.local_path else ("uri", self.path)

    def to_air_checkpoint(self, local_to_remote_path_fn: Any = None) -> Any:
        """Itself: what a trial has is a checkpoint already."""
        return self

    @property
    def local_path(self: Any) -> str | None:
        """Its directory on this machine; None for what lies elsewhere or is in memory."""
        return None if self._path is None else str(self._path)

    @property
    def cloud_path(self: Any) -> str | None:
        """Its URI; None for what lies on this machine or is in memory."""
        return None if self._elsewhere is None else str(self._elsewhere.uri)

    @property
    def dir_or_data(self: Any) -> Any:
        """Its path, or the dict that it is in memory."""
        return self.get_internal_representation()[1]

    value = dir_or_data

    def get_preprocessor(self: Any) -> Any:
        """What `set_preprocessor` stored, or a dict has under "_preprocessor"; None: nothing. This unpickles."""
        if not self.in_memory:
            with self.as_directory() as directory, suppress(FileNotFoundError):
                with open(Path(directory) / _PREPROCESSOR_FILE, "rb") as file:
                    return pickling.read(file, repr(self))
        return self.to_dict().get(PREPROCESSOR_KEY)

    def set_preprocessor(self: Any, preprocessor: Any) -> None:
        """Store any object with the checkpoint, pickled. Raises CheckpointError for one that is published."""
        if self._data is not None:
            self._data[PREPROCESSOR_KEY] = preprocessor
            return
        if self._path is None or fs.exists(self._path / MANIFEST_NAME):
            raise CheckpointError(f"{self!r} is not to be changed: set the preprocessor before it is reported")
        fs.remove_quietly(self._path / _PREPROCESSOR_FILE)
        pickling.write({PREPROCESSOR_KEY: preprocessor}, self._path / _PREPROCESSOR_FILE, dump=_inner)


def _inner(data: Any, file: Any) -> None:
    import cloudpickle

    cloudpickle.dump(data[PREPROCESSOR_KEY], file)
