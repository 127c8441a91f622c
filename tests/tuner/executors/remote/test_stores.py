"""Which host has what, and that it is brought to another one once."""

from __future__ import annotations

from pathlib import Path

from tests.tuner.executors.remote.harness import (
    KEY,
    REF,
    Scene,
    meeting,
)
from trainables.transfer import remote_checkpoints
from trainables.transfer.local import LocalBackend
from trainables.transfer.remote_checkpoints import ContentIndex

# --- clones ------------------------------------------------------------------------------------------------


def test_two_clones_on_two_hosts_get_the_checkpoint_that_a_third_has(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    published = scene.saved("a")
    scene.disk("a").asked = meeting("read")
    scene.supply("b", "c", digest=published.digest)
    scene.check("b", published)
    scene.check("c", published)
    assert [path.name for path in (scene.root / "t").iterdir()] == [REF.name]


def test_two_clones_on_one_host_get_the_checkpoint_that_the_replica_has(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.stores.uploads = True
    published = scene.saved("a")
    place, key = LocalBackend(scene.replica), f"e/{KEY}"
    remote_checkpoints.push_payload(place, published.path, key, index=ContentIndex())
    remote_checkpoints.push_manifest(place, published.path, key)
    scene.disk("b").there.joinpath("t").mkdir(parents=True)
    scene.disk("b").asked = meeting("check")
    scene.supply("b", "b", digest=published.digest)
    scene.check("b", published)
    assert not scene.carrier._taken  # nothing stays of each checkpoint that was ever brought anywhere


def test_a_checkpoint_of_a_host_that_is_gone_is_not_brought_here_and_that_is_said(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    published = scene.saved("b")
    del scene.hosts["b"]
    problem = scene.stores.bring("b", "t", REF, published.digest)
    assert problem is not None and "gone" in problem
