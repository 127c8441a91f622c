"""Reading a journal: torn tails, stale owners, damage, and readers beside a writer that compacts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.tuner.experiment.harness import Writers, body, numbers, write
from trainables.store import fs
from tuner.clock import SystemClock
from tuner.error import ExperimentDamagedError, ExperimentDivergedError
from tuner.experiment.journal import JournalContents, read_journal
from tuner.experiment.lock import claim
from tuner.experiment.paths import ExperimentPaths


def test_what_was_appended_reads_back_in_order(paths: ExperimentPaths, writers: Writers) -> None:
    writer = writers()
    assert [writer.append(body(1)), writer.append(body(2))] == [2, 3]
    assert numbers(read_journal(paths)) == [], "in memory until it is flushed"
    writer.flush()
    contents = read_journal(paths)
    assert (numbers(contents), contents.last_seq, contents.generation) == ([1, 2], 3, 1)
    assert [seq for seq, _ in contents.bodies] == [1, 2, 3]
    assert contents.notes == []
    lines = paths.segment(1, 1).read_bytes().splitlines()
    assert [json.loads(line)["n"] for line in lines] == [1, 2, 3], "jq reads a journal"


def test_a_journal_that_is_not_there_is_empty(paths: ExperimentPaths) -> None:
    assert read_journal(paths) == JournalContents()
    assert not paths.root.exists(), "readers never write"


def test_segments_are_sealed_by_size_and_read_on(
    paths: ExperimentPaths, writers: Writers, small_segments: None
) -> None:
    writer = writers()
    for x in range(100):
        write(writer, x)
    assert numbers(read_journal(paths)) == list(range(100))
    assert len(os.listdir(paths.journal)) > 3
    assert all(fs.size(paths.journal / name) <= 2000 for name in os.listdir(paths.journal))


def test_d16_a_tail_torn_at_any_byte_is_cut_and_reported_and_the_rest_reads(
    paths: ExperimentPaths, writers: Writers, tmp_path: Path
) -> None:
    write(writers(), 1, 2, 3)
    whole = paths.segment(1, 1).read_bytes()
    lines = whole.splitlines(keepends=True)
    for size in range(len(whole) - len(lines[-1]) - len(lines[-2]), len(whole)):
        copy = ExperimentPaths(tmp_path / str(size))
        copy.journal.mkdir(parents=True)
        copy.segment(1, 1).write_bytes(whole[:size])
        contents = read_journal(copy)
        left = [1, 2][: whole[:size].count(b"\n") - 1]
        assert numbers(contents) == left
        torn = not whole[:size].endswith(b"\n")
        assert len(contents.notes) == torn and (not torn or "000001-000001.jsonl: a torn line" in contents.notes[0])

        after = Writers(copy)
        write(next_life := after(2), 7)
        next_life.close()
        assert copy.segment(1, 1).read_bytes() == whole[:size], "nothing is appended behind it"
        assert numbers(read_journal(copy)) == [*left, 7]


@pytest.mark.parametrize(
    "garbage", [b"\0" * 50, b"\0" * 49 + b"\n", b'{"n":5,"c":"00000000","f":{}}\n', b"\n", b"}\n{\n"]
)
def test_d16_garbage_at_the_end_is_cut(paths: ExperimentPaths, writers: Writers, garbage: bytes) -> None:
    write(writers(), 1, 2)
    with open(paths.segment(1, 1), "ab") as file:
        file.write(garbage)
    contents = read_journal(paths)
    assert numbers(contents) == [1, 2]
    assert len(contents.notes) == 1
    write(writers(2), 3)
    assert numbers(read_journal(paths)) == [1, 2, 3]


def test_a_generation_goes_on_where_its_parent_ended(paths: ExperimentPaths, writers: Writers) -> None:
    for generation in (1, 2, 5):
        write(writers(generation), generation)
    contents = read_journal(paths)
    assert numbers(contents) == [1, 2, 5]
    assert [(link.generation, link.last_seq) for link in contents.chain] == [(1, 2), (2, 4), (5, 6)]


def test_what_a_stale_owner_writes_after_it_was_taken_over_is_void(paths: ExperimentPaths, writers: Writers) -> None:
    write(stale := writers(1), 1)
    write(heir := writers(2), 2)
    write(stale, 100, 101)
    write(heir, 3)
    contents = read_journal(paths)
    assert numbers(contents) == [1, 2, 3]
    assert contents.notes == ["generation 1 wrote 2 facts after it had been taken over: they are set aside"]


def test_a_generation_without_facts_is_passed_over_and_void_when_it_wakes(
    paths: ExperimentPaths, writers: Writers
) -> None:
    write(writers(1), 1)
    sleeper = writers(2, head=False)
    write(writers(3), 3)
    sleeper.append(b'{"kind":"generation","generation":2,"parent":1,"parent_seq":2}')
    write(sleeper, 2)
    contents = read_journal(paths)
    assert numbers(contents) == [1, 3]
    assert contents.notes == ["generation 2 wrote 2 facts after it had been taken over: they are set aside"]


def test_a_snapshot_of_a_stale_owner_is_set_aside(paths: ExperimentPaths, writers: Writers) -> None:
    write(stale := writers(1), 1)
    write(writers(2), 2)
    write(stale, 100)
    stale.compact(b"[1,100]")
    contents = read_journal(paths)
    assert numbers(contents) == [1, 2]
    assert any("snapshot-000001-00000003.json" in note for note in contents.notes)


def test_facts_that_later_ones_build_on_are_missed_by_name(paths: ExperimentPaths, writers: Writers) -> None:
    write(writers(1), 1, 2)
    write(writers(2), 3)
    whole = paths.segment(1, 1).read_bytes()
    paths.segment(1, 1).write_bytes(whole[:-5])
    with pytest.raises(ExperimentDamagedError, match="facts 3 to 3 of generation 1 are missing"):
        read_journal(paths)
    paths.segment(1, 1).unlink()
    with pytest.raises(ExperimentDamagedError, match="facts 1 to 3 of generation 1 are missing"):
        read_journal(paths)


def test_a_missing_segment_is_not_passed_over(paths: ExperimentPaths, writers: Writers, small_segments: None) -> None:
    writer = writers()
    for x in range(60):
        write(writer, x)
    paths.segment(1, 2).unlink()
    with pytest.raises(
        ExperimentDamagedError, match="000001-000002.jsonl is missing: facts .* are missing.*from a copy"
    ):
        read_journal(paths)


def flip(path: Path, line: int) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    lines[line] = lines[line].replace(b'"c":"', b'"c":"0', 1)
    path.write_bytes(b"".join(lines))


def test_facts_behind_a_damaged_line_at_the_end_are_counted_and_not_a_torn_line(
    paths: ExperimentPaths, writers: Writers
) -> None:
    write(writers(), 1, 2, 3, 4, 5)
    flip(paths.segment(1, 1), 3)
    contents = read_journal(paths)
    assert numbers(contents) == [1, 2] and contents.notes == []
    (damage,) = contents.damaged
    assert str(damage) == "000001-000001.jsonl is damaged before its end: facts 4 to 6 are lost (3)"


def test_damage_in_the_middle_names_its_segment(paths: ExperimentPaths, writers: Writers, small_segments: None) -> None:
    writer = writers()
    for x in range(60):
        write(writer, x)
    flip(paths.segment(1, 2), 1)
    with pytest.raises(
        ExperimentDamagedError, match="000001-000002.jsonl is damaged: facts .* later ones build on them"
    ):
        read_journal(paths)


def test_damage_in_what_nobody_needs_any_more_is_none(paths: ExperimentPaths, writers: Writers) -> None:
    write(stale := writers(1), 1)
    write(heir := writers(2), 2)
    write(stale, 100, 101, 102)
    flip(paths.segment(1, 1), 3)  # written after it had been taken over
    assert (numbers(read_journal(paths)), read_journal(paths).damaged) == ([1, 2], [])
    heir.compact(b"[1,2]", grace_s=60)
    flip(paths.segment(2, 1), 0)  # a snapshot holds it
    write(heir, 3)
    assert (numbers(read_journal(paths)), read_journal(paths).damaged) == ([1, 2, 3], [])


def test_two_histories_in_one_directory_are_told_apart(paths: ExperimentPaths, writers: Writers) -> None:
    owner = claim(paths, clock=SystemClock())
    write(writers(1), 1)
    owner.release()
    again = claim(paths, clock=SystemClock())
    write(writers(2), 2)
    assert [link.id for link in read_journal(paths).chain] == [owner.id, again.id]
    record = paths.generation(1).read_text()
    paths.generation(1).write_text(record.replace(owner.id, "f" * 32))
    with pytest.raises(ExperimentDivergedError, match=f"{owner.id}.*{'f' * 32}.*REMOTE"):
        read_journal(paths)
    again.release()


def test_a_snapshot_carries_the_chain_of_generations(paths: ExperimentPaths, writers: Writers) -> None:
    for generation in (1, 2, 3):
        write(writers(generation), generation)
    chain = read_journal(paths).chain
    writers.made[-1].compact(b"[1,2,3]", grace_s=0)
    assert len(os.listdir(paths.journal)) == 3, "the snapshot, the open segment, and the history"
    assert read_journal(paths).chain == chain
    write(writers(4), 4)
    contents = read_journal(paths)
    assert numbers(contents) == [1, 2, 3, 4]
    assert [link.generation for link in contents.chain] == [1, 2, 3, 4]


def test_an_older_snapshot_is_used_where_the_newest_is_damaged(paths: ExperimentPaths, writers: Writers) -> None:
    writer = writers()
    write(writer, 1)
    writer.compact(b"[1]")
    write(writer, 2)
    writer.compact(b"[1,2]")
    write(writer, 3)
    newest = paths.snapshot(1, 3)
    newest.write_bytes(newest.read_bytes().replace(b"[1,2]", b"[1,7]"))
    contents = read_journal(paths)
    assert numbers(contents) == [1, 2, 3]
    assert any("checksum" in note for note in contents.notes)


def check_reading(paths: ExperimentPaths, low: int) -> int:
    """One look of a reader: everything up to `low` is there, once and in order."""
    found = read_journal(paths)
    start = json.loads(found.snapshot)[0] if found.snapshot else 0
    assert start == found.snapshot_seq
    assert [seq for seq, _ in found.bodies] == list(range(start + 1, found.last_seq + 1))
    assert found.last_seq >= low
    return found.last_seq


READER = Path(__file__).parents[2] / "scripts" / "reading_process.py"


def test_t08_eight_readers_beside_a_writer_that_compacts_lose_nothing(
    paths: ExperimentPaths, writers: Writers, small_segments: None
) -> None:
    total = 3000
    writer = writers(sync="thread")
    flushed = [1]
    failures: list[BaseException] = []
    looks = [0] * 8

    def read(number: int) -> None:
        try:
            while looks[number] < 3 or flushed[0] < total:
                check_reading(paths, flushed[0])
                looks[number] += 1
        except BaseException as error:
            failures.append(error)

    readers = [threading.Thread(target=read, args=(number,)) for number in range(8)]
    for reader in readers:
        reader.start()
    while writer.last_seq < total and not failures:
        for _ in range(min(10, total - writer.last_seq)):
            writer.append(body(writer.last_seq))
        writer.flush()
        flushed[0] = writer.last_seq
        if writer.last_seq % 200 < 10:
            writer.compact(b"[%d]" % writer.last_seq, grace_s=0)
    flushed[0] = total
    for reader in readers:
        reader.join()
    assert not failures, failures[0]
    assert min(looks) >= 3
    assert check_reading(paths, total) == total


@pytest.mark.soak
def test_t08_eight_reading_processes_beside_a_hundred_thousand_facts(paths: ExperimentPaths, writers: Writers) -> None:
    total = 100_000
    writer = writers(sync="thread")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    readers = [subprocess.Popen([sys.executable, READER, paths.root, str(total)], env=environment) for _ in range(8)]
    while writer.last_seq < total:
        for _ in range(min(20, total - writer.last_seq)):
            writer.append(body(writer.last_seq, width=200))
        writer.flush()
        writer.request_sync()
        if writer.bytes_since_snapshot > 300_000:
            writer.compact(b"[%d]" % writer.last_seq, grace_s=0)
    assert [reader.wait() for reader in readers] == [0] * 8
