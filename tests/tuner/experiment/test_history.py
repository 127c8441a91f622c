"""The packed history of a journal: nothing is lost on its way there, it is bounded, and it can be torn or given up."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from trainables.store import fs
from tuner.clock import VirtualClock
from tuner.error import OwnedElsewhereError
from tuner.experiment import history_format as packed
from tuner.experiment.history import History
from tuner.experiment.history_writer import HISTORY_BYTES
from tuner.experiment.journal import JournalWriter, read_journal
from tuner.experiment.paths import ExperimentPaths


@pytest.fixture
def paths(tmp_path: Path) -> ExperimentPaths:
    return ExperimentPaths(tmp_path / "exp")


class Life:
    """A driver that writes facts; the snapshot of n facts is the number n."""

    def __init__(self, paths: ExperimentPaths, generation: int = 1, **more: Any) -> None:
        contents = read_journal(paths)
        self.paths, self.clock = paths, VirtualClock()
        settings = {"sync": "inline", "clock": self.clock, "parents": contents.chain, **more}
        self.journal = JournalWriter(paths, generation, next_seq=contents.last_seq + 1, **settings)
        head: dict[str, Any] = {"kind": "generation", "generation": generation}
        if contents.generation:
            head |= {"parent": contents.generation, "parent_seq": contents.last_seq}
        self.tell(head)

    def tell(self, *facts: dict[str, Any]) -> None:
        for fact in facts:
            self.journal.append(json.dumps(fact).encode())
        self.journal.flush()

    def write(self, count: int, *, width: int = 0) -> None:
        for _ in range(count):
            number = self.journal.last_seq + 1
            self.tell({"kind": "x", "number": number, "at": 1000.0 + number, "pad": os.urandom(width).hex()})

    def compact(self, *, grace_s: float = 0.0) -> None:
        assert self.journal.compact(b"%d" % self.journal.last_seq, grace_s=grace_s)

    def die(self) -> None:
        """As by `kill -9`."""
        self.journal._segment.abandon()


def numbers(history: History) -> list[int]:
    return [fact.seq for fact in history.facts()]


def read(paths: ExperimentPaths) -> History:
    return History(paths, read_journal(paths))


def whole(paths: ExperimentPaths) -> History:
    """The history, which lacks nothing."""
    history = read(paths)
    assert history.is_whole and history.base is None and history.notes == []
    assert numbers(history) == list(range(1, history.contents.last_seq + 1))
    return history


def test_what_a_snapshot_replaced_is_in_the_history_with_its_times(paths: ExperimentPaths) -> None:
    life = Life(paths)
    for _ in range(3):
        life.write(5)
        life.compact()
    life.write(2)

    assert len(os.listdir(paths.history)) == 3
    history = whole(paths)
    facts = list(history.facts())
    assert (facts[0].seq, history.contents.last_seq) == (1, 18)
    assert [(fact.seq, fact.at) for fact in facts[1:]] == [(seq, 1000.0 + seq) for seq in range(2, 19)]
    assert json.loads(facts[3].body)["number"] == 4
    assert history.since == 1002.0, "the first fact tells no time"
    assert history.contents.snapshot_seq == 16
    assert [history.snapshot(seq) for seq in (6, 11, 16)] == [b"6", b"11", b"16"]


def test_whoever_has_gzip_can_read_a_pack(paths: ExperimentPaths) -> None:
    life = Life(paths)
    life.write(3)
    life.compact()
    life.write(3)
    sealed = {name: (paths.journal / name).read_bytes() for name in ("snapshot-000001-00000004.json",)}
    life.compact()

    packs = sorted(os.listdir(paths.history))
    assert packs == ["000001-00000001-00000004.jsonl.gz", "000001-00000005-00000007.jsonl.gz"]
    index, *lines = gzip.decompress((paths.history / packs[1]).read_bytes()).splitlines()
    told = json.loads(index)
    assert [(one["name"], one.get("first"), one["last"], one.get("since")) for one in told["files"]] == [
        ("snapshot-000001-00000004.json", None, 4, None),
        ("000001-000002.jsonl", 5, 7, 1005.0),
    ]
    assert lines[0] + b"\n" == sealed["snapshot-000001-00000004.json"], "whole files, as they were"
    assert [json.loads(line)["n"] for line in lines[1:]] == [5, 6, 7]


def test_the_times_of_results_count_whatever_users_call_theirs() -> None:
    assert packed.time_of(b'{"kind":"result","metrics":{"timestamp":17,"at":3}}') == 17.0
    assert packed.time_of(b'{"kind":"ended","at":4.5}') == 4.5
    for silent in (b'{"kind":"idle"}', b'{"metrics":{"timestamp":"noon"}}', b'{"metrics":[1]}', b'{"at":null}', b"{"):
        assert packed.time_of(silent) is None


def test_facts_between_the_grace_and_the_pack_are_in_the_history_too(paths: ExperimentPaths) -> None:
    life = Life(paths)
    life.write(4)
    life.compact(grace_s=60)
    life.write(4)
    life.compact(grace_s=60)
    assert not paths.history.exists()
    whole(paths)
    life.journal.archive()
    assert len(os.listdir(paths.history)) == 1 and len(os.listdir(paths.journal)) == 3
    assert whole(paths).contents.snapshot_seq == 9
    names = [entry.name for pack in paths.history.iterdir() for entry in packed.read_index(pack)[0].files]
    assert not [name for name in names if name.startswith("snapshot")], "of several only the oldest is needed"


def test_the_oldest_goes_first_and_what_is_left_begins_with_a_snapshot(paths: ExperimentPaths) -> None:
    life = Life(paths, history_bytes=40_000)
    for _ in range(12):
        life.write(10, width=500)
        life.compact()
        size = sum(path.stat().st_size for path in paths.history.iterdir())
        assert size <= 40_000
    assert size > 20_000
    history = read(paths)
    assert not history.is_whole and history.notes == []
    first = numbers(history)[0]
    assert history.base == b"%d" % (first - 1), "what the facts before that add up to"
    assert numbers(history) == list(range(first, 122))
    assert history.since == 1000.0 + first


def test_none_is_kept_where_that_is_asked_for(paths: ExperimentPaths) -> None:
    life = Life(paths, history_bytes=0)
    life.write(3)
    life.compact()
    assert not paths.history.exists() and not paths.segment(1, 1).exists()
    assert numbers(read(paths)) == [] and read(paths).base == b"4"


def test_one_that_is_larger_than_all_may_be_is_not_kept(paths: ExperimentPaths) -> None:
    life = Life(paths, history_bytes=1000)
    life.write(10, width=500)
    life.compact()
    assert os.listdir(paths.history) == [] if paths.history.exists() else True
    assert not paths.segment(1, 1).exists()


def damage_index(data: bytes) -> bytes:
    return data[:5]


def damage_member(data: bytes) -> bytes:
    return data[:-20] + bytes(20)


def no_pack(data: bytes) -> bytes:
    return b"this is none"


def crafted(**changes: int) -> Callable[[bytes], bytes]:
    """A pack whose index is another."""

    def craft(data: bytes) -> bytes:
        unpacker = zlib.decompressobj(31)
        told = json.loads(unpacker.decompress(data))
        told["files"][-1] |= changes
        return packed.compressed(json.dumps(told).encode()) + unpacker.unused_data

    return craft


def bomb(data: bytes) -> bytes:
    return packed.compressed(bytes(200_000_000))


def deep(data: bytes) -> bytes:
    return packed.compressed(b'{"format":1,"files":' + b"[" * 100_000 + b"]" * 100_000 + b"}")


DAMAGES = {
    "index": damage_index,
    "member": damage_member,
    "none": no_pack,
    "before the file": crafted(at=-100_000),
    "too large": crafted(bytes=10),
    "too small": crafted(bytes=10**12),
    "no size": crafted(size=-1),
    "another place": crafted(at=10**9),
    "bomb": bomb,
    "deep": deep,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_pack_that_is_torn_or_hostile_is_told_of_and_what_follows_it_is_read(
    paths: ExperimentPaths, damage: Callable[[bytes], bytes]
) -> None:
    life = Life(paths)
    for _ in range(3):
        life.write(5)
        life.compact()
    torn = paths.pack(1, 7, 11)
    torn.write_bytes(damage(torn.read_bytes()))
    history = read(paths)
    assert any(torn.name in note for note in history.notes), history.notes
    assert numbers(history) == [12, 13, 14, 15, 16] and history.base == b"11"
    assert read_journal(paths).notes == [], "a resume does not look there"


def test_of_a_pack_that_is_cut_short_one_line_is_told(paths: ExperimentPaths) -> None:
    life = Life(paths)
    for _ in range(4):
        life.write(5)
        assert life.journal.seal()
    life.compact()
    (pack,) = paths.history.iterdir()
    pack.write_bytes(pack.read_bytes()[:-400])
    told = read(paths).notes
    assert len(told) == 1 and pack.name in told[0], told


def test_a_driver_killed_after_the_pack_packs_nothing_twice(paths: ExperimentPaths) -> None:
    life = Life(paths)
    life.write(5)
    kept = {name: (paths.journal / name).read_bytes() for name in [paths.segment(1, 1).name]}
    life.compact()
    life.write(1)
    life.die()
    for name, data in kept.items():
        (paths.journal / name).write_bytes(data)  # it was killed before it could remove them
    whole(paths)
    heir = Life(paths, 2)
    heir.write(3)
    heir.compact()
    history = whole(paths)
    names = [entry.name for pack in sorted(paths.history.iterdir()) for entry in packed.read_index(pack)[0].files]
    assert len(names) == len(set(names)), names
    assert not paths.segment(1, 1).exists()
    assert history.contents.last_seq == 11


def test_a_driver_killed_in_the_middle_of_a_pack_loses_nothing(
    paths: ExperimentPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = Life(paths)
    life.write(5)

    class Killed(BaseException):
        """Nothing runs any more."""

    def kill(source: Any, target: Any) -> None:
        if Path(target).parent == paths.history:
            raise Killed
        os.rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(fs, "rename", kill)
        with pytest.raises(Killed):
            life.compact()
    assert [name[:1] for name in os.listdir(paths.history)] == ["."], "half a pack, under no pack's name"
    life.die()
    whole(paths)
    heir = Life(paths, 2)
    heir.write(1)
    heir.compact()
    assert whole(paths).contents.last_seq == 8


def test_what_a_generation_wrote_after_it_was_taken_over_is_in_no_history(paths: ExperimentPaths) -> None:
    first = Life(paths)
    first.write(3)
    heir = Life(paths, 2)
    heir.write(2)
    first.write(4)  # it did not know
    heir.compact()
    heir.write(1)
    heir.compact()
    history = whole(paths)
    assert history.contents.last_seq == 8
    assert [json.loads(fact.body)["kind"] for fact in history.facts()] == ["generation", *"xxx", "generation", *"xxx"]


def test_the_history_goes_on_over_generations(paths: ExperimentPaths) -> None:
    for generation in (1, 2, 3, 4):
        life = Life(paths, generation)
        life.write(3)
        if generation != 2:
            life.compact()
        life.journal.close()
    assert whole(paths).contents.last_seq == 16


def test_who_was_taken_over_removes_nothing(paths: ExperimentPaths) -> None:
    owned = True

    def guard() -> None:
        if not owned:
            raise OwnedElsewhereError("taken over")

    life = Life(paths, guard=guard)
    life.write(3)
    life.compact(grace_s=60)
    owned = False
    life.journal.archive()
    assert not paths.history.exists() and paths.segment(1, 1).exists()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk of its own."""
    mount = tmp_path / "disk"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8M", "tmpfs", str(mount)], check=True)
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=True)


