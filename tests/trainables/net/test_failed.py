"""A failure that crosses a process: what it is survives the way, and nothing is read from its text."""

from __future__ import annotations

import errno

import msgspec
import pytest

from trainables import errors
from trainables.net.failed import Failed, FailureKind, errno_of


@pytest.mark.parametrize(
    ("error", "kind", "transient"),
    [
        (errors.StoreBusyError("later", transient=True), FailureKind.STORE_BUSY, True),
        (errors.ObjectNotFoundError("none"), FailureKind.OBJECT_NOT_FOUND, False),
        (errors.TransferError("no"), FailureKind.TRANSFER, False),
        (errors.LimitError("no thread"), FailureKind.LIMIT, True),
        (errors.CheckpointCorruptError("torn"), FailureKind.CHECKPOINT_CORRUPT, False),
        (errors.PublishError("full"), FailureKind.PUBLISH, False),
        (errors.CheckpointBudgetError("too much"), FailureKind.CHECKPOINT, False),
        (ZeroDivisionError("a bug"), FailureKind.OTHER, False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_what_was_raised_is_known_by_its_kind_after_the_way(
    error: Exception, kind: FailureKind, transient: bool
) -> None:
    sent = msgspec.json.encode(Failed.of(error))
    failed = msgspec.json.decode(sent, type=Failed)
    assert (failed.kind, failed.message, failed.transient) == (kind, str(error), transient)
    assert failed.raised == type(error).__name__


def test_an_error_of_a_subclass_is_of_its_kind_and_not_of_its_name() -> None:
    class CheckpointOfMine(errors.AccessRefusedError):
        pass

    failed = Failed.of(CheckpointOfMine("expired"))
    assert failed.kind is FailureKind.ACCESS_REFUSED and not failed.of_checkpoint


def test_the_disk_is_known_by_the_number_wherever_in_the_chain_it_is() -> None:
    try:
        try:
            raise OSError(errno.ENOSPC, "whatever it says here")
        except OSError as error:
            raise errors.TransferError("could not be written") from error
    except errors.TransferError as error:
        assert Failed.of(error).disk and errno_of(error) == errno.ENOSPC
    assert not Failed.of(errors.TransferError("No space left on device")).disk
    assert Failed.of(errors.TransferError("a program said so", errno=errno.EDQUOT)).disk


@pytest.mark.parametrize(
    ("kind", "raised"),
    [
        (FailureKind.SETTING, errors.InvalidSettingError),
        (FailureKind.EXTRA_MISSING, errors.MissingExtraError),
        (FailureKind.STORE_MISSING, errors.StoreMissingError),
        (FailureKind.CHECKPOINT_CORRUPT, errors.TransferError),
        (FailureKind.PROCESS_LOST, errors.TransferError),
        (FailureKind.OTHER, errors.TransferError),
    ],
)
def test_who_asked_gets_the_error_of_its_kind(kind: FailureKind, raised: type[Exception]) -> None:
    error = Failed(kind, "no", transient=True, errno=errno.ENOSPC).error()
    assert type(error) is raised and str(error) == "no"
    if isinstance(error, errors.TransferError):
        assert error.transient and error.errno == errno.ENOSPC
