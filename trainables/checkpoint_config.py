"""Settings of checkpoint frequency and retention: `CheckpointConfig`, `CheckpointStrategy`, `Budget`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from trainables.validation import Config, checked_names, invalid, one_of, parse_bytes, text_or_none, whole_number

ScoreOrder = Literal["max", "min"]

_PREFIX = re.compile(r"(max|min)-(.+)", re.DOTALL)
RECENCY = "_timestamp"
"""The score attribute of Ray Train's first generation that means: the newest, by save order."""


def parse_score_attr(text: Any, *, name: str = "checkpoint_score_attr") -> tuple[str, ScoreOrder]:
    """`"auc"` and `"max-auc"`: higher is better; `"min-loss"`: lower is better.

    >>> parse_score_attr("min-eval/loss")
    ('eval/loss', 'min')
    """
    if not isinstance(text, str) or not text or text in ("min-", "max-"):
        raise invalid(name, text, 'a metric\'s name, as "auc", "max-auc", "min-loss" or nested "eval/auc"')
    match = _PREFIX.fullmatch(text)
    if match is None:
        return text, "max"
    return match[2], "min" if match[1] == "min" else "max"


def _resolve_score(owner: str, attribute: str | None, order: str) -> tuple[str | None, ScoreOrder]:
    """Attribute and order as they count; a prefix counts here too, and may not contradict `"min"`."""
    literal: ScoreOrder = "min" if order == "min" else "max"
    if attribute is None:
        return None, "max"
    name, prefixed = parse_score_attr(attribute, name=f"{owner}: checkpoint_score_attribute")
    if name == attribute:
        return name, literal
    if prefixed == "max" and literal == "min":
        raise invalid(f"{owner}: checkpoint_score_order", order, f'"max" with checkpoint_score_attribute={attribute!r}')
    return name, prefixed


@dataclass(repr=False)
class _RankedConfig(Config):
    """How many checkpoints stay, and what ranks them."""

    num_to_keep: int | None = None
    checkpoint_score_attribute: str | None = None
    checkpoint_score_order: str = "max"

    def _check_ranking(self, least: int, accepted: str) -> None:
        name = type(self).__name__
        if self.num_to_keep is not None:
            self.num_to_keep = whole_number(f"{name}: num_to_keep", self.num_to_keep, least=least, accepted=accepted)
        one_of(f"{name}: checkpoint_score_order", self.checkpoint_score_order, ("max", "min"))
        text_or_none(f"{name}: checkpoint_score_attribute", self.checkpoint_score_attribute)
        self.score  # noqa: B018  # raises where attribute and order contradict each other

    @property
    def score(self) -> tuple[str | None, ScoreOrder]:
        """(attribute, order) as they count: `"min-loss"` is ("loss", "min")."""
        return _resolve_score(type(self).__name__, self.checkpoint_score_attribute, self.checkpoint_score_order)


