"""Checkpoints on their way between hosts."""

from __future__ import annotations

import queue
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.tuner.executors.remote.harness import KEY, REF, Scene
from trainables.errors import (
    CheckpointCorruptError,
    CheckpointError,
    TransferError,
)
from tuner.executors.host_agent.protocol import RESTORED
from tuner.executors.remote.transfers import Carrier, Landing, place_of_restored


def test_what_is_here_already_and_is_not_the_one_that_is_meant_is_not_taken_for_it(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    published = scene.saved("a")
    scene.carrier.bring_here(scene.hosts["a"], scene.root / KEY, scene.root, published.digest)
    with pytest.raises(CheckpointCorruptError):
        scene.carrier.bring_here(scene.hosts["a"], scene.root / KEY, scene.root, "0" * 64)


# --- which way ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "chosen"),
    [
        ({}, False),
        ({"syncer": "auto"}, False),
        ({"syncer": None}, False),
        ({"syncer": "cp -r {source} {target}"}, True),
        ({"ssh_key": "key"}, True),
        ({"ssh_port": 22}, True),
        ({"syncer": "auto", "ssh_port": None}, False),
    ],
)
def test_a_way_that_the_user_chose_is_the_only_one(settings: dict[str, Any], chosen: bool) -> None:
    assert Carrier(lambda: settings).chosen == chosen


def test_a_host_that_ssh_does_not_reach_is_reached_through_the_engine_and_that_is_said(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    published = scene.saved("a")
    assert scene.carrier.way(scene.hosts["a"], scene.root).startswith("through the engine (")
    scene.carrier.bring_here(scene.hosts["a"], scene.root / KEY, scene.root, published.digest)
    assert (scene.root / KEY / "model").read_bytes() == b"x" * 10_000
    assert [path.name for path in (scene.root / "t").iterdir()] == [REF.name], "nothing half done is left"


def test_what_is_here_and_is_the_one_that_is_meant_is_not_brought_again(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    published = scene.saved("a")
    scene.carrier.bring_here(scene.hosts["a"], scene.root / KEY, scene.root, published.digest)
    shutil.rmtree(published.path)
    scene.carrier.bring_here(scene.hosts["a"], scene.root / KEY, scene.root, published.digest)
    scene.carrier.bring_here(scene.hosts["a"], scene.root / KEY, scene.root, "")


@pytest.mark.parametrize("damaged", [False, True])
def test_a_checkpoint_is_brought_there_whole_or_that_is_an_error(damaged: bool, tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    published = scene.saved("a")
    scene.carrier.bring_here(scene.hosts["a"], scene.root / KEY, scene.root, published.digest)
    if damaged:
        (scene.root / KEY / "model").write_bytes(b"y" * 10_000)
        with pytest.raises((CheckpointError, TransferError)):
            scene.carrier.bring_there(scene.hosts["b"], scene.root / KEY, scene.root / KEY, scene.root)
        return
    scene.carrier.bring_there(scene.hosts["b"], scene.root / KEY, scene.root / KEY, scene.root)
    scene.check("b", published)


def test_what_was_given_up_does_not_arrive_any_more(tmp_path: Path) -> None:
    for name in ("staged", "late"):
        (tmp_path / name).mkdir()
    landing = Landing()
    landing.land(tmp_path / "staged", tmp_path / "here")
    assert (tmp_path / "here").is_dir()
    landing.give_up()
    with pytest.raises(TransferError, match="is not waited for any more"):
        landing.land(tmp_path / "late", tmp_path / "other")
    assert (tmp_path / "late").is_dir() and not (tmp_path / "other").exists()


def test_a_host_that_is_lost_meanwhile_brings_nothing(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    published, host = scene.saved("a"), scene.hosts["a"]

    def lost(what: str) -> None:
        if what == "read":
            host.lost = True

    scene.disk("a").asked = lost
    with pytest.raises(TransferError, match="gone"):
        scene.carrier.bring_here(host, scene.root / KEY, scene.root, published.digest)
    assert list((scene.root / "t").iterdir()) == []


# --- beside the caller ----------------------------------------------------------------------------------------------


def test_copies_are_made_beside_the_caller_and_each_says_what_came_of_it(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    answers: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()

    def fails() -> None:
        raise TransferError("no")

    for work in (lambda: None, fails):
        scene.carrier.beside(scene.hosts["a"], work, answers.put)
    said = {str(answers.get(timeout=30)) for _ in range(2)}
    assert said == {"None", "no"}
    scene.carrier.close()


def test_of_a_host_that_is_gone_what_waits_is_not_begun(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    host, hold, begun = scene.hosts["a"], threading.Event(), list[int]()
    done: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def work(number: int) -> Any:
        def copy() -> None:
            begun.append(number)
            hold.wait(30)

        return copy

    for number in range(4):
        scene.carrier.beside(host, work(number), done.put)
    while len(begun) < 2:  # so many at once, and no more
        time.sleep(0.001)
    scene.carrier.lost(host)
    hold.set()
    assert [done.get(timeout=30) for _ in range(2)] == [None, None]
    assert sorted(begun) == [0, 1]


def test_every_checkpoint_from_outside_has_a_place_of_its_own() -> None:
    root = Path("/results/e")
    places = {place_of_restored(root, Path(f"/elsewhere/{number}")) for number in range(50)}
    assert len(places) == 50 and {place.parent for place in places} == {root / RESTORED}
    assert place_of_restored(root, Path("/a")) == place_of_restored(root, Path("/a"))
