"""The facts of an experiment, as its journal holds them.

The state of an experiment is what its facts add up to (`tuner.experiment.state`). A fact says what happened, never what
to do; facts are never changed. Each is one JSON object with its kind, so that `jq` reads a journal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Union

import msgspec

from trainables.decoding import later
from trainables.wire import CheckpointRef
from tuner.experiment.reason import Reason
from tuner.experiment.reused import Reused
from tuner.experiment.trial_records import Clone

Then = Literal["continue", "stop", "pause"]
"""What a trial does after a result."""
AttemptEnd = Literal["failed", "preempted", "lost", "paused", "halted"]
"""How an attempt ended whose trial has not."""
TrialEnd = Literal["TERMINATED", "ERROR"]
NO_RAW = msgspec.Raw(b"null")
"""No value. (`msgspec.Raw | None` would read back nothing but null.)"""


class Fact(msgspec.Struct, frozen=True, tag_field="kind", omit_defaults=True):
    """Base of all facts."""


class ErrorInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why an attempt failed, without the exception object."""

    type: str
    message: str
    traceback: str = ""
    disk: bool = False
    """What was to be saved is not on the disk, which was full, say: every resume takes the trial up again."""
    tries: int = 0
    """How many attempts have failed, this one included; 0: a trial is tried once, or an older version wrote it."""
    of: int = 0
    """How many may; 0: there is no end."""


class GenerationStarted(Fact, tag="generation", frozen=True):
    """The first fact of a driver's life: whose history it continues."""

    generation: int
    parent: int | None = None
    parent_id: str | None = None
    parent_seq: int = 0
    """The last sequence number that was taken over from the parent."""


class TrialCreated(Fact, tag="created", frozen=True):
    """A searcher proposed a config, or a user ordered one, and a trial was made of it."""

    trial: str
    index: int
    config: msgspec.Raw
    """The resolved config, tagged JSON."""
    evaluated: msgspec.Raw = NO_RAW
    """Only the searched keys, flat: {"model/lr": 0.1}."""
    tag: str = ""
    name: str = ""
    dirname: str = ""
    resources: dict[str, float] | None = None
    trainable: str = ""
    order: str = ""
    """The id of the order that it was made for; "": the searcher proposed it."""
    fork: Clone | None = None
    """Where it starts, in another trial's life; its own count goes on from there."""


class AttemptStarted(Fact, tag="attempt", frozen=True):
    """A process is about to get the trial, or what was trained elsewhere already becomes its own. Durable before.

    Once more with the same attempt and generation: its process has outlived the driver (a caller's), and goes on.
    """

    trial: str
    attempt: int
    generation: int
    at: float
    checkpoint: CheckpointRef | None = None
    """What it starts from; None: anew, which ends the lineage."""
    iteration: int = 0
    """The trial's own count at that checkpoint; of one that goes on, what it had come to."""
    config: msgspec.Raw = NO_RAW
    """The config from here on, where it is another (exploit)."""
    reused: Reused | None = None
    """No process gets it: it goes through the results of an earlier experiment's trial, and copies its checkpoint."""


class Exploited(Fact, tag="exploited", frozen=True):
    """A trial goes on as a clone of another one: its next attempt starts from that one's checkpoint."""

    trial: str
    checkpoint: CheckpointRef
    """The donor's."""
    config: msgspec.Raw
    """The whole config from here on, tagged JSON."""
    iteration: int
    """The clone's own count, which goes on."""
    reason: Reason | None = None


class Reallocated(Fact, tag="reallocated", frozen=True):
    """A trial gets other resources from its next attempt on."""

    trial: str
    resources: dict[str, float]


class ResultReported(Fact, tag="result", frozen=True):
    """One iteration's result and what was decided on it."""

    trial: str
    attempt: int
    iteration: int
    metrics: msgspec.Raw
    then: Then = "continue"
    saves: bool = False
    """A checkpoint of this iteration is to come."""
    done: bool = False
    """The trial said itself that it is over; in `metrics` it says so too where others ended it."""
    reason: Reason | None = None
    """Why it is not just "continue"; None also in journals of format 1."""


class CheckpointPublished(Fact, tag="published", frozen=True):
    """A checkpoint is complete on the host of its trial."""

    ref: CheckpointRef
    bytes: int
    digest: str
    at: float
    metrics: msgspec.Raw = NO_RAW
    """Only for one that was found on disk at a resume: from its manifest."""


class PublishFailed(Fact, tag="publish_failed", frozen=True):
    """A save did not reach the disk. The checkpoint does not exist."""

    ref: CheckpointRef
    error: str
    raised: bool = False
    """The user's code was told by an exception, and may go on without it."""


class CheckpointForgotten(Fact, tag="forgotten", frozen=True):
    """Retention let go of a checkpoint. It is deleted after this is durable."""

    ref: CheckpointRef
    why: str = ""
    """The rule that did not keep it, for people: "best:2:auc", "checkpoint_budget"."""


