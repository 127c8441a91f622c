"""A journal is followed beside its writer: every fact once, in order, whatever is sealed, folded or continued."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainables.store import fs
from tuner.clock import SystemClock
from tuner.experiment import events as ev
from tuner.experiment.generations import GenerationRecord
from tuner.experiment.journal_reader import read_journal
from tuner.experiment.journal_tail import LIST_EVERY, TORN, JournalReplaced, JournalTail
from tuner.experiment.journal_writer import JournalWriter
from tuner.experiment.paths import ExperimentPaths, parse_segment
from tuner.experiment.processes import Processes

BODY = b'{"kind":"idle"}'


def writer(paths: ExperimentPaths, generation: int = 1) -> JournalWriter:
    known = read_journal(paths)
    made = JournalWriter(
        paths, generation, next_seq=known.last_seq + 1, clock=SystemClock(), sync="inline", parents=known.chain
    )
    if generation > 1:
        head = ev.GenerationStarted(generation, known.generation, known.generation_id, known.last_seq)
        made.append(ev.encode(head))
    return made


def record(paths: ExperimentPaths, id: str) -> None:
    """That of generation 1."""
    owner = Processes().me()
    fs.make_dirs(paths.generations)
    fs.replace_file(paths.generation(1), msgspec.json.encode(GenerationRecord(1, id, owner, 0.0)))


def wrote(journal: JournalWriter, count: int = 1) -> None:
    for _ in range(count):
        journal.append(BODY)
    journal.flush()


def newest(paths: ExperimentPaths) -> Path:
    """The segment that is being written."""
    return paths.segment(*max(key for name in fs.listdir(paths.journal) if (key := parse_segment(name))))


def looked(tail: JournalTail, seen: list[int]) -> list[int]:
    """The numbers of the facts that were seen, and of those that a look brings."""
    try:
        while facts := tail.more():
            seen = [*seen, *(seq for seq, _ in facts)]
        return seen
    except JournalReplaced:
        contents = tail.begin()
        assert contents.last_seq >= (seen[-1] if seen else 0)
        return [*range(1, contents.last_seq + 1)]


@given(st.lists(st.sampled_from(["write", "half", "seal", "fold", "look", "continue"]), max_size=24))
def test_each_fact_comes_once_and_in_order(steps: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths, generation = ExperimentPaths(Path(folder)), 1
        journal, tail, seen = writer(paths), JournalTail(paths), []
        seen += [seq for seq, _ in tail.begin().bodies]
        for step in [*steps, "write", "look"]:
            if step == "write":
                wrote(journal, 3)
            elif step == "half":
                wrote(journal)
                whole = newest(paths).read_bytes()
                newest(paths).write_bytes(whole[:-9])
                seen = looked(tail, seen)
                newest(paths).write_bytes(whole)
            elif step == "seal":
                journal.seal()
            elif step == "fold":
                journal.compact(msgspec.json.encode({}), grace_s=0.0)
            elif step == "continue":
                journal.close()
                generation += 1
                journal = writer(paths, generation)
                journal.flush()
            else:
                seen = looked(tail, seen)
        journal.close()
        assert seen == [*range(1, len(seen) + 1)] and len(seen) == journal.last_seq


def test_a_line_that_is_half_written_is_waited_for(tmp_path: Path) -> None:
    paths = ExperimentPaths(tmp_path)
    journal, tail = writer(paths), JournalTail(paths)
    wrote(journal, 2)
    assert len(tail.begin().bodies) == 2 and tail.more() == []
    segment = paths.segment(1, 1)
    whole = fs.read_file(segment)
    wrote(journal)
    later = fs.read_file(segment)[len(whole) :]
    segment.write_bytes(whole + later[:9])
    assert tail.more() == []
    segment.write_bytes(whole + later)
    assert tail.more() == [(3, BODY)]
    journal.close()


def test_half_a_line_of_a_killed_driver_does_not_hold_up_the_next_one(tmp_path: Path) -> None:
    paths = ExperimentPaths(tmp_path)
    journal, tail = writer(paths), JournalTail(paths)
    wrote(journal, 2)
    tail.begin()
    wrote(journal)
    journal.close()
    newest(paths).write_bytes(newest(paths).read_bytes()[:-9])
    assert tail.more() == []
    journal = writer(paths, 2)
    wrote(journal)
    seen: list[int] = []
    for _ in range(TORN + LIST_EVERY):
        seen = looked(tail, seen)
    journal.close()
    assert seen == [3, 4]


def test_a_segment_that_is_packed_during_a_look_is_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = ExperimentPaths(tmp_path)
    journal, tail = writer(paths), JournalTail(paths)
    wrote(journal, 2)
    tail.begin()
    journal.close()
    journal = writer(paths, 2)
    wrote(journal)
    read = fs.read_file

    def packed(path: Path) -> bytes:
        monkeypatch.undo()
        journal.compact(b"{}")
        journal.archive()
        return read(path)

    monkeypatch.setattr(fs, "read_file", packed)
    with pytest.raises(JournalReplaced):
        tail.more()
    journal.close()
    assert tail.begin().last_seq == journal.last_seq == 4


def test_another_journal_in_its_place_is_said(tmp_path: Path) -> None:
    paths = ExperimentPaths(tmp_path)
    journal, tail = writer(paths), JournalTail(paths)
    wrote(journal, 5)
    record(paths, "first")
    tail.begin()
    assert tail.more() == []
    journal.close()
    shutil.rmtree(paths.journal)
    record(paths, "second")
    journal = writer(paths)
    wrote(journal)
    with pytest.raises(JournalReplaced):
        for _ in range(LIST_EVERY + 1):
            tail.more()
    journal.close()
