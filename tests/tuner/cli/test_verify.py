"""tuner verify: everything is hashed, and any damage found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.tuner.replicated import answer, ran
from trainables.store.manifest import MANIFEST_NAME
from trainables.transfer.open import open_backend


def test_verify_hashes_everything(experiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(answer(capsys, "verify", str(experiment), "--json"))

    assert (found["checkpoints"], found["problems"]) == (6, [])
    assert "no problems" in answer(capsys, "verify", str(experiment))


def payload(experiment: Path) -> Path:
    """A file that the user saved."""
    return next(
        path
        for path in sorted(experiment.glob("*/checkpoint_*/*"))
        if path.is_file() and not path.name.startswith(".manifest")
    )


@pytest.mark.parametrize("damage", ["flipped", "truncated", "missing", "manifest", "whole"])
def test_verify_finds_any_damage(experiment: Path, damage: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = payload(experiment)
    data = file.read_bytes()
    if damage == "flipped":
        file.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    elif damage == "truncated":
        file.write_bytes(data[:-1])
    elif damage == "missing":
        file.unlink()
    elif damage == "manifest":
        (file.parent / ".manifest.json").write_text("{}")
    else:
        file.parent.rename(file.parent.with_name(".gone"))

    said = answer(capsys, "verify", str(experiment), status=1)

    assert f"problem: {file.parent}" in said


def test_verify_finds_a_journal_that_is_damaged_before_its_end(
    experiment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (segment,) = (experiment / "journal").glob("*.jsonl")
    lines = segment.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b'"c":"', b'"c":"0', 1)
    segment.write_bytes(b"".join(lines))

    said = answer(capsys, "verify", str(experiment), status=1)

    assert f"{segment} is damaged before its end" in said and "holds results that the journal does not know" in said


def damage(experiment: Path) -> str:
    """Flip a byte of the third line of the journal; returns what is to be said of it."""
    (segment,) = (experiment / "journal").glob("*.jsonl")
    lines = segment.read_bytes().splitlines(keepends=True)
    lines[-3] = lines[-3].replace(b'"c":"', b'"c":"0', 1)
    segment.write_bytes(b"".join(lines))
    return f"{segment.name} is damaged before its end: facts {len(lines) - 2} to {len(lines)} are lost (3)"


def test_verify_hashes_everything_there(bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran(bucket, tmp_path / "results")
    found = json.loads(answer(capsys, "verify", f"{bucket}/mine", "--json"))
    assert (found["trials"], found["checkpoints"], found["problems"]) == (2, 6, []) and found["blobs"]

    backend = open_backend(bucket)
    keys = [entry.key for entry in backend.list("mine")]
    payloads = [key for key in keys if key.endswith("dict_checkpoint.pkl")]
    backend.put(payloads[0], b"x" * len(backend.read(payloads[0])))
    backend.put(payloads[1], b"short")
    backend.delete([payloads[2].replace("dict_checkpoint.pkl", MANIFEST_NAME)])
    backend.put(next(key for key in keys if "/blobs/" in key), b"spoiled")
    backend.close()

    problems = json.loads(answer(capsys, "verify", f"{bucket}/mine", "--json", status=1))["problems"]
    assert len(problems) == 4, problems
    assert all(problem.startswith(f"{bucket}/mine/") or "mine/" in problem for problem in problems)


@pytest.mark.parametrize("where", ["place", "here"])
def test_verify_looks_at_a_single_checkpoint(
    where: str, bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = ran(None, tmp_path / "results")
    above = bucket if where == "place" else str(tmp_path / "best")
    answer(capsys, "cp", next(experiment.glob("*_00000")) / "checkpoint_000003", f"{above}/")

    said = answer(capsys, "verify", f"{above}/checkpoint_000003")
    assert said.startswith(f"{above}/checkpoint_000003: a checkpoint (") and said.endswith("no problems\n")
    backend = open_backend(above)
    payload = "checkpoint_000003/dict_checkpoint.pkl"
    backend.put(payload, b"x" * len(backend.read(payload)))
    backend.close()
    found = json.loads(answer(capsys, "verify", f"{above}/checkpoint_000003", "--json", status=1))
    assert (
        found["problems"] == [f"{above}/{payload} is not what was published: its BLAKE3 hash differs"]
        and found["checkpoints"] == 1
    )


def test_verify_says_where_a_checkpoint_lies(bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    experiment = ran(bucket, tmp_path / "results", keep_local=1)
    found = json.loads(answer(capsys, "verify", experiment, "--json"))
    assert found["problems"] == [] and len(found["notes"]) == 4
    assert all(note.endswith(f"is not here: it was copied to {bucket}/mine") for note in found["notes"])
