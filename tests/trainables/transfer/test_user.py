"""Syncers of users: the suite for them, the back end around one, and retries that are all awaited."""

from __future__ import annotations

import fnmatch
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from trainables.errors import InvalidSettingError, TransferError
from trainables.testing.backends import CHECKS, Check
from trainables.testing.syncers import check_syncer
from trainables.transfer.user import Syncer, SyncerBackend


class DirectorySyncer(Syncer):
    """Copies to a directory, in the background as users do it."""

    def __init__(self) -> None:
        super().__init__()
        self._last: Callable[[], None] | None = None
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        self.attempts = 0

    def sync_up(self, local_dir: str, remote_dir: str, exclude: list[str] | None = None) -> bool:
        return self._start(lambda: self._copy(local_dir, remote_dir, exclude))

    def sync_down(self, remote_dir: str, local_dir: str, exclude: list[str] | None = None) -> bool:
        return self._start(lambda: self._copy(remote_dir, local_dir, exclude))

    def delete(self, remote_dir: str) -> bool:
        return self._start(lambda: self._remove(remote_dir))

    def retry(self) -> None:
        assert self._last is not None
        self._start(self._last)

    def wait(self, timeout: float | None = None) -> None:
        if self._thread is not None:
            self._thread.join(timeout)
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _start(self, work: Callable[[], None]) -> bool:
        if self._thread is not None:
            return False
        self._last = work
        self._thread = threading.Thread(target=self._run, args=[work])
        self._thread.start()
        return True

    def _run(self, work: Callable[[], None]) -> None:
        self.attempts += 1
        try:
            work()
        except Exception as error:
            self._error = error

    def _copy(self, source: str, target: str, exclude: list[str] | None) -> None:
        def left_out(directory: str, names: list[str]) -> list[str]:
            under = os.path.relpath(directory, source)
            paths = {name: os.path.normpath(os.path.join(under, name)) for name in names}
            return [name for name in names if any(fnmatch.fnmatch(paths[name], one) for one in exclude or [])]

        shutil.copytree(source, target, ignore=left_out, dirs_exist_ok=True)

    def _remove(self, remote_dir: str) -> None:
        if os.path.isfile(remote_dir):
            os.unlink(remote_dir)
        elif os.path.isdir(remote_dir):
            shutil.rmtree(remote_dir)


def test_a_syncer_conforms(tmp_path: Path) -> None:
    check_syncer(DirectorySyncer(), str(tmp_path / "remote"))


class Forgetful(DirectorySyncer):
    """Does not go into directories."""

    def _copy(self, source: str, target: str, exclude: list[str] | None) -> None:
        os.makedirs(target, exist_ok=True)
        for entry in os.scandir(source):
            if entry.is_file():
                shutil.copy(entry.path, target)


class Silent(DirectorySyncer):
    """Keeps what went wrong to itself."""

    def wait(self, timeout: float | None = None) -> None:
        try:
            super().wait(timeout)
        except Exception:
            pass


class Nesting(DirectorySyncer):
    """Copies the directory into the directory."""

    def _copy(self, source: str, target: str, exclude: list[str] | None) -> None:
        super()._copy(source, os.path.join(target, os.path.basename(source)), exclude)


class Everything(DirectorySyncer):
    """Knows no patterns."""

    def _copy(self, source: str, target: str, exclude: list[str] | None) -> None:
        super()._copy(source, target, None)


class Keeping(DirectorySyncer):
    """Deletes nothing."""

    def _remove(self, remote_dir: str) -> None:
        pass


class Mirroring(DirectorySyncer):
    """Removes what is not in the source."""

    def _copy(self, source: str, target: str, exclude: list[str] | None) -> None:
        shutil.rmtree(target, ignore_errors=True)
        super()._copy(source, target, exclude)


