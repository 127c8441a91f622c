"""Writing a journal: compaction, what is durable when, power cuts, full disks."""

from __future__ import annotations

import errno
import json
import os
import random
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tuner.experiment.harness import Writers, body, numbers, write
from trainables.store import fs
from tuner.clock import VirtualClock
from tuner.error import OwnedElsewhereError, StorageFullError
from tuner.experiment import journal_format, journal_writer, reserve
from tuner.experiment.journal import JournalWriter, read_journal
from tuner.experiment.paths import ExperimentPaths

# --- compaction ---------------------------------------------------------------------------------------


def test_a_snapshot_takes_the_place_of_segments_after_the_grace(paths: ExperimentPaths, writers: Writers) -> None:
    writer = writers()
    write(writer, 1, 2)
    assert writer.compact(b"[1,2]", grace_s=60)
    assert paths.segment(1, 1).exists(), "a reader may just be about to open it"
    write(writer, 3)
    assert numbers(read_journal(paths)) == [1, 2, 3]
    writers.clock.advance(59)
    writer.compact(b"[1,2,3]", grace_s=60)
    assert paths.segment(1, 1).exists()
    writers.clock.advance(1)
    write(writer, 4)
    writer.compact(b"[1,2,3,4]", grace_s=60)
    assert not paths.segment(1, 1).exists()
    writers.clock.advance(100)
    writer.close()
    assert sorted(os.listdir(paths.journal)) == ["history", "snapshot-000001-00000005.json"]
    assert numbers(read_journal(paths)) == [1, 2, 3, 4]
    assert read_journal(paths).last_seq == 5


def test_should_compact_when_as_much_has_followed_as_the_snapshot_holds(
    paths: ExperimentPaths, writers: Writers
) -> None:
    writer = writers()
    size, count = 0, 0
    while not writer.should_compact():
        write(writer, 0) if count == 0 else writer.append(body(0, width=50_000))
        writer.flush()
        count += 1
    size = writer.bytes_since_snapshot
    assert 1_000_000 < size < 1_200_000
    writer.compact(json.dumps([0] * 1_000_000).encode())
    assert not writer.should_compact() and writer.bytes_since_snapshot == 0
    while not writer.should_compact():
        writer.append(body(0, width=50_000))
        writer.flush()
    assert writer.bytes_since_snapshot > 3_000_000
    assert writers(2).should_compact(), "the next life knows what lies there"


def test_should_compact_when_many_small_segments_have_followed(paths: ExperimentPaths, writers: Writers) -> None:
    """A replica has one sealed for each push: after an hour there would be thousands."""

    def sealed_until_due(writer: JournalWriter) -> int:
        count = 0
        while not writer.should_compact():
            write(writer, count)
            assert writer.seal() and writer.seal(), "an empty one is none"
            count += 1
        return count

    writer = writers()
    assert sealed_until_due(writer) == journal_writer.COMPACT_SEGMENTS + 1
    writer.compact(b"[]")
    assert not writer.should_compact()
    larger = b"[%s]" % (b" " * 10 * journal_writer.SEGMENT_WORTH)
    writer.compact(larger)
    assert sealed_until_due(writer) == journal_writer.COMPACT_SEGMENTS + 11, "a large snapshot is written less often"
    writer.close()
    assert writers(2).should_compact(), "the next life knows what lies there"


def test_nothing_is_removed_or_replaced_once_somebody_else_owns_it(paths: ExperimentPaths, writers: Writers) -> None:
    owned = True

    def guard() -> None:
        if not owned:
            raise OwnedElsewhereError("taken over")

    writer = writers(guard=guard)
    write(writer, 1)
    writer.compact(b"[1]")
    write(writer, 2)
    owned = False
    before = sorted(os.listdir(paths.journal))
    writers.clock.advance(1000)
    with pytest.raises(OwnedElsewhereError):
        writer.compact(b"[1,2]", grace_s=0)
    writer.close()
    assert {name for name in before if paths.journal.joinpath(name).stat().st_size} <= set(os.listdir(paths.journal))


