"""The deleter: slow, failing and hanging deletes are nobody else's trouble; the end says what it waits for (F34)."""

from __future__ import annotations

import errno
import logging
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from trainables.store import delete as store_delete
from trainables.wire import CheckpointRef
from tuner.retention import Deleter
from tuner.retention import deleter as deleters


def ref(trial: str, index: int = 1) -> CheckpointRef:
    return CheckpointRef(trial, f"checkpoint_{index:06d}", 1, 1, index, index)


def at_once(attempt: int) -> float:
    return 0.0


def checkpoint(directory: Path, trial: str, index: int = 1) -> Path:
    path = directory / trial / f"checkpoint_{index:06d}"
    path.mkdir(parents=True)
    (path / "weights").write_bytes(b"w")
    (path / ".manifest.json").write_text("{}")
    return path


class Failing:
    """The real delete, behind as many failures as asked for."""

    def __init__(self, number: int, times: int) -> None:
        self.number, self.left, self.calls = number, times, 0

    def __call__(self, path: Path) -> bool:
        self.calls += 1
        if self.left:
            self.left -= 1
            raise OSError(self.number, os.strerror(self.number), str(path))
        return store_delete.delete(path)


@pytest.fixture(params=[False, True], ids=["threads", "inline"])
def inline(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def test_what_is_submitted_is_gone_and_told(tmp_path: Path, inline: bool) -> None:
    deleter = Deleter(inline=inline)
    paths = [checkpoint(tmp_path, "t", index) for index in (1, 2, 3)]
    for index, path in enumerate(paths, start=1):
        deleter.submit(ref("t", index), path)
    assert deleter.drain(30)
    assert [fact.ref for fact in deleter.finished()] == [ref("t", index) for index in (1, 2, 3)]
    assert os.listdir(tmp_path / "t") == []
    assert deleter.failures() == []
    deleter.stop()


def test_missing_is_no_error(tmp_path: Path, inline: bool) -> None:
    deleter = Deleter(inline=inline)
    deleter.submit(ref("t"), tmp_path / "nothing" / "here")
    assert deleter.drain(30)
    assert [fact.ref for fact in deleter.finished()] == [ref("t")]
    assert deleter.failures() == []
    deleter.stop()


def test_f34_enoent_from_the_disk_is_no_error(tmp_path: Path, inline: bool) -> None:
    failing = Failing(errno.ENOENT, times=1)
    deleter = Deleter(failing, inline=inline)
    deleter.submit(ref("t"), tmp_path / "x")
    assert deleter.drain(30)
    assert failing.calls == 1
    assert deleter.failures() == []
    deleter.stop()


@pytest.mark.parametrize("number", [errno.EBUSY, errno.ESTALE, errno.EIO])
def test_f34_a_failing_delete_is_tried_again_until_it_works(tmp_path: Path, number: int) -> None:
    path = checkpoint(tmp_path, "t")
    failing = Failing(number, times=3)
    pauses: list[int] = []

    def pause(attempt: int) -> float:
        pauses.append(attempt)
        return 0.0

    deleter = Deleter(failing, backoff=pause)
    deleter.submit(ref("t"), path)
    assert deleter.drain(30)
    assert not path.exists()
    assert (failing.calls, pauses) == (4, [1, 2, 3])
    assert deleter.failures() == []
    deleter.stop()


@pytest.mark.parametrize("number", [errno.EBUSY, errno.ESTALE])
def test_f34_what_never_works_is_listed_with_path_reason_and_attempts(tmp_path: Path, number: int) -> None:
    path, other = checkpoint(tmp_path, "t"), checkpoint(tmp_path, "t", 2)
    deleter = Deleter(
        lambda at: Failing(number, 99)(at) if at == path else store_delete.delete(at),
        attempts=3,
        backoff=at_once,
    )
    deleter.submit(ref("t"), path)
    deleter.submit(ref("t", 2), other)
    assert deleter.drain(30)
    assert path.exists() and not other.exists()  # the next one of the trial had its turn
    (failure,) = deleter.failures()
    assert failure.ref == ref("t")
    assert str(path) in str(failure) and os.strerror(number) in str(failure) and "attempts" in str(failure)
    deleter.stop()


def test_f34_what_was_given_up_has_one_more_chance_at_the_end(tmp_path: Path, inline: bool) -> None:
    path = checkpoint(tmp_path, "t")
    failing = Failing(errno.EBUSY, times=1 if inline else 2)
    deleter = Deleter(failing, inline=inline, attempts=2, backoff=at_once)
    deleter.submit(ref("t"), path)
    if not inline:
        with deleter._change:
            assert deleter._change.wait_for(lambda: bool(deleter._failed), 30)
    assert len(deleter.failures()) == 1 and path.exists()
    assert deleter.drain(30)
    assert deleter.failures() == [] and not path.exists()
    deleter.stop()


def test_f34_a_slow_delete_holds_up_neither_the_caller_nor_other_trials(tmp_path: Path) -> None:
    slow, quick = checkpoint(tmp_path, "slow"), checkpoint(tmp_path, "quick")
    entered, release = threading.Event(), threading.Event()
    woken = threading.Event()

    def delete(path: Path) -> bool:
        if path == slow:
            entered.set()
            assert release.wait(60)
        return store_delete.delete(path)

    deleter = Deleter(delete, wake=woken.set)
    deleter.submit(ref("slow"), slow)  # returns although the delete does not
    assert entered.wait(30)
    deleter.submit(ref("quick"), quick)
    assert woken.wait(30)
    assert [fact.ref.trial_id for fact in deleter.finished()] == ["quick"]
    assert slow.exists() and not quick.exists()
    assert deleter.pending == 1
    assert not deleter.drain(0)
    assert deleter.failures() == []
    (left,) = deleter.failures(unfinished=True)
    assert left.path == slow and "not done yet" in left.reason
    release.set()
    assert deleter.drain(30)
    assert [fact.ref.trial_id for fact in deleter.finished()] == ["slow"]
    assert not slow.exists()
    deleter.stop()


def test_f34_a_long_pause_is_cut_short_at_the_end(tmp_path: Path) -> None:
    path = checkpoint(tmp_path, "t")
    failed = threading.Event()

    def pause(attempt: int) -> float:
        failed.set()
        return 3600.0

    deleter = Deleter(Failing(errno.EBUSY, times=1), backoff=pause)
    deleter.submit(ref("t"), path)
    assert failed.wait(30)
    assert deleter.drain(30)
    assert not path.exists()
    deleter.stop()


def test_deletions_of_one_trial_are_done_in_order(tmp_path: Path) -> None:
    order: list[Path] = []
    fail_once = Failing(errno.EBUSY, times=1)

    def delete(path: Path) -> bool:
        done = fail_once(path)
        order.append(path)
        return done

    deleter = Deleter(delete, threads=4, backoff=at_once)
    paths = [tmp_path / str(index) for index in range(20)]
    for index, path in enumerate(paths):
        deleter.submit(ref("t", index), path)
    assert deleter.drain(30)
    assert order == paths
    deleter.stop()


def test_what_is_pinned_waits_without_holding_up_others(tmp_path: Path, inline: bool) -> None:
    pinned, other, third = (checkpoint(tmp_path, "t", index) for index in (1, 2, 3))
    pins = {pinned}
    deleter = Deleter(inline=inline, is_pinned=lambda path: path in pins)
    deleter.submit(ref("t", 1), pinned)
    deleter.submit(ref("t", 2), other)
    assert deleter.drain(30)
    assert pinned.exists() and not other.exists()
    (failure,) = deleter.failures()
    assert failure.path == pinned and "in use" in str(failure)
    pins.clear()
    deleter.submit(ref("t", 3), third)  # looks again at what was pinned
    assert deleter.drain(30)
    assert not pinned.exists() and deleter.failures() == []
    deleter.stop()


def test_what_is_open_is_left_alone_until_it_is_closed(tmp_path: Path, inline: bool) -> None:
    from trainables.store.delete import pins

    path = checkpoint(tmp_path, "t")
    deleter = Deleter(inline=inline)
    with pins.hold(path):
        deleter.submit(ref("t"), path)
        assert deleter.drain(30)
        assert (path / "weights").exists()
        assert len(deleter.failures()) == 1
    assert deleter.drain(30)
    assert not path.exists() and deleter.failures() == []
    deleter.stop()


def test_an_error_that_is_not_the_disks_is_not_tried_again(tmp_path: Path) -> None:
    calls = []

    def delete(path: Path) -> bool:
        calls.append(path)
        raise RuntimeError("another driver owns this")

    deleter = Deleter(delete, backoff=at_once)
    deleter.submit(ref("t"), tmp_path / "x")
    with deleter._change:
        assert deleter._change.wait_for(lambda: bool(deleter._failed), 30)
    assert len(calls) == 1
    assert "another driver owns this" in str(deleter.failures()[0])
    deleter.stop()


def test_after_close_nothing_is_started(tmp_path: Path, inline: bool) -> None:
    deleter = Deleter(inline=inline)
    deleter.stop()
    with pytest.raises(RuntimeError, match="closed"):
        deleter.submit(ref("t"), tmp_path / "x")
    assert deleter.drain(0)


def test_many_trials_at_once_are_all_deleted(tmp_path: Path) -> None:
    deleter = Deleter(threads=3, backoff=at_once)
    refs = [ref(f"t{number % 7}", number) for number in range(100)]
    for number, each in enumerate(refs):
        deleter.submit(each, checkpoint(tmp_path, f"t{number % 7}", number))
    assert deleter.drain(60)
    told = [fact.ref for fact in deleter.finished()]
    assert len(told) == 100
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    for trial in range(7):
        assert [each for each in told if each.trial_id == f"t{trial}"] == refs[trial::7]
    deleter.stop()


def test_f34_a_patient_wait_lasts_while_deletions_end(tmp_path: Path) -> None:
    """A trial that saved quickly leaves many: they are all done when the run returns."""
    pause, done = threading.Event(), []

    def slowly(path: Path) -> bool:
        pause.wait(0.1)
        done.append(path)
        return True

    deleter = Deleter(slowly)
    for index in range(30):
        deleter.submit(ref("t", index), tmp_path / str(index))
    assert not deleter.drain(0.0)
    assert deleter.drain(2.0, patient=True)
    assert len(done) == 30
    deleter.stop()


def close_while(caplog: pytest.LogCaptureFixture, delete: Any, *, timeout: float) -> list[str]:
    caplog.set_level(logging.WARNING)
    deleter = Deleter(delete)
    for number in (1, 2):
        deleter.submit(ref("t1", number), Path(f"/results/t1/checkpoint_{number:06d}"))
    deleter.close(timeout)
    return [record.getMessage() for record in caplog.records]


def test_f34_a_deletion_that_hangs_is_named_and_waited_for_no_longer_than_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    over = threading.Event()
    try:
        said = close_while(caplog, lambda path: over.wait(), timeout=1.0)
        assert not over.is_set()
    finally:
        over.set()
    assert said[0] == "waiting up to 1 s for 2 deletions, /results/t1/checkpoint_000001 first"
    assert [line for line in said if line.startswith("could not delete /results/t1/checkpoint_00000")] == said[1:]
    assert len(said) == 3 and "the next start tries again" in said[1]


def test_f34_a_deletion_that_keeps_failing_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(path: Path) -> bool:
        raise OSError(16, "Device or resource busy")

    said = close_while(caplog, refuse, timeout=0.8)
    (line,) = [line for line in said if "busy" in line]
    assert line.startswith("could not delete /results/t1/checkpoint_000001: ")


def test_deletions_that_are_done_in_time_need_no_word(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(deleters, "QUIET_S", 60.0)
    assert close_while(caplog, lambda path: True, timeout=60.0) == []
