"""Threads and processes that the system refuses: what is raised, and which limit is named."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from tests.listings import SCRIPTS
from trainables import starting
from trainables.errors import LimitError
from trainables.starting import limits, no_process, refused, signal_name, start, start_process, start_thread


def test_a_thread_runs_with_its_arguments_under_its_name() -> None:
    seen: list[object] = []

    thread = start_thread(lambda *given: seen.extend([*given, threading.current_thread().name]), name="x", args=(1, 2))

    thread.join(60)
    assert seen == [1, 2, "x"]
    assert thread.daemon


def test_a_thread_that_is_refused_is_an_error_that_names_it_and_is_remembered_by_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    before = threading.active_count()

    with pytest.raises(LimitError, match=r"no thread can be started \(upload\): .*Raise the limit") as told:
        start_thread(lambda: None, name="upload")

    assert isinstance(told.value.__cause__, RuntimeError)
    assert threading.active_count() == before


def test_a_thread_made_elsewhere_is_started_once_only() -> None:
    thread = threading.Thread(target=lambda: None)
    start(thread)
    thread.join(60)

    with pytest.raises(LimitError):
        start(thread)


def test_a_process_is_started_and_a_program_that_is_missing_is_no_limit() -> None:
    with start_process([sys.executable, "-c", "raise SystemExit(3)"], what="a test") as process:
        assert process.wait(60) == 3

    with pytest.raises(FileNotFoundError):
        start_process(["/no/such/program"], what="a test")


_FULL = SCRIPTS / "no_room_for_files.py"


def test_a_process_without_room_for_its_files_names_that_limit() -> None:
    done = subprocess.run([sys.executable, _FULL], capture_output=True, text=True, check=True, timeout=100)

    assert done.stdout.startswith(
        "no process can be started for trial 7: Too many open files; RLIMIT_NOFILE (ulimit -n) is "
    )
    assert done.stdout.endswith(": raise it")


@pytest.mark.parametrize("code", [errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE])
def test_what_the_system_has_no_more_of_is_a_refusal(code: int) -> None:
    assert refused(OSError(code, os.strerror(code)))
    assert not refused(OSError(errno.ENOENT, "no"))
    assert not refused(OSError("without a number"))


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, int, int]]]:
    found: list[tuple[str, int, int]] = []
    monkeypatch.setattr(starting, "_limits", lambda: iter(found))
    yield found


@pytest.mark.parametrize(
    ("held", "most", "near"),
    [(100, 100, True), (90, 100, True), (89, 100, False), (0, 2, True), (1, 4, False), (2, 4, True), (3, 3, True)],
)
def test_a_limit_is_named_alone_from_nine_tenths_or_two_below_it_on(
    counts: list[tuple[str, int, int]], held: int, most: int, near: bool
) -> None:
    counts += [("one", held, most), ("other", 0, 10**9)]

    assert limits() == f"{'one' if near else 'one; other'}. Raise the limit, or run fewer trials at once"


def test_without_any_limit_it_is_memory(counts: list[tuple[str, int, int]]) -> None:
    assert limits().startswith("the system has no memory for it. ")


def test_the_limits_of_this_machine_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (1, 1))

    told = str(no_process("a keeper"))

    assert f"RLIMIT_NPROC (ulimit -u) is 1, and user {os.getuid()} has " in told
    held = int(told.partition("has ")[2].partition(" ")[0])
    assert held >= threading.active_count()


def test_every_signal_has_a_name() -> None:
    assert [signal_name(number) for number in (1, 9, 34, 35, 63, 64)] == [
        "SIGHUP", "SIGKILL", "SIGRTMIN", "SIGRTMIN+1", "SIGRTMIN+29", "SIGRTMAX",
    ]  # fmt: skip
    assert all(signal_name(number) for number in signal.valid_signals())
