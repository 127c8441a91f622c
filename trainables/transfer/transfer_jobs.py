"""What a transfer agent is told and answers: its jobs, and what comes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Union

import msgspec

from trainables.decoding import later
from trainables.net.failed import Failed
from trainables.transfer.backend import Leftover


class OpenPlace(msgspec.Struct, frozen=True):
    """What the agent is told first."""

    pickled: bytes
    """cloudpickle of the keyword arguments of `open_backend`."""
    path: list[str]
    """The driver's `sys.path`: a user's function may come from there."""
    check: bool = True
    """Look whether the place can be used before anything else."""


class TransferJob(msgspec.Struct, frozen=True, kw_only=True, tag_field="job"):
    """Base of all jobs."""

    id: int = 0
    guard: str = ""
    """A key: if there is something of that name the replica has another owner, and nothing is done.

    Where the name is a number, as in `000002.json`, a higher one beside it says so too; it may be found
    `LOOK_S` seconds late.
    """


class Push(TransferJob, frozen=True, tag="push"):
    """Copy small files: group after group, in that order."""

    groups: list[tuple[str, str, list[str]]]
    """(source directory, prefix, names)."""


class PushPayload(TransferJob, frozen=True, tag="payload"):
    """Copy a published checkpoint without its manifest: nobody sees it yet."""

    directory: str
    key: str
    sent: dict[str, str] = {}
    """Name -> BLAKE3 of what those who saved it have put there themselves (`PushPart`): it is not sent again."""


class PushPart(TransferJob, frozen=True, tag="part"):
    """Copy files of a checkpoint before it is published; the `sent` of `PushPayload` is the answer, as JSON."""

    directory: str
    key: str
    names: list[str]
    witness: tuple[str, str]
    """(key, text in it): where there is no such file this is not the run's place."""


class PushManifest(TransferJob, frozen=True, tag="manifest"):
    """Copy its manifest: from now on it is complete there."""

    directory: str
    key: str


class CopyPayload(TransferJob, frozen=True, tag="copy_payload"):
    """Copy a checkpoint from this or another place without its manifest: nobody sees it yet."""

    place: str
    """URI of that place, opened with the same keys and credentials as this one."""
    source: str
    """Its key there."""
    key: str
    digest: str = ""
    """BLAKE3 of its manifest."""


class CopyManifest(TransferJob, frozen=True, tag="copy_manifest"):
    """Copy its manifest; the rest as in `CopyPayload`."""

    place: str
    source: str
    key: str
    digest: str = ""


class CopyFiles(TransferJob, frozen=True, tag="copy_files"):
    """Copy files at the place, to the same names under another prefix."""

    source: str
    prefix: str
    names: list[str]


class RenameTree(TransferJob, frozen=True, tag="rename_tree"):
    """Give all that lies under a prefix another one, in one step. Done already is no error."""

    prefix: str
    target: str


class DeleteCheckpoint(TransferJob, frozen=True, tag="delete_checkpoint"):
    """Delete a checkpoint, its manifest first. Nothing there is no error."""

    key: str


class Delete(TransferJob, frozen=True, tag="delete"):
    """Delete files, in that order."""

    keys: list[str]


class FetchCheckpoint(TransferJob, frozen=True, tag="fetch_checkpoint"):
    """Bring a checkpoint to a local directory, whole and hashed or not at all."""

    key: str
    target: str
    digest: str = ""


class FetchFiles(TransferJob, frozen=True, tag="fetch"):
    """Bring files; without names all under the prefix."""

    prefix: str
    target: str
    names: list[str] | None = None


class Put(TransferJob, frozen=True, tag="put"):
    """Write a small file."""

    key: str
    data: bytes
    exclusive: bool = False


class Read(TransferJob, frozen=True, tag="read"):
    """The content of a small file is the answer."""

    key: str


class ListKeys(TransferJob, frozen=True, tag="list"):
    """Every key under the prefix, with its size, is the answer as JSON."""

    prefix: str


class Children(TransferJob, frozen=True, tag="children"):
    """The names directly under the prefix, those of directories with a slash, are the answer as a JSON list."""

    prefix: str


class Compare(TransferJob, frozen=True, tag="compare"):
    """Which of these files are not the same at the place as here is the answer as a JSON list."""

    source: str
    prefix: str
    names: list[str]


class FindLeftovers(TransferJob, frozen=True, tag="find_leftovers"):
    """What killed uploads left half done under the prefix (`base.Leftover`) is the answer, as JSON."""

    prefix: str


class RemoveLeftovers(TransferJob, frozen=True, tag="remove_leftovers"):
    """Remove these."""

    leftovers: list[Leftover]


class Learn(TransferJob, frozen=True, tag="learn"):
    """What that remote checkpoint holds need not be sent again: it may be copied from there."""

    key: str


AnyJob = Union[
    Push, PushPayload, PushPart, PushManifest, CopyPayload, CopyManifest, CopyFiles, RenameTree, DeleteCheckpoint,
    Delete, FetchCheckpoint, FetchFiles, Put, Read, ListKeys, Children, Compare, FindLeftovers, RemoveLeftovers, Learn
]  # fmt: skip


class PlaceOpened(msgspec.Struct, frozen=True, tag="opened", tag_field="answer"):
    """The place was looked at and takes what is written to it."""

    can: dict[str, bool]
    """The back end's `Can`."""
    uri: str
    """The place as messages and facts name it."""


class Done(msgspec.Struct, frozen=True, tag="done", tag_field="answer"):
    id: int
    data: bytes = b""


class JobFailed(Failed, frozen=True, tag="failed", tag_field="answer"):
    """Why a job was not done; `id` 0: the place could not be opened."""

    id: int = 0


class Moved(msgspec.Struct, frozen=True, tag="moved", tag_field="answer"):
    """So many bytes of a job moved since the last word of it."""

    id: int
    bytes: int


class Begun(msgspec.Struct, frozen=True, tag="begun", tag_field="answer"):
    """A job does not wait for its turn any more."""

    id: int


Answer = Union[PlaceOpened, Done, JobFailed, Moved, Begun]


decode_answer: Callable[[bytes], Answer] = later(Answer)  # most runs have no replica
"""What the agent says. Raises msgspec.DecodeError."""
decode_job: Callable[[bytes], AnyJob] = later(AnyJob)
"""What the agent is told. Raises msgspec.DecodeError."""
