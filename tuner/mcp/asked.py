"""What each tool takes, as agents are told it and as it is checked."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from trainables.decoding import decoder
from tuner.error import ToolError
from tuner.experiment.outcome import WORDS
from tuner.mcp.paging import MOST, USUAL
from tuner.mcp.read_by_agents import SECTIONS

WAIT_MOST_S = 120.0
_TEXT = 1_000

Name = Annotated[str, Meta(min_length=1, max_length=_TEXT, description="its name, as `experiments` lists it")]
TrialRef = Annotated[
    int | str,
    Meta(description="a trial's number, from 0; or its id"),
]
Cursor = Annotated[str, Meta(max_length=20, description="the `cursor` of the answer before, for what follows")]
Limit = Annotated[int, Meta(ge=1, le=MOST, description=f"rows of this answer ({USUAL})")]
Metric = Annotated[str, Meta(max_length=_TEXT, description="another metric than the experiment's own")]
Id = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=100,
        description="a new one for each thing you want done; after a lost answer the same again: it is done once",
    ),
]

State = Literal["waiting", "running", "paused", "done", "failed"]
Section = Literal["results", "checkpoints", "attempts", "notes", "error", "config"]
assert set(State.__args__) == set(WORDS.values()) and Section.__args__ == SECTIONS  # type: ignore[attr-defined]


class Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of what tools take."""


class AskedExperiments(Asked, frozen=True):
    cursor: Cursor = ""
    limit: Limit = USUAL


class AskedOverview(Asked, frozen=True):
    experiment: Name


class AskedTrials(Asked, frozen=True):
    experiment: Name
    sort: Literal["best", "newest", "oldest"] = "best"
    metric: Metric | None = None
    mode: Literal["min", "max"] | None = None
    state: State | None = None
    cursor: Cursor = ""
    limit: Limit = USUAL


class AskedOneTrial(Asked, frozen=True):
    experiment: Name
    trial: TrialRef
    section: Annotated[Section | None, Meta(description="one part of it, page by page, the newest first")] = None
    metric: Annotated[str, Meta(max_length=_TEXT, description="of results: only this one")] | None = None
    cursor: Cursor = ""
    limit: Limit = USUAL


class AskedWhy(Asked, frozen=True):
    experiment: Name
    trial: TrialRef
    cursor: Cursor = ""
    limit: Limit = USUAL


class AskedLogs(Asked, frozen=True):
    experiment: Name
    trial: Annotated[TrialRef | None, Meta(description="without it: what its drivers warned of")] = None
    file: Annotated[
        Literal["stdout", "stderr", "error.txt", "driver"] | None,
        Meta(description="of a trial: stdout, stderr or error.txt; without a trial: driver (what the driver printed)"),
    ] = None
    characters: Annotated[int, Meta(ge=1, le=20_000, description="so many of its end, or before `cursor`")] = 2_000
    cursor: Annotated[
        str, Meta(max_length=20, description="the `cursor` of the answer before, for what stands before it")
    ] = ""


class AskedDiff(Asked, frozen=True):
    experiment: Name
    a: TrialRef
    b: TrialRef
    b_experiment: Annotated[str, Meta(min_length=1, max_length=_TEXT, description="if b is in another one")] | None = (
        None
    )
    cursor: Cursor = ""
    limit: Limit = USUAL


class AskedOrder(Asked, frozen=True):
    experiment: Name
    order: dict[str, Any]
    id: Id
    wait_s: Annotated[float, Meta(ge=0, le=30, description="so long its answer is waited for (3)")] = 3.0


class AskedWait(Asked, frozen=True):
    experiment: Name
    until: Annotated[
        Literal["ended", "trial_ended", "ordered", "next"],
        Meta(
            description="the run has ended; `trial` has; the order `order` is done; one more trial has ended than now"
        ),
    ] = "ended"
    trial: TrialRef | None = None
    order: Annotated[str, Meta(max_length=100, description="the id of an order")] | None = None
    timeout_s: Annotated[float, Meta(ge=0, le=WAIT_MOST_S, description="then the answer has done=false (30)")] = 30.0


class AskedStart(Asked, frozen=True):
    config: Annotated[
        str, Meta(min_length=1, max_length=_TEXT, description="as `experiments` lists it under may_start")
    ]
    id: Annotated[
        str,
        Meta(
            pattern="^[A-Za-z0-9-]{1,40}$",
            description="a part of the experiment's name; the same request with the same id starts nothing twice, and "
            "continues what was killed",
        ),
    ]
    num_samples: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    space: (
        Annotated[
            dict[str, Any],
            Meta(
                description="key, or path as model/lr, of the config's search space -> one value inside its domain; or "
                '{"choice": [...]} or {"grid_search": [...]} of several'
            ),
        ]
        | None
    ) = None


Kind = TypeVar("Kind", bound=Asked)


def schema_of(kind: type[Asked]) -> dict[str, Any]:
    """As the protocol has it: an object, without references."""
    (made,), _ = msgspec.json.schema_components([kind], ref_template="{name}")
    _, parts = msgspec.json.schema_components([kind])
    schema: dict[str, Any] = parts[kind.__name__]
    for unwanted in ("title", "description"):
        schema.pop(unwanted, None)
    return schema


def read(kind: type[Kind], given: dict[str, Any] | None) -> Kind:
    """What was given. Raises ToolError, which names what does not fit."""
    decoder(kind)  # of which `convert` makes as much, unguarded
    try:
        return msgspec.convert(given or {}, kind)
    except msgspec.ValidationError as error:
        raise ToolError(f"{error}; accepted are {', '.join(kind.__struct_fields__) or 'no arguments'}") from None
