"""Jobs and answers of a transfer agent, as they cross a socket."""

from __future__ import annotations

import typing
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainables.errors import StoreBusyError
from trainables.net.failed import FailureKind
from trainables.transfer import transfer_jobs
from trainables.transfer.backend import Leftover
from trainables.transfer.transfer_jobs import (
    AnyJob,
    Begun,
    Done,
    JobFailed,
    Moved,
    PlaceOpened,
    Put,
    TransferJob,
    decode_answer,
    decode_job,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXTS,
    int: st.integers(-(2**63), 2**63 - 1),
    bytes: st.binary(max_size=30),
    bool: st.booleans(),
    tuple[str, str]: st.tuples(TEXTS, TEXTS),
    list[str]: st.lists(TEXTS, max_size=3),
    list[str] | None: st.none() | st.lists(TEXTS, max_size=3),
    dict[str, str]: st.dictionaries(TEXTS, TEXTS, max_size=3),
    list[tuple[str, str, list[str]]]: st.lists(st.tuples(TEXTS, TEXTS, st.lists(TEXTS, max_size=2)), max_size=2),
    list[Leftover]: st.lists(st.builds(Leftover, TEXTS, TEXTS, TEXTS), max_size=2),
}
KINDS = typing.get_args(AnyJob)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_a_job_arrives_as_it_was_sent(kind: type[TransferJob], data: st.DataObject) -> None:
    hints = typing.get_type_hints(kind)
    job = kind(**{name: data.draw(VALUES[hints[name]], label=name) for name in kind.__struct_fields__})

    found = decode_job(msgspec.json.encode(job))

    assert found == job and type(found) is kind


def test_every_job_has_a_tag_of_its_own_and_is_one_that_an_agent_knows() -> None:
    tags = [kind.__struct_config__.tag for kind in KINDS]
    defined = {
        each for each in vars(transfer_jobs).values() if isinstance(each, type) and issubclass(each, TransferJob)
    }

    assert len(set(tags)) == len(tags)
    assert defined - {TransferJob} == set(KINDS)


@pytest.mark.parametrize(
    "answer",
    [
        PlaceOpened({"list": True, "delete": False}, "s3://bucket/x"),
        Done(3),
        Done(3, b"\0\xff"),
        JobFailed.of(StoreBusyError("later", transient=True, errno=11), id=7),
        Moved(1, 2**40),
        Begun(1),
    ],
)
def test_an_answer_arrives_as_it_was_sent(answer: Any) -> None:
    found = decode_answer(msgspec.json.encode(answer))

    assert found == answer and type(found) is type(answer)


def test_a_failure_is_known_by_its_kind() -> None:
    found = decode_answer(msgspec.json.encode(JobFailed.of(StoreBusyError("later", transient=True), id=7)))

    assert isinstance(found, JobFailed)
    assert (found.id, found.kind, found.transient, found.message) == (7, FailureKind.STORE_BUSY, True, "later")


@pytest.mark.parametrize("body", [b"", b"{}", b'{"job":"dance"}', b'{"job":"put","key":1,"data":""}', b'{"job":"put"}'])
def test_what_is_no_job_is_an_error(body: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_job(body)


def test_a_name_that_is_not_utf_8_cannot_be_sent() -> None:
    with pytest.raises(UnicodeEncodeError):
        msgspec.json.encode(Put(key="caf\udce9", data=b""))