# --- durability ---------------------------------------------------------------------------------------


class Power:
    """Knows what of a directory is durable, and cuts the power: what was not fsynced is gone."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: dict[int, Path] = {}
        self.content: dict[Path, int] = {}
        self.entries: dict[Path, set[str]] = {}
        self.lock = threading.Lock()
        for name in ("open_append", "create", "fsync", "fdatasync", "fsync_file", "fsync_dir", "rename"):
            monkeypatch.setattr(fs, name, self._wrap(name, getattr(fs, name)))

    def _wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            size = os.fstat(args[0]).st_size if name in ("fsync", "fdatasync") else 0
            result = real(*args, **more)
            with self.lock:
                if name in ("open_append", "create"):
                    self.names[result] = Path(args[0])
                elif name in ("fsync", "fdatasync"):
                    self.content[self.names[args[0]]] = size
                elif name == "fsync_file":
                    self.content[Path(args[0])] = os.stat(args[0]).st_size
                elif name == "rename":
                    self.content[Path(args[1])] = self.content.pop(Path(args[0]), 0)
                else:
                    self.entries[Path(args[0])] = set(os.listdir(args[0]))
            return result

        return call

    def cut(self, paths: ExperimentPaths, target: Path, *, torn: random.Random | None = None) -> ExperimentPaths:
        """A copy of the journal as it would be found; with `torn` a random part of the rest made it to the disk."""
        found = ExperimentPaths(target)
        found.journal.mkdir(parents=True)
        for name in filter("history".__ne__, os.listdir(paths.journal)):
            path = paths.journal / name
            if name not in self.entries.get(paths.journal, ()) and not (torn and torn.random() < 0.5):
                continue
            data, safe = path.read_bytes(), self.content.get(path, 0)
            keep = safe if torn is None else torn.randint(safe, len(data))
            (found.journal / name).write_bytes(data[:keep])
        return found


def test_t14_after_a_power_cut_at_any_point_the_journal_holds_what_was_durable(
    paths: ExperimentPaths, writers: Writers, small_segments: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    power, dice = Power(monkeypatch), random.Random(14)
    cuts = 0
    for generation in (1, 2, 3):
        writer = writers(generation)
        for x in range(40):
            writer.append(body(generation * 100 + x))
            if dice.random() < 0.7:
                writer.flush()
            if dice.random() < 0.3:
                writer.request_sync()
            if dice.random() < 0.05:
                writer.compact(json.dumps(numbers(read_journal(paths)) + pending(writer)).encode(), grace_s=0)
            for torn in (None, dice):
                cuts += 1
                found = power.cut(paths, tmp_path / f"cut{cuts}", torn=torn)
                contents = read_journal(found)
                assert contents.last_seq >= writer.durable_seq or contents.generation < generation
                if contents.generation == generation:
                    expected = [100 * g + i for g in range(1, generation) for i in range(40)]
                    expected += [100 * generation + i for i in range(40)]
                    assert numbers(contents) == expected[: len(numbers(contents))]
                else:
                    assert writer.durable_seq <= contents.last_seq, "its own first fact was not durable yet"
                shutil.rmtree(found.root)
        writer.flush()  # and then it is killed: the next life takes over from the page cache


def pending(writer: JournalWriter) -> list[int]:
    facts = [journal_format.parse_lines(line)[0][0][1] for line in writer._pending]
    return [json.loads(fact)["x"] for fact in facts]


def test_t14_what_is_taken_over_is_durable_before_anything_builds_on_it(
    paths: ExperimentPaths, writers: Writers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    power = Power(monkeypatch)
    write(writers(1), 1, 2)  # never synced: it was killed, and lies in the page cache
    heir = writers(2)
    heir.sync_now()
    assert numbers(read_journal(power.cut(paths, tmp_path / "cut"))) == [1, 2]


def test_a_sync_is_one_for_all_that_waits_and_asking_never_blocks(
    paths: ExperimentPaths, writers: Writers, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go, told = threading.Semaphore(0), threading.Semaphore(0)
    calls = []
    real = fs.fdatasync

    def slow(fd: int) -> None:
        calls.append(fd)
        may_go.acquire()
        real(fd)

    writer = writers(sync="thread", on_durable=told.release)
    monkeypatch.setattr(fs, "fdatasync", slow)
    for x in range(100):
        write(writer, x)
        writer.request_sync()
    assert writer.durable_seq == 0
    may_go.release(2)
    told.acquire()
    if writer.durable_seq < writer.last_seq:
        told.acquire()
    assert writer.durable_seq == writer.last_seq == 101
    assert len(calls) <= 2
    monkeypatch.setattr(fs, "fdatasync", real)


def _watch(monkeypatch: pytest.MonkeyPatch, name: str, told: Callable[[str], None]) -> None:
    real = getattr(fs, name)
    monkeypatch.setattr(fs, name, lambda *given, **named: (told(name), real(*given, **named))[1])


def test_what_is_ready_to_be_sealed_is_sealed_without_waiting_for_the_disk(
    paths: ExperimentPaths, writers: Writers, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = threading.Semaphore(0)
    waits: list[str] = []
    for name in ("fsync", "fdatasync", "fsync_file", "fsync_dir"):
        _watch(monkeypatch, name, lambda name: waits.append(threading.current_thread().name))
    writer = writers(sync="thread", on_durable=told.release)
    for number in range(3):
        write(writer, number)
        while not writer.ready_to_seal():
            told.acquire()
        waits_before = len(waits)
        assert writer.seal()
        assert waits[waits_before:] == [] and waits[-1] == "journal-sync"
    assert paths.segment(1, 3).exists() and writer.durable_seq == writer.last_seq
    assert numbers(read_journal(paths)) == [0, 1, 2]


def test_a_segment_is_durable_only_with_its_name(
    paths: ExperimentPaths, writers: Writers, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = writers()
    writer.sync_now()
    writer.seal()
    calls: list[tuple[str, int]] = []
    for name in ("fdatasync", "fsync_dir"):
        _watch(monkeypatch, name, lambda name: calls.append((name, writer.durable_seq)))
    write(writer, 1)
    before = writer.durable_seq
    writer.sync_now()
    assert calls == [("fdatasync", before), ("fsync_dir", before)] and writer.durable_seq == before + 1
    write(writer, 2)
    writer.sync_now()
    assert calls[2:] == [("fdatasync", before + 1)], "a name is made durable once"


def test_a_failed_sync_surfaces_at_the_next_flush_with_its_cause(
    paths: ExperimentPaths, writers: Writers, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = threading.Semaphore(0)
    writer = writers(sync="thread", on_durable=told.release)

    def broken(fd: int) -> None:
        raise OSError(errno.EIO, "I/O error")

    with monkeypatch.context() as patch:
        patch.setattr(fs, "fdatasync", broken)
        writer.request_sync()
        told.acquire()
    with pytest.raises(StorageFullError, match="could not be made durable") as raised:
        writer.flush()
    assert isinstance(raised.value.__cause__, OSError)
    assert writer.durable_seq == 0
    with pytest.raises(StorageFullError):
        writer.close()


def test_inline_sync_is_done_on_return(paths: ExperimentPaths, writers: Writers) -> None:
    writer = writers(sync="inline")
    write(writer, 1)
    writer.request_sync()
    assert writer.durable_seq == writer.last_seq == 2
    assert not [thread for thread in threading.enumerate() if thread.name == "journal-sync"]


@pytest.mark.parametrize("before", [10, 3000])
def test_a_fact_costs_one_write_however_many_there_are(
    before: int, paths: ExperimentPaths, writers: Writers, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = writers()
    for x in range(before):
        writer.append(body(x))
    writer.flush()
    calls: list[str] = []
    for name in dir(fs):
        if callable(real := getattr(fs, name)) and getattr(real, "__module__", "") == fs.__name__:
            monkeypatch.setattr(fs, name, lambda *a, name=name, real=real, **k: (calls.append(name), real(*a, **k))[1])
    for x in range(5):
        writer.append(body(x))
    writer.flush()
    assert calls == ["write"]


# --- full disks ---------------------------------------------------------------------------------------


class FailingWrites:
    """Writes half of what it is given, then fails, as long as it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, code: int = errno.ENOSPC) -> None:
        self.failing, self.code, self._real = False, code, fs.write
        monkeypatch.setattr(fs, "write", self)

    def __call__(self, fd: int, data: bytes) -> None:
        if self.failing:
            self._real(fd, data[: len(data) // 2])
            raise OSError(self.code, os.strerror(self.code))
        self._real(fd, data)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("cut", ["the torn part is cut back", "cutting back fails too"])
def test_f30_a_write_that_fails_half_way_loses_and_repeats_nothing(
    code: int, cut: str, paths: ExperimentPaths, writers: Writers, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = FailingWrites(monkeypatch, code)
    writer = writers()
    write(writer, 1)
    failing.failing = True
    if cut.startswith("cutting"):
        monkeypatch.setattr(fs, "truncate", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "I/O error")))
    for x in (2, 3, 4):
        writer.append(body(x))
        with pytest.raises(StorageFullError, match=rf"cannot write to {re.escape(str(paths.journal))}, \d+ bytes free"):
            writer.flush()
    assert numbers(read_journal(paths))[:1] == [1]
    failing.failing = False
    write(writer, 5)
    assert numbers(read_journal(paths)) == [1, 2, 3, 4, 5]
    write(writers(2), 6)
    assert numbers(read_journal(paths)) == [1, 2, 3, 4, 5, 6]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk of its own."""
    mount = tmp_path / "disk"
    mount.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8M", "tmpfs", str(mount)], capture_output=True)
    if done.returncode:
        pytest.skip(f"cannot mount: {done.stderr.decode()}")
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=True)


def fill(mount: Path) -> Path:
    """Take the disk to the last byte."""
    ballast = mount / "ballast"
    with open(ballast, "ab", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            try:
                while file.write(b"\1" * size):
                    pass
            except OSError as error:
                assert error.errno == errno.ENOSPC
    return ballast


@pytest.mark.root
@pytest.mark.parametrize("can_reserve", [True, False], ids=["reserved blocks", "spare file"])
def test_t17_with_the_disk_full_vital_facts_are_written_still(
    can_reserve: bool, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not can_reserve:
        monkeypatch.setattr(reserve, "_allocate", lambda *_: False)
        monkeypatch.setattr(reserve.ctypes, "get_errno", lambda: errno.EOPNOTSUPP)
    paths = ExperimentPaths(disk / "exp")
    writer = JournalWriter(paths, 1, next_seq=1, clock=VirtualClock())
    write(writer, 1)
    ballast = fill(disk)
    if can_reserve:
        for x in range(2, 2000):  # what was reserved a step ahead is used up first
            writer.append(body(x, width=1000))
            try:
                writer.flush()
            except StorageFullError as error:
                assert error.errno == errno.ENOSPC and "0 bytes free" in str(error)
                break
        else:
            pytest.fail("the disk was never full")
    else:
        writer.append(body(2, width=50_000))
        with pytest.raises(StorageFullError):
            writer.flush()
    last = writer.last_seq
    for x in range(last + 1, last + 201):
        writer.append(body(x), vital=True)
        writer.flush()
    writer.sync_now()
    assert numbers(read_journal(paths)) == list(range(1, last + 201)), "and what came before them: order is kept"
    writer.append(body(last + 201))
    with pytest.raises(StorageFullError):
        writer.flush()
    assert not writer.compact(b"[]") if can_reserve and not writer._pending else True
    ballast.unlink()
    writer.append(body(last + 202))
    writer.flush()
    writer.close()
    assert numbers(read_journal(paths)) == list(range(1, last + 203))


@pytest.mark.root
def test_t17_a_life_on_a_full_disk_inherits_the_reserve_of_the_one_before(disk: Path) -> None:
    paths = ExperimentPaths(disk / "exp")
    first = JournalWriter(paths, 1, next_seq=1, clock=VirtualClock())
    write(first, 1)
    first._segment.abandon()  # killed
    fill(disk)
    heir = JournalWriter(paths, 2, next_seq=2, clock=VirtualClock())
    heir.append(b'{"kind":"generation","generation":2,"parent":1,"parent_seq":1}')
    heir.append(body(2), vital=True)
    heir.flush()
    assert numbers(read_journal(paths)) == [1, 2]
    heir.close()


def test_f49_the_journal_needs_no_locks_and_no_database(
    paths: ExperimentPaths, writers: Writers, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    for name in ("flock", "lockf", "fcntl"):
        monkeypatch.setattr(fcntl, name, refuse)
    writer = writers()
    write(writer, 1)
    writer.compact(b"[1]", grace_s=0)
    write(writer, 2)
    with open(paths.segment(1, 2), "ab") as file:
        file.write(b'{"n":4,"c":"')
    assert numbers(read_journal(paths)) == [1, 2]
    write(writers(2), 3)
    assert numbers(read_journal(paths)) == [1, 2, 3]


def test_t12_no_clock_orders_the_facts(paths: ExperimentPaths) -> None:
    for generation, start in enumerate([2e9, 1e9, 3e9], start=1):
        writers = Writers(paths)
        writers.clock = VirtualClock(start)
        write(writer := writers(generation), generation)
        writer.compact(json.dumps(list(range(1, generation + 1))).encode(), grace_s=5)
        for name in os.listdir(paths.journal):
            os.utime(paths.journal / name, (3e9 - start, 3e9 - start))
        writer.close()
        assert numbers(read_journal(paths)) == list(range(1, generation + 1))


def test_a_sealed_segment_is_whole_and_durable(paths: ExperimentPaths, writers: Writers) -> None:
    writer = writers()
    write(writer, 1)
    assert writer.seal() and writer.seal()
    assert writer.durable_seq == 2
    write(writer, 2)
    assert paths.segment(1, 1).read_bytes().count(b"\n") == 2
    assert numbers(read_journal(paths)) == [1, 2]
    status = os.stat(paths.segment(1, 1))
    assert status.st_blocks * 512 <= 65536, "what was reserved behind it is given back"


def test_closing_twice_is_no_error_and_leaves_no_empty_file(paths: ExperimentPaths, writers: Writers) -> None:
    writer = writers(sync="thread")
    write(writer, 1)
    writer.seal()
    writer.close()
    writer.close()
    assert os.listdir(paths.journal) == ["000001-000001.jsonl"]


def test_a_fact_is_one_line(paths: ExperimentPaths, writers: Writers) -> None:
    with pytest.raises(ValueError, match="one line"):
        writers().append(b'{"a":\n1}')


def test_what_is_to_be_there_before_the_facts_is_asked_for_before_each_write(paths: ExperimentPaths) -> None:
    seen: list[list[int]] = []
    writer = JournalWriter(
        paths,
        1,
        next_seq=1,
        clock=VirtualClock(),
        sync="inline",
        before=lambda: seen.append(numbers(read_journal(paths))),
    )
    for number in (1, 2):
        writer.append(body(number))
        writer.flush()
    writer.append(body(3))
    writer.sync_now()
    writer.append(body(4))
    writer.close()
    assert seen == [[], [1], [1, 2], [1, 2, 3]]
    assert numbers(read_journal(paths)) == [1, 2, 3, 4]
