"""Why something was decided for a trial, as values: what a verdict carries into the journal."""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec
from msgspec.structs import force_setattr

from tuner.error import SettingError


class ReasonKind(Enum):
    """What kind of cause it was."""

    CRITERION = "criterion"
    """A stopper's condition on this trial was met: it ends, and retention keeps its best checkpoints and the latest."""
    EXPERIMENT = "experiment"
    """A stopper ended the whole experiment: every trial ends at its next result, with its checkpoints as above."""
    WORSE = "worse"
    """A scheduler compared it with others: it ends, or pauses with its latest checkpoint kept until it goes on."""
    LIMIT = "limit"
    """It has trained as long as the scheduler lets a trial train: it ends, with its checkpoints as above."""
    WAITS = "waits"
    """A scheduler lets it wait for others, or make room for them: it pauses, and goes on from its latest checkpoint."""
    EXPLOIT = "exploit"
    """It goes on as a clone of a better one: from the donor's checkpoint, which stays until the clone has its own."""
    RESOURCES = "resources"
    """It pauses to go on with other resources, from its latest checkpoint."""
    SAVE = "save"
    """It goes on, and is saved first."""
    DECIDED = "decided"
    """A stopper or scheduler that gives no reason decided so: what follows is what the decision says."""
    DONE = "done"
    """The trainable ended by itself, or reported `done`: its checkpoints are kept as of any trial that ended well."""
    ERROR = "error"
    """It failed for good: its latest checkpoint stays, for a resume to go on from."""
    TIMEOUT = "timeout"
    """It ran longer than `trial_timeout_s`: as with an error."""


class Reason(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a trial was told what it was told, or has ended.

    A number that does not apply is None; NaN and infinities are read back from a journal as None too.
    """

    kind: ReasonKind
    by: str = ""
    """Who decided: the class of the stopper or scheduler, or what failed."""
    iteration: int = 0
    """`training_iteration` of the result on which it was decided; 0: on none of its own."""
    metric: str | None = None
    value: float | None = None
    """The trial's own value of `metric`."""
    rank: int | None = None
    """Its place among those it was compared with, from 1, the best."""
    of: int | None = None
    """How many were compared, itself included."""
    cut: float | None = None
    """The value of `metric` that would have been needed, or the limit that was reached."""

    def __post_init__(self) -> None:
        """What the journal could not hold, or not be read back with, is made plain here, or refused."""
        for name, plain in _PLAIN.items():
            value = getattr(self, name)
            if value is not None and type(value) is not plain:
                force_setattr(self, name, _made(plain, name, value))
        for name in ("by", "metric"):
            text = getattr(self, name)
            if text and not text.isascii():
                force_setattr(self, name, text.encode("utf-8", "backslashreplace").decode())

    def filled(self, by: str, iteration: int) -> Reason:
        """The same with who and when, where that is not said."""
        if self.by and self.iteration:
            return self
        return msgspec.structs.replace(self, by=self.by or by, iteration=self.iteration or iteration)

    def __str__(self) -> str:
        said = [f"{self.by or '?'}: {self.kind.value}"]
        if self.metric is not None and self.value is not None:
            said.append(f"{self.metric}={self.value:g}")
        if self.rank is not None and self.of is not None:
            said.append(f"rank {self.rank} of {self.of}")
        if self.cut is not None:
            said.append(f"limit {self.cut:g}")
        if self.iteration:
            said.append(f"at iteration {self.iteration}")
        return ", ".join(said)


_PLAIN: dict[str, type] = {
    "kind": ReasonKind,
    "by": str,
    "iteration": int,
    "metric": str,
    "value": float,
    "rank": int,
    "of": int,
    "cut": float,
}


def _made(plain: type, name: str, value: Any) -> Any:
    """A field of a reason as what it has to be: numpy's and torch's numbers become plain ones."""
    try:
        if plain is not str and not isinstance(value, str):
            return plain(value)
        if plain is ReasonKind or isinstance(value, plain):
            return plain(value)
    except (TypeError, ValueError, ArithmeticError, RuntimeError):
        pass  # said below
    accepted = ", ".join(f"ReasonKind.{kind.name}" for kind in ReasonKind) if plain is ReasonKind else plain.__name__
    raise SettingError(f"Reason({name}={value!r:.80}) is not accepted; accepted is {accepted}")
