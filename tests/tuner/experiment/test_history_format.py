"""Packs of a history: gzip for everybody, and what is torn or hostile in one is told of."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Callable

import pytest

from tests.tuner.experiment.history_harness import Life, numbers, read
from tuner.experiment import history_format as packed
from tuner.experiment.journal import read_journal
from tuner.experiment.paths import ExperimentPaths


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
