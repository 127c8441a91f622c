"""What driver and agents say to each other, beside the events and messages of every executor."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Union

from trainables.net.frames import encode
from trainables.wire import CheckpointRef, ToTrial, decode_from_trial, decode_to_trial
from tuner.executors.base import Event, Launch, Message

RESTORED = ".restored"
"""Directory, beside those of the trials, for checkpoints from outside the experiment; only while it runs."""
OWNER_FILE = ".owner"
"""In a run's directory for temporary files: the driver's id. A host that does not see it has a directory of its own."""
HEARTBEAT_S = 3.0
SILENT_S = 12.0
"""An agent that has not heard of its driver for so long ends everything: the driver, or the way to it, is gone."""


@dataclass(frozen=True, slots=True)
class HostSurvey:
    """What an agent found on its host."""

    hostname: str
    shared: bool
    """The host sees the driver's own directory."""
    found: list[tuple[str, CheckpointRef, str]] = field(default_factory=list)
    """(trial directory, checkpoint, digest of its manifest) of what lies there; empty where it is shared."""
    problem: str = ""
    """Why the directory cannot be used; "" where it can."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What the trials of a run need on a host."""

    imports: dict[str, set[str]]
    marker: str
    temporary: Path
    """For what trials make with `tempfile`; another one for each host, which may see those of others."""
    cwd: Path
    shared: bool = False
    """The host sees the driver's own directory."""
    uploading: bytes = b""
    """A pickled `Uploading`; empty where there is none."""


@dataclass(frozen=True, slots=True)
class TrialOutput:
    """A trial wrote something."""

    trial_id: str
    attempt: int
    stream: Literal["stdout", "stderr"]
    text: str


@dataclass(frozen=True, slots=True)
class HostBroken:
    """The host cannot run trials any more."""

    reason: str


@dataclass(frozen=True, slots=True)
class TellTrial:
    trial_id: str
    message: ToTrial


@dataclass(frozen=True, slots=True)
class KillTrial:
    trial_id: str


Order = Union[Launch, TellTrial, KillTrial]
Heard = Union[Event, TrialOutput, HostBroken]


def pack_orders(orders: Sequence[Order]) -> bytes:
    """Orders as bytes. What trials are told goes as they get it: it is most of all, and pickled it costs ten times."""
    small = [(order.trial_id, encode(order.message)) if type(order) is TellTrial else order for order in orders]
    return pickle.dumps(small, pickle.HIGHEST_PROTOCOL)


def unpack_orders(data: bytes) -> list[Order]:
    return [
        TellTrial(part[0], decode_to_trial(part[1])) if type(part) is tuple else part for part in pickle.loads(data)
    ]


def pack_heard(heard: Sequence[Heard]) -> bytes:
    """The same for what agents say."""
    small = [(said.trial_id, said.attempt, encode(said.body)) if type(said) is Message else said for said in heard]
    return pickle.dumps(small, pickle.HIGHEST_PROTOCOL)


def unpack_heard(data: bytes) -> list[Heard]:
    return [
        Message(part[0], part[1], decode_from_trial(part[2])) if type(part) is tuple else part
        for part in pickle.loads(data)
    ]