@pytest.mark.root
def test_t17_on_a_full_disk_the_history_is_given_up_with_one_line(disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    paths = ExperimentPaths(disk / "exp")
    life = Life(paths)
    life.write(200, width=5000)
    life.compact(grace_s=60)
    with open(disk / "ballast", "ab", buffering=0) as ballast, pytest.raises(OSError, match="No space"):
        while ballast.write(bytes(4096)):
            pass
    segments = [path for path in paths.journal.iterdir() if path.name == paths.segment(1, 1).name]
    assert segments
    life.journal.archive()
    assert [record.getMessage() for record in caplog.records] == [
        f"{paths.journal}: what the facts 1 to 201 said of checkpoints that are gone is given up: "
        "No space left on device"
    ]
    assert os.listdir(paths.history) == [], "half a pack takes no room either"
    assert not paths.segment(1, 1).exists(), "what it would have packed makes room"
    (disk / "ballast").unlink()
    life.write(3)
    life.compact()
    life.write(1)
    assert read(paths).base == b"201" and numbers(read(paths)) == [202, 203, 204, 205]


def test_another_error_leaves_everything_for_the_next_compaction(
    paths: ExperimentPaths, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    life = Life(paths)
    life.write(3)

    def refuse(path: Any, *_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(fs, "make_dirs", refuse)
        life.compact()
    assert "could not be packed and stays as it is" in caplog.text
    assert paths.segment(1, 1).exists()
    life.write(1)
    life.compact()
    assert whole(paths).contents.last_seq == 5 and not paths.segment(1, 1).exists()


def test_t08_readers_of_the_history_lose_nothing_beside_a_writer_that_packs(paths: ExperimentPaths) -> None:
    life = Life(paths, sync="thread")
    failures: list[BaseException] = []
    over = threading.Event()
    looks = [0] * 4

    def look(number: int) -> None:
        try:
            while not over.is_set() or looks[number] < 3:
                whole(paths)
                looks[number] += 1
        except BaseException as error:
            failures.append(error)

    readers = [threading.Thread(target=look, args=(number,)) for number in range(len(looks))]
    for reader in readers:
        reader.start()
    for _ in range(40):
        life.write(20)
        life.compact()
    over.set()
    for reader in readers:
        reader.join()
    assert not failures, failures[0]
    life.journal.close()
    assert whole(paths).contents.last_seq == 801


def test_packing_waits_for_nobody_and_nobody_for_it(paths: ExperimentPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    life = Life(paths, sync="thread")
    life.write(3)
    held, reached = threading.Event(), threading.Event()
    real = fs.replace_file

    def slow(path: Any, data: bytes) -> None:
        if Path(path).parent == paths.history:
            reached.set()
            assert held.wait(30)
        real(path, data)

    monkeypatch.setattr(fs, "replace_file", slow)
    life.compact()
    assert reached.wait(30)
    life.write(3)
    life.compact()  # the disk hangs: facts and snapshots go on
    assert len(numbers(whole(paths))) == 7
    held.set()
    life.journal.close()
    whole(paths)


def test_how_much_is_kept_by_default() -> None:
    assert HISTORY_BYTES == 256_000_000