class CheckpointDeleted(Fact, tag="deleted", frozen=True):
    """A forgotten checkpoint is gone from the disk."""

    ref: CheckpointRef


class CheckpointCopied(Fact, tag="copied", frozen=True):
    """A checkpoint is complete in a replica too."""

    ref: CheckpointRef
    place: str
    """The replica's URI."""


class LocalCopyDropped(Fact, tag="dropped", frozen=True):
    """A checkpoint that a replica holds is given up here; it is deleted after this is durable."""

    ref: CheckpointRef


class CheckpointSetAside(Fact, tag="set_aside", frozen=True):
    """A checkpoint turned out missing or broken; it is not used and not counted."""

    ref: CheckpointRef
    problem: str


class RolledBack(Fact, tag="rolled_back", frozen=True):
    """Results after this iteration are void: the trial goes back to a checkpoint."""

    trial: str
    attempt: int
    iteration: int


class AttemptEnded(Fact, tag="attempt_ended", frozen=True):
    """An attempt is over and the trial is not: it waits for its next attempt, or for a resume."""

    trial: str
    attempt: int
    why: AttemptEnd
    error: ErrorInfo | None = None
    at: float | None = None
    """None: nobody saw it, for the driver was killed; or a journal that is older than this."""


class TrialEnded(Fact, tag="ended", frozen=True):
    """A trial is over. An ERROR can be taken up again by a resume, TERMINATED never runs again."""

    trial: str
    status: TrialEnd
    at: float
    error: ErrorInfo | None = None
    reason: Reason | None = None
    """None in journals of format 1."""


class TrialReopened(Fact, tag="reopened", frozen=True):
    """A resume, or a user, takes up an errored trial: from its checkpoint, or anew."""

    trial: str
    anew: bool = False
    order: str = ""
    """The `retry` that this is the effect of; "": no user's."""


class OrderTaken(Fact, tag="order_taken", frozen=True):
    """A user's order was taken up: it is done or refused by a later fact, in this life of a driver or another."""

    id: str
    order: msgspec.Raw
    """As it was given, JSON."""
    at: float


class OrderAnswered(Fact, tag="order_answered", frozen=True):
    """The effect of an order is there; or it has none."""

    id: str
    at: float
    done: bool = True
    why: str = ""
    """What was found, or why it was refused."""


class TrialHeld(Fact, tag="held", frozen=True):
    """A user lets a trial wait, resumes included; or go again."""

    trial: str
    held: bool = True
    order: str = ""
    """The `go` that this is the effect of."""


class TrialNoted(Fact, tag="noted", frozen=True):
    """A user says something about a trial; it is the answer to that order too."""

    trial: str
    text: str
    at: float
    order: str


class CheckpointPinned(Fact, tag="pinned", frozen=True):
    """A user wants a checkpoint to stay, or lets it go again, and its tags with it."""

    ref: CheckpointRef
    pinned: bool = True
    tag: str = ""
    """A name that it gets."""


class SettingChanged(Fact, tag="set", frozen=True):
    """A user has changed a setting of the run; or its script has, which takes back what a user had changed before."""

    name: str
    value: int | float | None
    """What holds from now on."""
    was: int | float | None
    """What the script said then: a resume whose script still says so goes on with the value. Where both are the same
    nothing is changed any more."""
    at: float
    total: int | None = None
    """With `num_samples`: how many trials that makes in all, grids included; None: no end is known."""
    order: str = ""
    """The order that it is the answer to; none where the script has the last word."""
    why: str = ""
    """What is said to whoever ordered it."""


class SearchEnded(Fact, tag="search_ended", frozen=True):
    """The searcher has nothing more to propose."""

    samples: int
    """`num_samples` at that time: a larger one at a resume asks again."""


class Idle(Fact, tag="idle", frozen=True):
    """Nothing ran although trials waited: the scheduler was asked to let them go on or end."""


class RunEnded(Fact, tag="run_ended", frozen=True):
    """The driver ended in order."""

    why: str
    at: float


AnyFact = Union[
    GenerationStarted,
    TrialCreated,
    AttemptStarted,
    Exploited,
    Reallocated,
    ResultReported,
    CheckpointPublished,
    PublishFailed,
    CheckpointForgotten,
    CheckpointDeleted,
    CheckpointCopied,
    LocalCopyDropped,
    CheckpointSetAside,
    RolledBack,
    AttemptEnded,
    TrialEnded,
    TrialReopened,
    OrderTaken,
    OrderAnswered,
    TrialHeld,
    TrialNoted,
    CheckpointPinned,
    SettingChanged,
    SearchEnded,
    Idle,
    RunEnded,
]

VITAL = (CheckpointForgotten, CheckpointDeleted, LocalCopyDropped, AttemptEnded, TrialEnded, RunEnded)
"""Facts that free space or end trials: they are written even when the disk is full."""

encode = msgspec.json.Encoder().encode


decode: Callable[[bytes], AnyFact] = later(AnyFact)  # a new experiment reads none
"""The fact of a line. Raises msgspec.DecodeError."""
