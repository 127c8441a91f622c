"""Files through the engine, without one: the other end is called as it is.

Covers engine_files and transfers of tuner/executors/ray.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from trainables.errors import TransferError
from trainables.store import publish, staging
from trainables.store.manifest import Published
from trainables.testing.backends import CHECKS, Check
from trainables.transfer import remote_checkpoints
from trainables.transfer.remote_checkpoints import ContentIndex
from trainables.wire import CheckpointRef
from tuner.executors.host_agent.engine_files import PIECE, EngineBackend, Files
from tuner.executors.remote.transfers import RsyncBesideEngine

KEY = "t_0/checkpoint_000001"


def engine(root: Path, asked: Counter[str] | None = None) -> EngineBackend:
    """That directory, as of another host."""
    files = Files(root)

    def ask(what: str, *arguments: Any) -> Callable[[], Any]:
        if asked is not None:
            asked[what] += 1
        return lambda: getattr(files, what)(*arguments)

    return EngineBackend("there:/results", ask)


def saved(root: Path, files: dict[str, bytes]) -> Published:
    """A published checkpoint of these files below the root, at `KEY`."""
    (root / "t_0").mkdir(parents=True)
    staged = staging.new_directory(root / "t_0", "1")
    for name, data in files.items():
        (staged / name).parent.mkdir(exist_ok=True)
        (staged / name).write_bytes(data)
    ref = CheckpointRef("t_0", "checkpoint_000001", 1, 1, 1, 1)
    prepared = publish.prepare(staged, ref=ref, metrics=msgspec.Raw(b"{}"), created=1e9)
    return publish.commit(prepared, root / KEY)


def content(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_engine_conforms(check: Check, tmp_path: Path) -> None:
    check(engine(tmp_path / "there"))


def test_pieces_of_large_files_and_many_small_ones_share_messages(tmp_path: Path) -> None:
    large = bytes(range(256)) * (PIECE // 128)  # two pieces
    published = saved(tmp_path / "there", {"large": large, **{f"d{i % 3}/{i}": bytes([i % 256]) for i in range(300)}})
    asked: Counter[str] = Counter()
    (tmp_path / "here" / "t_0").mkdir(parents=True)
    brought = remote_checkpoints.fetch(
        engine(tmp_path / "there", asked), KEY, tmp_path / "here" / KEY, digest=published.digest
    )
    assert content(brought.path) == content(published.path)
    assert asked == {"sizes": 2, "read": 4}  # the manifest, and three pieces

    asked.clear()
    back = engine(tmp_path / "back", asked)
    remote_checkpoints.push_payload(back, brought.path, KEY, index=ContentIndex())
    remote_checkpoints.push_manifest(back, brought.path, KEY)
    assert content(tmp_path / "back" / KEY) == content(published.path)
    assert asked == {"write": 4, "place": 2}


def test_many_small_files_do_not_wait_for_ssh(tmp_path: Path) -> None:
    nowhere = "nobody@127.0.0.1.invalid:/results"  # ssh reaches nobody
    there = tmp_path / "there"
    published = saved(there, {str(i): b"x" for i in range(50)})
    both = RsyncBesideEngine(nowhere, engine(there))
    (tmp_path / "here" / "t_0").mkdir(parents=True)
    brought = remote_checkpoints.fetch(both, KEY, tmp_path / "here" / KEY, digest=published.digest)
    pushed = RsyncBesideEngine(nowhere, engine(tmp_path / "back"))
    remote_checkpoints.push_payload(pushed, brought.path, KEY, index=ContentIndex())
    remote_checkpoints.push_manifest(pushed, brought.path, KEY)
    assert content(tmp_path / "back" / KEY) == content(published.path)

    few = RsyncBesideEngine(nowhere, engine(tmp_path / "few"))
    saved(tmp_path / "few", {"large": b"x" * 1000})
    assert few.read(f"{KEY}/.manifest.json")
    with pytest.raises(TransferError):  # for this one it is asked
        few.fetch(KEY, tmp_path / "fetched", ["large"])
