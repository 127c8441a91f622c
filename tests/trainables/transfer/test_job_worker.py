"""Jobs on a back end: what is done, what is answered, and who owns the place."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import blake3
import msgspec
import pytest

from trainables.errors import AccessRefusedError, StoreBusyError
from trainables.net.failed import FailureKind
from trainables.store import verify
from trainables.store.manifest import MANIFEST_NAME
from trainables.transfer import between, job_worker, local, transfer_jobs
from trainables.transfer.backend import Leftover
from trainables.transfer.fsspec import MemoryBackend
from trainables.transfer.job_worker import JobWorker
from trainables.transfer.local import LocalBackend
from trainables.transfer.transfer_jobs import Done, JobFailed


def test_r12_an_owner_that_was_taken_over_finds_the_next_one_whatever_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = LocalBackend(tmp_path, str(tmp_path))
    worker = JobWorker(backend)
    for name in ("000001.json", "000001.beat", "000003.beat", "notes.json"):
        backend.put(f"e/generations/{name}", b"")

    def push(key: str) -> Done | JobFailed:
        return worker.do(transfer_jobs.Put(key=key, data=b"", guard="e/generations/000002.json"), lambda moved: None)

    assert isinstance(push("e/one"), Done)
    backend.put("e/generations/1000000.json", b"")
    monkeypatch.setattr(job_worker, "LOOK_S", 0.0)
    answer = push("e/two")
    assert isinstance(answer, JobFailed) and answer.kind is FailureKind.OWNER_TAKEN and "1000000.json" in answer.message
    assert not backend.exists("e/two")
    delete = transfer_jobs.Delete(keys=["e/one"], guard="e/generations/000002.json")
    assert isinstance(JobWorker(backend).do(delete, lambda moved: None), JobFailed)
    assert backend.exists("e/one")


def nothing(moved: int) -> None: ...


@pytest.fixture
def place(tmp_path: Path) -> LocalBackend:
    return LocalBackend(tmp_path / "place")


@pytest.fixture
def worker(place: LocalBackend) -> JobWorker:
    return JobWorker(place, {"place": place.uri})


def done(worker: JobWorker, job: Any) -> bytes:
    answer = worker.do(msgspec.structs.replace(job, id=7), nothing)
    assert isinstance(answer, Done), answer
    assert answer.id == 7
    return answer.data


def failed(worker: JobWorker, job: Any) -> JobFailed:
    answer = worker.do(msgspec.structs.replace(job, id=7), nothing)
    assert isinstance(answer, JobFailed), answer
    assert answer.id == 7
    return answer


def test_small_files_are_put_read_listed_compared_and_deleted(
    worker: JobWorker, place: LocalBackend, tmp_path: Path
) -> None:
    for key in ("d/a", "d/e/b"):
        assert done(worker, transfer_jobs.Put(key=key, data=key.encode())) == b""
    assert done(worker, transfer_jobs.Read(key="d/a")) == b"d/a"
    assert json.loads(done(worker, transfer_jobs.ListKeys(prefix="d"))) == {"d/a": 3, "d/e/b": 5}
    assert json.loads(done(worker, transfer_jobs.Children(prefix="d"))) == ["a", "e/"]
    done(worker, transfer_jobs.FetchFiles(prefix="d", target=str(tmp_path / "here")))
    (tmp_path / "here" / "a").write_bytes(b"d/A")
    compare = transfer_jobs.Compare(source=str(tmp_path / "here"), prefix="d", names=["a", "e/b"])
    assert json.loads(done(worker, compare)) == ["a"]
    groups = [(str(tmp_path / "here"), "d", ["a"]), (str(tmp_path / "here"), "x", [])]
    done(worker, transfer_jobs.Push(groups=groups))
    assert place.read("d/a") == b"d/A"
    done(worker, transfer_jobs.Delete(keys=["d/a", "none"]))
    assert not place.exists("d/a")


def test_a_checkpoint_is_there_from_its_manifest_on_and_goes_with_it(
    worker: JobWorker, place: LocalBackend, save: Any, tmp_path: Path
) -> None:
    saved = save(1, {"a": b"1" * 1000, "d/b": b"2"})
    where = {"directory": str(saved.path), "key": "e/t/checkpoint_000001"}

    done(worker, transfer_jobs.PushPayload(**where))
    fetch = transfer_jobs.FetchCheckpoint(key=where["key"], target=str(tmp_path / "back"), digest=saved.digest)
    assert failed(worker, fetch).kind is FailureKind.CHECKPOINT_NOT_FOUND
    done(worker, transfer_jobs.PushManifest(**where))
    done(worker, fetch)
    assert verify.check(tmp_path / "back") == saved.manifest
    for _ in range(2):
        done(worker, transfer_jobs.DeleteCheckpoint(key=where["key"]))
    assert list(place.list()) == []


def test_a_checkpoint_is_copied_within_a_place_and_from_another(
    worker: JobWorker, place: LocalBackend, save: Any, tmp_path: Path
) -> None:
    other = LocalBackend(tmp_path / "other")
    saved = save(1)
    between.push(saved.path, other, "old")
    between.push(saved.path, place, "mine")

    for number, (uri, source) in enumerate([(other.uri, "old"), (place.uri, "mine")]):
        job = {"place": uri, "source": source, "key": f"new{number}", "digest": saved.digest}
        done(worker, transfer_jobs.CopyPayload(**job))
        assert not place.exists(f"new{number}/{MANIFEST_NAME}")
        done(worker, transfer_jobs.CopyManifest(**job))
        place.fetch(f"new{number}", tmp_path / f"back{number}")
        assert verify.check(tmp_path / f"back{number}") == saved.manifest
    wrong = transfer_jobs.CopyPayload(place=other.uri, source="old", key="x", digest="0" * 64)
    assert failed(worker, wrong).kind is FailureKind.CHECKPOINT_CORRUPT
    worker.close()


def test_what_is_known_to_be_there_is_copied_there(save: Any, tmp_path: Path) -> None:
    place = MemoryBackend(f"memory://job worker/{tmp_path.name}")
    worker, moved = JobWorker(place), []
    content = os.urandom(200_000)
    first, second = save(1, {"a": content}), save(2, {"b": content})
    between.push(first.path, place, "one")
    done(worker, transfer_jobs.Learn(key="one"))

    answer = worker.do(transfer_jobs.PushPayload(directory=str(second.path), key="two"), moved.append)

    assert isinstance(answer, Done) and sum(moved) == 0
    assert place.read("two/b") == content


def test_a_part_goes_only_to_the_runs_own_place(worker: JobWorker, place: LocalBackend, save: Any) -> None:
    saved = save(1, {"a": b"1", "b": b"2"})
    part = transfer_jobs.PushPart(
        directory=str(saved.path), key="e/t/c", names=["a"], witness=("e/owner", "this run"), guard="e/000002.json"
    )

    answer = failed(worker, part)
    assert "is another place here than it is for the run" in answer.message
    place.put("e/owner", b"of this run")
    assert json.loads(done(worker, part)) == {"a": blake3.blake3(b"1").hexdigest()}
    assert [entry.key for entry in place.list("e/t")] == ["e/t/c/a"]
    place.put("e/000002.json", b"")
    assert failed(worker, part).kind is FailureKind.OWNER_TAKEN


class Refusing(LocalBackend):
    """Raises what a test wants; counts how often its credentials are read anew."""

    error: Exception | None = None
    renewed = 0

    def read(self, key: str) -> bytes:
        if self.error is not None:
            raise self.error
        return super().read(key)

    def renew(self) -> None:
        self.renewed += 1


@pytest.mark.parametrize(
    ("error", "kind", "renewed"),
    [
        (AccessRefusedError("expired", transient=True), FailureKind.ACCESS_REFUSED, 1),
        (StoreBusyError("later", transient=True), FailureKind.STORE_BUSY, 0),
        (OSError(5, "Input/output error"), FailureKind.OTHER, 0),
        (ValueError("odd"), FailureKind.OTHER, 0),
        (ZeroDivisionError("of a user's function"), FailureKind.OTHER, 0),
    ],
)
def test_whatever_is_raised_is_an_answer_and_the_next_job_is_done(
    tmp_path: Path, error: Exception, kind: FailureKind, renewed: int
) -> None:
    backend = Refusing(tmp_path)
    worker = JobWorker(backend)
    backend.error = error

    answer = failed(worker, transfer_jobs.Read(key="a"))

    assert (answer.kind, backend.renewed) == (kind, renewed)
    assert str(error).split("] ")[-1] in answer.message
    backend.error = None
    done(worker, transfer_jobs.Put(key="a", data=b"x"))
    assert done(worker, transfer_jobs.Read(key="a")) == b"x"


def test_what_killed_uploads_left_is_found_and_removed(worker: JobWorker, place: LocalBackend) -> None:
    place.put("p/a", b"a")
    (place.root / "p" / f"{local.PREFIX}{'0' * 16}").write_bytes(b"half")

    found = msgspec.json.decode(done(worker, transfer_jobs.FindLeftovers(prefix="p")), type=list[Leftover])
    done(worker, transfer_jobs.RemoveLeftovers(leftovers=found))

    assert [leftover.key for leftover in found] == [f"p/{local.PREFIX}{'0' * 16}"]
    assert os.listdir(place.root / "p") == ["a"]


def test_the_guard_is_looked_for_at_every_job_and_its_neighbours_now_and_then(
    worker: JobWorker, place: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    real = LocalBackend.children
    monkeypatch.setattr(LocalBackend, "children", lambda self, prefix="": looks.append(prefix) or real(self, prefix))
    job = transfer_jobs.Put(key="x", data=b"", guard="g/000002.json")

    for _ in range(3):
        done(worker, job)
    assert looks == ["g"]
    done(worker, msgspec.structs.replace(job, guard="g/next"))
    assert looks == ["g"], "a name without a number has no higher one"
    place.put("g/next", b"")
    assert failed(worker, msgspec.structs.replace(job, guard="g/next")).kind is FailureKind.OWNER_TAKEN