@pytest.mark.parametrize("kind", [Forgetful, Silent, Nesting, Everything, Keeping, Mirroring])
def test_the_suite_finds_a_syncer_that_does_not(kind: type[DirectorySyncer], tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        check_syncer(kind(), str(tmp_path / "remote"))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_back_end_around_a_syncer_conforms(check: Check, tmp_path: Path) -> None:
    (tmp_path / "remote").mkdir()
    check(SyncerBackend(DirectorySyncer(), str(tmp_path / "remote")))


def test_what_is_no_syncer_is_refused() -> None:
    class Half:
        def sync_up(self, local_dir: str, remote_dir: str) -> bool:
            return True

    with pytest.raises(InvalidSettingError, match="no sync_down and no delete"):
        SyncerBackend(Half(), "place")  # type: ignore[arg-type]


def test_a_syncer_that_does_all_at_once_needs_no_wait(tmp_path: Path) -> None:
    """Ray asks for three methods only."""

    class Three(Syncer):
        def sync_up(self, local_dir: str, remote_dir: str, exclude: list[str] | None = None) -> bool:
            shutil.copytree(local_dir, remote_dir, dirs_exist_ok=True)
            return True

        def sync_down(self, remote_dir: str, local_dir: str, exclude: list[str] | None = None) -> bool:
            return self.sync_up(remote_dir, local_dir)

        def delete(self, remote_dir: str) -> bool:
            shutil.rmtree(remote_dir)
            return True

    backend = SyncerBackend(Three(), str(tmp_path / "remote"))
    backend.check()
    backend.put("a/b", b"b")
    assert backend.read("a/b") == b"b"
    backend.delete_tree("a")
    assert not backend.exists("a/b")


def test_a_failure_in_the_background_is_the_back_ends_failure(tmp_path: Path) -> None:
    class Broken(DirectorySyncer):
        def _copy(self, source: str, target: str, exclude: list[str] | None) -> None:
            raise ConnectionError("reset")

    backend = SyncerBackend(Broken(), str(tmp_path))
    with pytest.raises(TransferError, match=r"sync_up.*Broken failed: ConnectionError\('reset'\)") as raised:
        backend.put("a", b"a")
    assert raised.value.transient


def test_one_that_nobody_waited_for_is_waited_for_first(tmp_path: Path) -> None:
    syncer = DirectorySyncer()
    (tmp_path / "user").mkdir()
    assert syncer.sync_up(str(tmp_path / "user"), str(tmp_path / "remote" / "user"))
    backend = SyncerBackend(syncer, str(tmp_path / "remote"))
    backend.put("a", b"a")
    assert backend.read("a") == b"a"


@pytest.mark.parametrize(("failures", "retries", "arrives"), [(0, 0, True), (2, 2, True), (3, 2, False), (1, 0, False)])
def test_d14_n_retries_are_n_and_one_attempts_and_the_last_is_awaited(
    failures: int, retries: int, arrives: bool, tmp_path: Path
) -> None:
    class Flaky(DirectorySyncer):
        def _copy(self, source: str, target: str, exclude: list[str] | None) -> None:
            if self.attempts <= failures:
                raise ConnectionError(f"attempt {self.attempts}")
            super()._copy(source, target, exclude)

    source = tmp_path / "source"
    source.mkdir()
    (source / "file").write_bytes(b"1")
    syncer = Flaky()
    syncer.sync_up(str(source), str(tmp_path / "remote"))
    if arrives:
        syncer.wait_or_retry(max_retries=retries, backoff_s=0)
        assert (tmp_path / "remote" / "file").read_bytes() == b"1", "the last attempt was awaited"
    else:
        with pytest.raises(TransferError, match=f"after {retries} retries.*attempt {retries + 1}"):
            syncer.wait_or_retry(max_retries=retries, backoff_s=0)
        assert not (tmp_path / "remote").exists()
    assert syncer.attempts == min(failures, retries) + 1
    with pytest.raises(InvalidSettingError):
        syncer.wait_or_retry(max_retries=-1)


def test_a_period_holds_back_what_is_not_needed(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    syncer = DirectorySyncer()
    up = lambda: syncer.sync_up_if_needed(str(tmp_path / "source"), str(tmp_path / "remote"))  # noqa: E731
    assert up() is True
    syncer.wait()
    assert up() is None, "the period is 300 s"
    syncer.reset()
    assert up() is True
    syncer.wait()
    assert syncer.sync_down_if_needed(str(tmp_path / "remote"), str(tmp_path / "target")) is True
    syncer.wait()
    assert syncer.attempts == 3
