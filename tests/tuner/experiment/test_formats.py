"""One number for all books: what is written says it, older ones are read, and a newer one is refused by name."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

import tuner as tune
from tests.data import trained
from tests.data.experiments import BY_NAME
from tests.data.unpacking import unpack
from tests.failures.checkpoint_faults import killed_at_fact
from tests.tuner.ui.made import is_made
from tuner.cli import main
from tuner.clock import SystemClock
from tuner.error import ExperimentDamagedError, NewerFormatError, OwnedElsewhereError
from tuner.experiment import formats, journal_segment, journal_writer, lock
from tuner.experiment.generations import GenerationRecord, encode_record
from tuner.experiment.lock import claim
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.processes import Processes
from tuner.syncer import claim as syncer_claim

NEWER = formats.FORMAT + 1


def lines_of(segment: Path) -> list[dict[str, Any]]:
    """The facts of a segment, as a version that knows of no format in lines finds them: by these bytes only."""
    facts = []
    for line in segment.read_bytes().splitlines():
        comma = line.find(b',"c":"', 5, 40)
        assert int(line[5:comma]) > 0 and int(line[comma + 6 : comma + 14], 16) == crc32(line[comma + 20 : -1])
        facts.append(json.loads(line[comma + 20 : -1]))
    return facts


def call(place: Path, replica: Path | None = None, **more: Any) -> Any:
    return tune.run(trained.walk, **BY_NAME["compacted"].call(place, replica and str(replica), **more))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An experiment that the version before began, killed, and this one ended: with a snapshot and a copy."""
    place = tmp_path_factory.mktemp("made")
    unpack("0.1.0", "compacted", place)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal_writer, "COMPACT_BYTES", 1500)
        call(place, place / "replica")
    return place


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "place", symlinks=True)
    return tmp_path / "place"


def tree_of(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def formats_of(root: Path) -> dict[str, Any]:
    """File -> its format, as it says."""
    found: dict[str, Any] = {"experiment.json": json.loads((root / "experiment.json").read_bytes())["format"]}
    for path in sorted((root / "generations").glob("*.json")):
        found[f"generations/{path.name}"] = json.loads(path.read_bytes()).get("format", 1)
    for path in sorted((root / "journal").glob("*-*.json")):
        found[f"journal/{path.name}"] = json.loads(path.read_bytes())["format"]
    for path in sorted((root / "journal").glob("*.jsonl")):
        facts = lines_of(path)
        assert not any("format" in fact for fact in facts[1:])
        found[f"journal/{path.name}"] = facts[0].get("format", 1) if facts else None
    return found


def test_all_that_is_written_says_its_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_segment, "SEGMENT_BYTES", 2000)
    monkeypatch.setattr(journal_writer, "COMPACT_BYTES", 6000)
    call(tmp_path)
    found = formats_of(tmp_path / "storage" / "compacted")
    assert len([name for name in found if name.endswith(".jsonl")]) > 2 and any("snapshot" in name for name in found)
    assert set(found.values()) == {formats.FORMAT}


def test_an_older_one_that_is_continued_becomes_ours_before_the_journal_has_a_line_of_it(tmp_path: Path) -> None:
    unpack("0.1.0", "compacted", tmp_path)
    root = tmp_path / "storage" / "compacted"
    before = formats_of(root)
    assert set(before.values()) == {1}
    assert killed_at_fact(1, lambda: call(tmp_path))  # nothing of it is in the journal yet
    assert formats_of(root) == before | {"experiment.json": formats.FORMAT, "generations/000002.json": formats.FORMAT}
    call(tmp_path)
    found = formats_of(root)
    assert found["experiment.json"] == formats.FORMAT
    assert {found[name] for name in found if name.startswith("journal/000001")} <= {1}
    assert {found[name] for name in found if name.startswith("journal/00000") and name not in before} == {2}


def test_so_does_one_that_is_only_copied_and_its_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (lock, syncer_claim):
        monkeypatch.setattr(module, "STALE_S", 0.05)  # its owner is on another host, and was seen there last
    unpack("0.1.0", "replica_killed", tmp_path)
    name, replica = "replica_killed", tmp_path / "replica"
    assert main(["sync", str(tmp_path / "storage" / name), "--to", str(replica / name)]) == 0
    for root in (tmp_path / "storage" / name, replica / name):
        assert formats_of(root)["experiment.json"] == formats.FORMAT


