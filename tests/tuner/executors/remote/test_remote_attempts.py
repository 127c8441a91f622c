"""Attempts on other hosts: what keeps one from beginning, and what is left of those that wait."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from tests.tuner.executors.remote.harness import (
    KEY,
    NoRoom,
    OneSlot,
    Scene,
    job_of,
)
from trainables.errors import (
    CheckpointCorruptError,
    CheckpointError,
    CheckpointNotFoundError,
    PublishError,
    TransferError,
)
from tuner.executors.base import Launch
from tuner.executors.reactor import Reactor
from tuner.executors.remote.remote_attempts import RemoteAttempts

# --- the end ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("problem", "said", "why"),
    [
        (CheckpointCorruptError("a byte is wrong"), None, "unusable"),
        (CheckpointNotFoundError("nobody has it"), None, "unusable"),
        (PublishError(errno.ENOSPC, "no room"), True, "lost"),
        (CheckpointError("it cannot be read just now"), None, "lost"),
        (TransferError("the host does not answer"), None, "lost"),
    ],
)
def test_only_a_checkpoint_that_is_missing_or_damaged_is_unusable(
    tmp_path: Path, problem: Exception, said: bool | None, why: str
) -> None:
    scene, reactor = Scene(tmp_path), Reactor()

    def supply(*_: Any) -> None:
        raise problem

    scene.stores.supply = supply  # type: ignore[method-assign]
    scene.hosts["a"].temporary = lambda path: path  # type: ignore[method-assign]
    attempts = RemoteAttempts(scene.hosts, reactor, OneSlot(), scene.stores, scene.carrier)  # type: ignore[arg-type]
    attempts.launch(Launch(job_of(scene, checkpoint_path=scene.root / KEY), {"cpu": 1.0}))
    events: list[Any] = []
    while not events:
        reactor.wait(5.0, events)
    *before, exited = events
    assert exited.reason == why
    assert [(event.body.type, event.body.disk) for event in before] == (
        [] if said is None else [("PublishError", said)]
    )
    scene.carrier.close()


def test_after_the_run_nothing_that_waited_for_a_slot_asks_for_one(tmp_path: Path) -> None:
    scene, leases = Scene(tmp_path), NoRoom()
    attempts = RemoteAttempts(scene.hosts, Reactor(), leases, scene.stores, scene.carrier)  # type: ignore[arg-type]
    job = job_of(scene)
    attempts.launch(Launch(job, {"cpu": 1.0}))
    assert attempts.queued and leases.asked == 1

    attempts.forget()
    attempts.launch_queued()
    assert not attempts.queued and leases.asked == 1
    attempts.launch(Launch(job, {"cpu": 1.0}))
    assert not attempts.queued and leases.asked == 1
