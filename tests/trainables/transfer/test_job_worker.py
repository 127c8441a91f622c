"""Jobs on a back end: what is done, what is answered, and who owns the place."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainables.net.failed import FailureKind
from trainables.transfer import job_worker, transfer_jobs
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