@checked_names
@dataclass(repr=False)
class CheckpointConfig(_RankedConfig):
    """Which checkpoints are made and which of them stay.

    With `num_to_keep=N` the best N stay, and the latest when it is not among them: up to N + 1 directories.

    Args:
        num_to_keep: how many of the best stay; None keeps all.
        checkpoint_score_attribute: the metric that ranks them, nested as "eval/auc"; None ranks by recency.
        checkpoint_score_order: "max" or "min".
        checkpoint_frequency: class trainables save every so many iterations; 0: not by themselves.
        checkpoint_at_end: class trainables save when they end; None is False.
        _checkpoint_keep_all_ranks: what each worker of a trainer saves stays in `rank_<i>/`; else it is merged, and of
            files with the same name the lowest rank's stays.
        _checkpoint_upload_from_workers: with `upload_dir` (of `SyncConfig`, or a `storage_path` elsewhere) each worker
            copies what it saved there itself, beside its training; else the run does, from where the checkpoint lies.
        keep: policies of `trainables.store.retention`; a checkpoint stays when one of them, or `num_to_keep`, keeps it.
        publish: "background" (a report does not wait for the disk) or "blocking".

    Raises InvalidSettingError (a ValueError).

    >>> CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="loss", checkpoint_score_order="min").score
    ('loss', 'min')
    """

    checkpoint_frequency: int = 0
    checkpoint_at_end: bool | None = None
    _checkpoint_keep_all_ranks: bool = False
    _checkpoint_upload_from_workers: bool = False
    keep: Sequence[Any] | None = None
    publish: str = "background"

    def __post_init__(self) -> None:
        self._check_ranking(
            1, "None (all are kept), or a whole number >= 1 (the best so many, and the latest beside them)"
        )
        accepted = "0 (class trainables do not save by themselves), or a whole number >= 1 (every so many iterations)"
        frequency: Any = self.checkpoint_frequency
        if frequency is None:
            frequency = 0  # Ray types it Optional
        self.checkpoint_frequency = whole_number(
            "CheckpointConfig: checkpoint_frequency", frequency, least=0, accepted=accepted
        )
        one_of("CheckpointConfig: checkpoint_at_end", self.checkpoint_at_end, (None, True, False))
        for private in ("_checkpoint_keep_all_ranks", "_checkpoint_upload_from_workers"):
            # Ray 2.3-2.6 typed both Optional[bool], default False.
            value = one_of(f"CheckpointConfig: {private}", getattr(self, private), (None, True, False))
            setattr(self, private, bool(value))
        one_of("CheckpointConfig: publish", self.publish, ("background", "blocking"))
        self._check_keep()

    def _check_keep(self) -> None:
        if self.keep is None:
            return
        policies = [self.keep] if callable(getattr(self.keep, "keep", None)) else self.keep
        accepted = (
            "None, or a list of policies: Latest(3), Best(2, 'auc'), EveryN(10), EveryT(3600), Pinned([5]), "
            "Pareto({'acc': 'max', 'latency': 'min'})"
        )
        if not isinstance(policies, list | tuple) or not policies:
            raise invalid("CheckpointConfig: keep", self.keep, accepted)
        for policy in policies:
            if isinstance(policy, type) or not callable(getattr(policy, "keep", None)):
                raise invalid("CheckpointConfig: keep", self.keep, accepted)
        self.keep = tuple(policies)


@checked_names
@dataclass(repr=False)
class CheckpointStrategy(_RankedConfig):
    """Retention of the first generation's `Trainer.run`: exactly the best `num_to_keep` stay when the run has ended.

    Args:
        num_to_keep: how many stay; None keeps all, 0 leaves none on disk.
        checkpoint_score_attribute: the metric that ranks them; "_timestamp" (the default) and None: recency.
        checkpoint_score_order: "max" or "min".
    """

    checkpoint_score_attribute: str | None = RECENCY
    checkpoint_frequency: ClassVar[int] = 0
    checkpoint_at_end: ClassVar[bool] = False
    publish: ClassVar[str] = "background"
    _checkpoint_keep_all_ranks: ClassVar[bool] = False
    _checkpoint_upload_from_workers: ClassVar[bool] = False

    def __post_init__(self) -> None:
        accepted = "None (all are kept), 0 (none stays on disk), or a whole number >= 1 (the best so many)"
        self._check_ranking(0, accepted)


@checked_names
@dataclass(frozen=True)
class Budget:
    """How much disk all checkpoints of an experiment may take.

    Args:
        bytes: a number, or a text like "50GB".
        top_k: the best checkpoint of so many best trials is never removed for it.
    """

    bytes: int | str
    top_k: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "bytes", parse_bytes(self.bytes, name="Budget: bytes"))
        object.__setattr__(self, "top_k", whole_number("Budget: top_k", self.top_k, least=0))

    @property
    def size(self) -> int:
        """`bytes` as the number that it is after construction."""
        return int(self.bytes)

    @classmethod
    def of(cls, value: Budget | str | float | None, *, name: str = "checkpoint_budget") -> Budget | None:
        """A budget from what people write: "50GB", a number of bytes, a `Budget`, None."""
        if value is None or isinstance(value, Budget):
            return value
        return cls(parse_bytes(value, name=name))