def newer_experiment_json(root: Path) -> Path:
    file = root / "experiment.json"
    file.write_text(re.sub(r'"format": \d+', f'"format": {NEWER}', file.read_text()))
    return file


def newer_segment(root: Path) -> Path:
    """One in the middle; its other lines are of no kind that is known here."""
    segments = sorted((root / "journal").glob("*.jsonl"))
    file = segments[len(segments) // 2]
    body = b'{"format":%d,"kind":"omen","of":[]}' % NEWER
    number = json.loads(file.read_bytes().splitlines()[0])["n"]
    file.write_bytes(b'{"n":%d,"c":"%08x","f":%b}\n' % (number, crc32(body), body) + b'{"of":"a line nobody knows"}\n')
    return file


def newer_snapshot(root: Path) -> Path:
    file = min((root / "journal").glob("snapshot-*"))
    file.write_bytes(b'{"format":%d,"of":"another kind"}\n' % NEWER)
    return file


def newer_generation(root: Path) -> Path:
    file = root / "generations" / "000003.json"
    file.write_text(json.dumps({"generation": 3, "owner": "of another kind", "format": NEWER}))
    return file


NEWER_FILES = [newer_experiment_json, newer_segment, newer_snapshot, newer_generation]


@pytest.mark.parametrize("make", NEWER_FILES)
def test_a_newer_file_is_refused_by_name_at_every_door(
    place: Path, make: Callable[[Path], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    root = place / "storage" / "compacted"
    file = make(root)
    before = tree_of(place)
    message = re.compile(rf"{re.escape(file.name)} has format {NEWER}, newer .* up to {formats.FORMAT} are read")
    doors: list[list[Any]] = [["show", root], ["show", root, "0", "--why"], ["verify", root]]
    doors += [["report", root]] if is_made else []
    doors += [["retention", root, "--policy", "all"], ["sync", root, "--to", place / "replica" / "compacted"]]
    doors += [
        ["cp", root, place / "elsewhere" / "compacted"],
        ["sync", root, "--from", place / "replica" / "compacted"],
    ]
    for words in doors:
        assert main([str(word) for word in words]) == 1, words
        assert message.search(capsys.readouterr().err), words
    assert main(["ls", str(place / "storage"), "--json"]) == 0
    assert message.search(json.loads(capsys.readouterr().out)[0]["state"])
    calls: list[Callable[[], Any]] = [
        lambda: call(place),
        lambda: call(place, place / "replica"),
        lambda: call(place, resume=False, overwrite=True),
        lambda: tune.Tuner.restore(root, trained.walk).fit(),
        lambda: tune.ExperimentAnalysis(root),
        lambda: tune.run(trained.walk, name="new", restore=root, storage_path=place / "storage", executor="inline"),
    ]
    for number, act in enumerate(calls):
        with pytest.raises(NewerFormatError, match=message.pattern):
            act()
        assert tree_of(place) == before, number


@pytest.mark.parametrize("make", NEWER_FILES)
def test_so_is_one_of_a_copy(place: Path, make: Callable[[Path], Path], capsys: pytest.CaptureFixture[str]) -> None:
    replica = place / "replica"
    file = make(replica / "compacted")
    before = tree_of(replica)
    message = re.compile(rf"{re.escape(file.name)} has format {NEWER}, newer")
    for resume in ("AUTO", "REMOTE"):
        with pytest.raises(NewerFormatError, match=message.pattern):
            call(place / "empty", replica, resume=resume)
    assert not (place / "empty" / "storage" / "compacted").exists()
    address = (replica / "compacted").as_uri()
    for words in (["show", address], ["verify", address], ["cp", address, str(place / "elsewhere" / "compacted")]):
        assert main(words) == 1, words
        assert message.search(capsys.readouterr().err), words
    assert tree_of(replica) == before and not (place / "elsewhere").exists()


def test_it_is_no_other_error_than_a_damaged_one_was() -> None:
    assert issubclass(NewerFormatError, ExperimentDamagedError)


def test_an_owner_that_a_newer_version_took_over_from_says_so(tmp_path: Path) -> None:
    paths = ExperimentPaths(tmp_path / "e")
    mine = claim(paths, clock=SystemClock())
    theirs = GenerationRecord(2, "id", Processes().me(), 0.0, format=NEWER)
    paths.generation(2).write_bytes(encode_record(theirs))
    with pytest.raises(OwnedElsewhereError, match="taken over by generation 2, of a newer version"):
        mine.check()
    mine.release()
