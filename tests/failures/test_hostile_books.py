"""Books of an experiment that somebody else wrote, or a disk: what they say is read, named or refused, never believed.

Every command that reads ends with an exit status and lines, never with a traceback, and writes nothing but what it is
asked for.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

import tuner as tune
from tuner.cli import main
from tuner.error import TuneError

DEEP = "[" * 60_000 + "]" * 60_000
VALUES = [
    DEEP,
    "null",
    "true",
    "-1",
    "1e308",
    "1" + "0" * 400,
    "99999999999999999999999",
    '""',
    '"../../../outside"',
    '"/outside"',
    '"."',
    '"%s"' % ("x" * 300),
    '"\\ud800"',
    '"\\u0000"',
    '"\\u001b[2J"',
    '"nobody_00000"',
    "[]",
    "{}",
    '[["a", 1]]',
    '{"$": "blob", "v": ["../../outside"]}',
    '{"$": "made up", "v": 1}',
    '{"$": "ndarray", "v": ["<f8", [99999999999], "AA"]}',
]
"""JSON that is whole, and not what is meant to stand there."""
MARK = "put it here"


def saves(config):
    for step in range(2):
        with tune.checkpoint_dir(step=step) as directory:
            Path(directory, "state").write_text(str(step))
        tune.report({"loss": config["rate"] * step})


def how(place: Path) -> dict[str, Any]:
    config = {"rate": tune.choice([0.5])}
    settings = {"name": "e", "storage_path": place / "storage", "executor": "inline", "verbose": 0, "config": config}
    return settings | {"num_samples": 2, "metric": "loss", "mode": "min"}


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    place = tmp_path_factory.mktemp("books")
    tune.run(saves, sync_config=tune.SyncConfig(upload_dir=str(place / "copies")), **how(place))
    return place


@pytest.fixture
def place(original, tmp_path):
    shutil.copytree(original, tmp_path / "place", symlinks=True)
    return tmp_path / "place"


def places_in(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something stands in a JSON value."""
    found = [path]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found += places_in(inner, (*path, key))
    return found


def replaced(body: bytes, pick: random.Random, value: str) -> bytes:
    """A JSON text with something in it replaced, or something more in it."""
    whole = json.loads(body)
    path = pick.choice(places_in(whole))
    if not path:
        return value.encode()
    inner = whole
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = MARK
    return json.dumps(whole).replace(json.dumps(MARK), value).encode()


def line_of(seq: int, body: bytes) -> bytes:
    return b'{"n":%d,"c":"%08x","f":%b}\n' % (seq, crc32(body), body)


def facts_in(segment: Path) -> dict[int, bytes]:
    """Sequence number -> body."""
    lines = segment.read_bytes().splitlines()
    return {json.loads(line)["n"]: line[line.index(b',"f":') + 5 : -1] for line in lines}


def write_facts(segment: Path, facts: dict[int, bytes]) -> None:
    segment.write_bytes(b"".join(line_of(seq, fact) for seq, fact in facts.items()))


def one_fact(segment: Path, pick: random.Random, value: str) -> None:
    facts = facts_in(segment)
    seq = pick.choice(list(facts))
    write_facts(segment, facts | {seq: replaced(facts[seq], pick, value)})


def whole_file(file: Path, pick: random.Random, value: str) -> None:
    if file.suffix == ".jsonl":
        one_fact(file, pick, value)
    elif file.name.startswith("snapshot-"):
        data = file.read_bytes()
        at = data.index(b',"f":') + 5
        body = replaced(data[at:-2], pick, value)
        head = data[: data.index(b'"c":"') + 5] + b"%08x" % crc32(body)
        file.write_bytes(head + b'","f":' + body + b"}\n")
    elif file.name == "result.json":
        file.write_bytes(b"".join(replaced(line, pick, value) + b"\n" for line in file.read_bytes().splitlines()))
    else:
        file.write_bytes(replaced(file.read_bytes(), pick, value))


def books_of(root: Path) -> list[Path]:
    """Every file of ours with JSON in it."""
    files = [root / "experiment.json", *root.glob("generations/*.json"), *root.glob("journal/*.json*")]
    files += [*root.glob("*/.manifest.json"), *root.glob("*/*/.manifest.json")]
    files += [file for name in ("trial", "params", "result") for file in root.glob(f"*/{name}.json")]
    return sorted(file for file in files if file.is_file())


def everything(directory: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(directory)): path.read_bytes() if path.is_file() else None
        for path in sorted(directory.rglob("*"))
    }


