"""Checkpoints in a replica that somebody else wrote: a resume fetches one, and nothing outside of the trial is touched.

The broken one is named, set aside and not used; the older one is (R4, R8). The journal there was written by the same
hand: it names the manifest as it is.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from checkpoint_faults import facts, restored, run, warned
from test_hostile_books import facts_in, line_of

import tuner as tune
from trainables.errors import CheckpointCorruptError
from trainables.store import manifest
from trainables.store.manifest import MANIFEST_NAME
from trainables.transfer import remote_checkpoints
from trainables.transfer.local import LocalBackend

SECRET = b"what is outside"


def count(config: dict[str, Any]) -> None:
    """Counts to 5 and saves every count; fails after 3 as long as the file `ill` is there."""
    start = restored()
    for n in range(start + 1, 6):
        if n == 4 and os.path.exists(config["ill"]):
            raise ValueError("it is ill")
        with tune.checkpoint_dir() as directory:
            Path(directory, "count").write_text(str(n))
            Path(directory, "weights").write_text(f"weights {n}")
        tune.report(n=n, restored=start)


def settings(place: Path) -> dict[str, Any]:
    return {
        "config": {"ill": str(place / "ill")},
        "sync_config": tune.SyncConfig(upload_dir=str(place / "replica")),
        "keep_checkpoints_num": 2,
        "raise_on_failed_trial": False,
        "executor": "inline",
    }


@pytest.fixture
def newest(tmp_path: Path) -> Path:
    """The newest checkpoint of a failed trial, in the replica: its machine is gone."""
    (tmp_path / "ill").touch()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_bytes(SECRET)
    (trial,) = run(count, tmp_path / "first", **settings(tmp_path)).trials
    assert (trial.status, trial.checkpoint.iteration) == ("ERROR", 3)
    (tmp_path / "ill").unlink()
    return Path(tmp_path, "replica", "e", Path(trial.path).name, "checkpoint_000003")


def rewritten(directory: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the manifest of a checkpoint, and every line of the journal that names it."""
    path = directory / MANIFEST_NAME
    before = path.read_bytes()
    content = json.loads(before)
    change(content)
    after = json.dumps(content).encode()
    path.write_bytes(after)
    old, new = manifest.digest(before).encode(), manifest.digest(after).encode()
    named = 0
    for segment in (directory.parents[1] / "journal").glob("*.jsonl"):
        if old in segment.read_bytes():
            lines = [line_of(number, body.replace(old, new)) for number, body in facts_in(segment).items()]
            segment.write_bytes(b"".join(lines))
            named += 1
    assert named, "the journal over there does not name it"


def first_file(**changed: Any) -> Callable[[Path], None]:
    return lambda directory: rewritten(directory, lambda content: content["files"][0].update(changed))


def one_more(**more: Any) -> Callable[[Path], None]:
    def change(content: dict[str, Any]) -> None:
        content["files"].append({**content["files"][0], **more})

    return lambda directory: rewritten(directory, change)


def in_place_of_weights(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def act(directory: Path) -> None:
        (directory / "weights").unlink()
        make(directory / "weights")

    return act


def link_directory(directory: Path) -> None:
    moved = directory.parents[3] / "outside" / "moved"
    directory.rename(moved)
    directory.symlink_to(moved)


def link_manifest(directory: Path) -> None:
    moved = directory.parents[3] / "outside" / "manifest"
    (directory / MANIFEST_NAME).rename(moved)
    (directory / MANIFEST_NAME).symlink_to(moved)


def link_secret(path: Path) -> None:
    path.symlink_to(path.parents[4] / "outside" / "secret")


def longer(path: Path) -> None:
    path.write_text("weights 3, and more")


ATTACKS: dict[str, Callable[[Path], None]] = {
    "a name with ..": one_more(name="../../../../outside/written"),
    "a name with .. inside": one_more(name="a/../../../../../outside/written"),
    "an absolute name": one_more(name="/tmp/written-by-a-checkpoint"),
    "a device": one_more(name="/dev/null"),
    "a file of the kernel": one_more(name="/proc/self/environ"),
    "a NUL": one_more(name="we\0ights"),
    "300 characters": one_more(name="x" * 300),
    "a path of 6000": one_more(name="/".join(["x" * 100] * 60)),
    "3000 directories": one_more(name="/".join("x" * 3000)),
    "itself": one_more(name=MANIFEST_NAME),
    "half a character": one_more(name="\ud800"),
    "a directory that is a file": one_more(name="weights/inner"),
    "the same twice": one_more(),
    "the same twice, unlike": one_more(blake3="0" * 64),
    "a huge size": first_file(size=1 << 62),
    "a size beyond 64 bits": first_file(size=1 << 80),
    "a negative size": first_file(size=-1),
    "a wrong hash": first_file(blake3="0" * 64),
    "a file of its directory twice": one_more(name="weights/weights/x"),
    "a time that is none": first_file(mtime_ns=1 << 80),
    "another's name": lambda directory: rewritten(
        directory, lambda content: content.update(name="../checkpoint_000002")
    ),
    "a directory outside": lambda directory: rewritten(
        directory, lambda content: content.update(directories=["../../../../outside/made"])
    ),
    "a file that is a directory": lambda directory: rewritten(
        directory, lambda content: content.update(directories=["weights"])
    ),
    "weights as a symlink": in_place_of_weights(link_secret),
    "weights as a pipe": in_place_of_weights(os.mkfifo),
    "weights as a directory": in_place_of_weights(os.mkdir),
    "more weights": in_place_of_weights(longer),
    "no weights": in_place_of_weights(lambda path: None),
    "the checkpoint as a symlink": link_directory,
    "the manifest as a symlink": link_manifest,
    "a manifest that is none": lambda directory: (directory / MANIFEST_NAME).write_text("[]") and None,
}


def everything(place: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in place.rglob("*")}


@pytest.mark.parametrize("attack", ATTACKS)
def test_r8_a_hostile_checkpoint_is_named_and_set_aside_and_the_older_one_used(
    attack: str, newest: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ATTACKS[attack](newest)
    outside = everything(tmp_path / "outside")
    (trial,) = run(count, tmp_path / "second", resume="AUTO+ERRORED", **settings(tmp_path)).trials
    said = [record.getMessage() for record in caplog.records]
    assert (trial.status, trial.last_result["n"], trial.last_result["restored"]) == ("TERMINATED", 5, 2), said
    named = warned(caplog, "checkpoint_000003")
    assert len(named) <= 2 and not any("tried again" in text for text in named), said
    (fact,) = facts(tmp_path / "second" / "e", "set_aside")
    assert fact["ref"]["name"] == "checkpoint_000003"
    assert everything(tmp_path / "outside") == outside
    assert not any(SECRET in text for text in everything(tmp_path / "second").values())
    assert not Path("/tmp/written-by-a-checkpoint").exists()


def test_r8_a_file_that_is_larger_than_its_manifest_says_does_not_fill_the_disk(newest: Path, tmp_path: Path) -> None:
    os.truncate(newest / "weights", 1 << 40)
    moved = []
    with pytest.raises(CheckpointCorruptError, match="more than 10 bytes"):
        remote_checkpoints.fetch(LocalBackend(newest.parent), newest.name, tmp_path / "here", progress=moved.append)
    assert sum(moved) < 100 << 20 and not list(tmp_path.glob("*here*"))
