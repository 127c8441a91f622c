"""The uploader of a replica to which hosts copy their checkpoints themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from trainables.net.failed import FailureKind
from trainables.transfer.client import InlineClient
from trainables.transfer.transfer_jobs import AnyJob, Done, JobFailed, PushPayload
from tuner.executors.remote.uploads import ClusterUploader


def test_a_host_that_cannot_copy_what_it_has_is_no_sign_of_life_of_the_replica(tmp_path: Path) -> None:
    """Else the end of a run would wait for it as long as it says so."""
    (tmp_path / "place").mkdir()
    answer: list[Done | JobFailed] = [JobFailed(FailureKind.TRANSFER, "no credentials"), Done(0)]

    def send(path: Path, job: AnyJob, then: Callable[[Done | JobFailed], None]) -> bool:
        then(answer.pop(0))
        return True

    home = InlineClient({"place": str(tmp_path / "place")})
    uploader = ClusterUploader(home, send, lambda timeout: None)
    job = PushPayload(directory=str(tmp_path / "e"), key="e/t/c")
    before = uploader.heard_at
    number = uploader.submit(job)
    assert [(type(told), told.id) for told in uploader.answers()] == [(JobFailed, number)]
    assert uploader.heard_at == before
    uploader.submit(job)
    assert [type(told) for told in uploader.answers()] == [Done]
    assert uploader.heard_at > before
