"""What a trial's process is told at its start."""

from __future__ import annotations

import os
from dataclasses import field
from pathlib import Path
from typing import Any

from trainables.quick_dataclass import dataclass
from trainables.wire import CheckpointRef


@dataclass(frozen=True, slots=True)
class GroupNodes:
    """A trial whose processes are on several nodes, as the first process on each is told."""

    nodes: tuple[tuple[str, int], ...]
    """(address, ranks) of each node; the process on the first one leads."""
    number: int
    """On which of them this process is."""
    key: bytes
    """Who knows it may speak."""
    port: int = 0
    """Where the leader listens; 0: this process leads, and says it."""


@dataclass(frozen=True, slots=True)
class Replicated:
    """The run's copy elsewhere, to which the processes of a group bring what they save themselves."""

    arguments: bytes = field(repr=False)
    """Of `trainables.transfer.open.open_backend`, cloudpickled."""
    directory: str
    """The key of the trial's directory over there."""
    witness: tuple[str, str]
    """(key, text) of a file that the run has written there, with that text in it: elsewhere it is another place."""
    guard: str
    """A key: if there is something of that name the replica has another owner, and nothing is brought there."""
    timeout_s: float
    """Without progress, after which a process gives up."""


@dataclass(frozen=True, slots=True)
class SavePace:
    """What a run has seen of saves and interruptions when an attempt begins: its trial decides by it when to save."""

    trained_s: float = 0.0
    """How long all attempts have run, in seconds."""
    interruptions: int = 0
    """How many of them were cut off: killed, lost, failed, or told to leave without a save."""
    save_s: float | None = None
    """What a save takes; None: none was measured."""
    deadline: float | None = None
    """When the machine is taken away, in seconds since the epoch; None: nobody says so."""
    wanted: bool = False
    """`checkpoint_frequency="auto"` was given: a function that does not look is told so."""


@dataclass(frozen=True, slots=True)
class Job:
    """One attempt of one trial, as its process gets it."""

    trial_id: str
    trial_name: str
    experiment_name: str
    index: int
    """The trial's number in the experiment, from 0."""
    directory: Path
    """The trial's directory; checkpoints are published into it."""
    temporary: Path
    """Short directory on the same filesystem, for `tempfile` and staging copies."""
    config: dict[str, Any]
    attempt: int
    generation: int
    seed: int | None
    """The experiment's seed; the trial's generators are seeded from (seed, index, start_iteration)."""
    experiment_tag: str = ""
    checkpoint: CheckpointRef | None = None
    """What the attempt starts from; may belong to another trial (then `checkpoint_path` says where it lies)."""
    checkpoint_path: Path | None = None
    start_iteration: int = 0
    """The clone's own count at that checkpoint (not the donor's)."""
    start_time_total_s: float = 0.0
    resources: dict[str, float] | None = None
    publish: str = "background"
    """"background" or "blocking" (`CheckpointConfig.publish`)."""
    name_by_index: bool = False
    """`CheckpointStrategy`: directories are numbered by save, from 1, not by iteration."""
    save_count: int = 0
    """Saves of all earlier attempts (only for `name_by_index`)."""
    keep_all_ranks: bool = False
    """What the workers of a group save is kept in `rank_<i>/` each, not merged."""
    replicated: Replicated | None = None
    """Where those workers copy what they save; None: that is left to the driver."""
    save_pace: SavePace | None = None
    """None: the trial saves by other rules only."""
    max_publish_failures: int = 3
    """After that many publishes in a row that failed, the trial fails."""
    chdir: bool = True
    """The trial runs in its own directory (TUNE_CHDIR_TO_TRIAL_DIR=0: not)."""
    original_cwd: Path = Path(os.curdir)
    grace_s: float = 30.0
    group_nodes: GroupNodes | None = None
    """None: all processes of the trial are on one node."""
    export_formats: tuple[str, ...] = ()
    """What a class trainable exports into its directory when the trial has ended."""