def commands(place: Path, target: Path) -> list[list[str]]:
    here, there = str(place / "storage" / "e"), str(place / "copies" / "e")
    return [
        ["ls", str(place / "storage")],
        ["show", here],
        ["show", here, "0"],
        ["show", here, "1", "--why", "--json"],
        ["verify", here],
        ["verify", Path(there).as_uri()],
        ["retention", here, "--policy", "latest:1"],
        ["cp", here, str(target / "copied")],
        ["sync", here, "--to", f"{target}/to/e"],
        ["sync", str(target / "fetched"), "--from", Path(there).as_uri()],
    ]


def read_by_everyone(place: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, tuple[int, str]]:
    """What each command ends with; none may raise, nor write anywhere but to its target."""
    target = place.parent / "target"
    target.mkdir()
    before = everything(place)
    ended = {}
    for words in commands(place, target):
        status = main(words)
        said = "".join(capsys.readouterr())
        assert "Traceback" not in said, said
        ended[" ".join(words)] = (status, said)
        if words[0] != "sync":
            assert everything(place) == before, f"{words} wrote"
    assert sorted(os.listdir(place.parent)) == ["place", "target"], "something was written outside"
    assert set(os.listdir(target)) <= {"copied", "to", "fetched"}
    return ended


def attack(place: Path, seed: int) -> str:
    """Put one hostile value into one file, here and in the copy."""
    pick = random.Random(seed)
    value = pick.choice(VALUES)
    root = place / pick.choice(["storage", "copies"]) / "e"
    file = pick.choice(books_of(root))
    whole_file(file, pick, value)
    return f"{file.relative_to(place)}: {value[:60]}"


def tried(place: Path, seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    what = attack(place, seed)
    try:
        read_by_everyone(place, capsys)
        tune.ExperimentAnalysis(place / "storage" / "e").dataframe()
    except TuneError:
        pass  # refused by name
    except Exception as error:
        raise AssertionError(f"seed {seed}, {what}") from error


@pytest.mark.parametrize("seed", range(8))
def test_any_hostile_value_in_any_file_is_named_or_harmless(place, capsys, seed):
    tried(place, seed, capsys)


@pytest.mark.soak
def test_many_hostile_values_are_named_or_harmless(original, tmp_path, capsys):
    for seed in range(8, 500):
        place = tmp_path / str(seed) / "place"
        shutil.copytree(original, place, symlinks=True)
        tried(place, seed, capsys)
        shutil.rmtree(place.parent)


def of_kind(kind: str, facts: list[bytes]) -> dict[str, Any]:
    return next(fact for fact in map(json.loads, facts) if fact["kind"] == kind)


BAD_FACTS: dict[str, Callable[[list[bytes]], bytes]] = {
    "nested too deeply": lambda facts: b'{"kind":"idle","x":%b}' % DEEP.encode(),
    "of a kind that nobody knows": lambda facts: b'{"kind":"invented"}',
    "about a trial that nobody knows": lambda facts: json.dumps(
        of_kind("result", facts) | {"trial": "nobody"}
    ).encode(),
    "with a name of 300 characters": lambda facts: json.dumps(
        of_kind("created", facts) | {"trial": "new", "dirname": "x" * 300}
    ).encode(),
}


@pytest.mark.parametrize("kind", BAD_FACTS)
def test_a_bad_fact_is_one_problem_with_its_line_and_the_rest_is_checked(place, capsys, kind):
    root = place / "storage" / "e"
    segments = sorted(root.glob("journal/*.jsonl"))
    facts = facts_in(segments[-1])
    last, body = facts.popitem()
    facts[last] = BAD_FACTS[kind]([fact for segment in segments for fact in facts_in(segment).values()])
    facts[last + 1] = body
    write_facts(segments[-1], facts)
    state = next(root.glob("*/checkpoint_*/state"))
    state.write_text("damaged")
    everyone = read_by_everyone(place, capsys)
    ended = {words.split()[0]: result for words, result in everyone.items() if "file:" not in words}
    named = f"{segments[-1]}, line {len(facts) - 1}: fact {last} cannot be used"
    status, said = ended["verify"]
    assert status == 1 and named in said and str(state.parent) in said
    assert ended["show"][0] == 1
    assert ended["cp"][0] == 1 and f"fact {last} cannot be used" in ended["cp"][1]
    with pytest.raises(TuneError, match="cannot be used|does not fit|the journal names"):
        tune.run(saves, resume=True, **how(place))
