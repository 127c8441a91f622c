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
    ORDER = "order"
    """A user has ordered it: to stop, with its checkpoints as above; or to pause, until it is told to go."""
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
    values: dict[str, float | None] | None = None
    """The trial's own values where several metrics were compared; `metric` and `value` are None then."""
    front: int | None = None
    """Of several metrics: the front of those it was compared with that it is in, from 1, the one that nothing beats."""

    def __post_init__(self) -> None:
        """What the journal could not hold, or not be read back with, is made plain here, or refused."""
        for name, plain in _PLAIN.items():
            value = getattr(self, name)
            if value is not None and type(value) is not plain:
                force_setattr(self, name, _made(plain, name, value))
        for name in ("by", "metric"):
            text = getattr(self, name)
            if text and not text.isascii():
                force_setattr(self, name, _encodable(text))
        if self.values is not None:
            force_setattr(self, "values", _plain_values(self.values))

    def filled(self, by: str, iteration: int) -> Reason:
        """The same with who and when, where that is not said."""
        if self.by and self.iteration:
            return self
        return msgspec.structs.replace(self, by=self.by or by, iteration=self.iteration or iteration)

    def __str__(self) -> str:
        return self.sentence()

    def sentence(self, *, paused: bool = False, brief: bool = False) -> str:
        """In words, without the name of the trial: "stopped by ASHA at iteration 4: loss 0.61, 9th of 12".

        Args:
            paused: the verdict was to pause, not to stop.
            brief: without the value of the metric, which stands beside it.
        """
        by = _SHORT.get(self.by, self.by) or "?"
        if self.kind is ReasonKind.DONE:
            return "returned"
        if self.kind is ReasonKind.ERROR:
            return f"failed: {self.by or 'an error'}"
        if self.kind is ReasonKind.TIMEOUT:
            return "ran longer than trial_timeout_s"
        if self.kind is ReasonKind.CRITERION and self.metric is not None and self.cut is not None:
            return f"stop: {self._score()} {'<=' if (self.value or 0) < self.cut else '>='} {self.cut:g}"
        if self.kind is ReasonKind.LIMIT and self.metric is not None and self.cut is not None:
            return f"{by}'s limit: {self.cut:g} {_UNITS.get(self.metric, self.metric)}"
        at = f" at {'' if brief else 'iteration '}{self.iteration}" if self.iteration else ""
        verb = "paused" if paused else "stopped"
        begin = _WORDS.get(self.kind, "{verb} by {by}").format(verb=verb, by=by)
        numbers = ", ".join(self._numbers(brief))
        return f"{begin}{at}: {numbers}" if numbers else f"{begin}{at}"

    def _score(self) -> str:
        return self.metric or "" if self.value is None else f"{self.metric} {self.value:.5g}"

    def _numbers(self, brief: bool) -> list[str]:
        said = [self._score()] if self.metric is not None and self.value is not None and not brief else []
        if self.values is not None and not brief:
            said = [name if value is None else f"{name} {value:.5g}" for name, value in self.values.items()]
        if self.front is not None:
            said.append(f"front {self.front}")
        if self.rank is not None and self.of is not None:
            said.append(f"{_ordinal(self.rank)} of {self.of}")
        return said if self.cut is None else [*said, f"needed {self.cut:.5g}"]


_SHORT = {
    "AsyncHyperBandScheduler": "ASHA",
    "HyperBandScheduler": "HyperBand",
    "MedianStoppingRule": "the median rule",
    "PopulationBasedTraining": "PBT",
}
"""What people call them."""
_UNITS = {"training_iteration": "iterations", "time_total_s": "s"}
_WORDS = {
    ReasonKind.EXPERIMENT: "{by} ended the experiment",
    ReasonKind.WAITS: "waits as {by} wants",
    ReasonKind.EXPLOIT: "goes on as a clone, says {by}",
    ReasonKind.RESOURCES: "gets other resources from {by}",
    ReasonKind.SAVE: "saved as {by} wants",
}


def _ordinal(number: int) -> str:
    """
    >>> _ordinal(1), _ordinal(12), _ordinal(23)
    ('1st', '12th', '23rd')
    """
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


_PLAIN: dict[str, type] = {
    "kind": ReasonKind,
    "by": str,
    "iteration": int,
    "metric": str,
    "value": float,
    "rank": int,
    "of": int,
    "cut": float,
    "front": int,
}


def _encodable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _plain_values(values: Any) -> dict[str, float | None]:
    try:
        return {_encodable(name): None if value is None else float(value) for name, value in values.items()}
    except (AttributeError, TypeError, ValueError, ArithmeticError, RuntimeError):
        raise SettingError(f"Reason(values={values!r:.80}) is not accepted; accepted is dict[str, float]") from None


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
