"""Settings of checkpoint frequency and retention: `CheckpointConfig`, `CheckpointStrategy`, `Budget`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, Literal

from trainables import validation as check
from trainables.quick_dataclass import dataclass
from trainables.validation import Check, Config, checked_names, invalid, optional, parse_bytes, setting

ScoreOrder = Literal["max", "min"]

_PREFIX = re.compile(r"(max|min)-(.+)", re.DOTALL)
AUTO = "auto"
"""The `checkpoint_frequency` with which a trial saves when it pays."""
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


def literal_score(attribute: str | None, order: str) -> tuple[str, ScoreOrder] | None:
    """An attribute with a prefix as a metric's own name: "max-auc" may be one. None: it has no prefix."""
    if attribute is None or _PREFIX.fullmatch(attribute) is None:
        return None
    return attribute, "min" if order == "min" else "max"


def _resolve_score(owner: str, attribute: str | None, order: str) -> tuple[str | None, ScoreOrder]:
    """Attribute and order as they count; a prefix counts too, unless `"min"` contradicts it: then it is of the name."""
    literal: ScoreOrder = "min" if order == "min" else "max"
    if attribute is None:
        return None, "max"
    name, prefixed = parse_score_attr(attribute, name=f"{owner}: checkpoint_score_attribute")
    if name == attribute or (prefixed == "max" and literal == "min"):
        return attribute, literal
    return name, prefixed


@dataclass(repr=False)
class _RankedConfig(Config):
    """How many checkpoints stay, and what ranks them."""

    num_to_keep: int | None = None
    checkpoint_score_attribute: str | None = setting(check.text_or_none)
    checkpoint_score_order: str = setting(partial(check.one_of, accepted=("max", "min")), "max")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.score  # noqa: B018  # raises for an attribute that names nothing

    @property
    def score(self) -> tuple[str | None, ScoreOrder]:
        """(attribute, order) as they count: `"min-loss"` is ("loss", "min")."""
        return _resolve_score(type(self).__name__, self.checkpoint_score_attribute, self.checkpoint_score_order)

    @property
    def literal_score(self) -> tuple[str, ScoreOrder] | None:
        """(attribute, order) as they count where results have a metric of that very name; None: `score` has it."""
        found = literal_score(self.checkpoint_score_attribute, self.checkpoint_score_order)
        return None if found == self.score else found


def _at_least(least: int, accepted: str) -> Check:
    return optional(partial(check.whole_number, least=least, accepted=accepted))


def _frequency(name: str, value: Any) -> int | str:
    accepted = (
        "0 (class trainables do not save by themselves), a whole number >= 1 (every so many iterations), "
        'or "auto" (when it pays)'
    )
    if isinstance(value, str) and value == AUTO:
        return AUTO
    return check.whole_number(name, 0 if value is None else value, least=0, accepted=accepted)  # Ray types it Optional


def _flag_or_none(name: str, value: Any) -> bool:
    return bool(check.one_of(name, value, (None, True, False)))  # Ray 2.3-2.6 typed these Optional[bool], default False


def _policies(name: str, value: Any) -> tuple[Any, ...]:
    policies = [value] if callable(getattr(value, "keep", None)) else value
    listed = isinstance(policies, list | tuple) and bool(policies)
    if not listed or any(isinstance(each, type) or not callable(getattr(each, "keep", None)) for each in policies):
        accepted = (
            "None, or a list of policies: Latest(3), Best(2, 'auc'), EveryN(10), EveryT(3600), Pinned([5]), "
            "Pareto({'acc': 'max', 'latency': 'min'})"
        )
        raise invalid(name, value, accepted)
    return tuple(policies)


@checked_names
@dataclass(repr=False)
class CheckpointConfig(_RankedConfig):
    """Which checkpoints are made and which of them stay.

    With `num_to_keep=N` the best N of each trial stay, and its latest when it is not among them: up to N + 1
    directories per trial. A limit for all trials together is `checkpoint_budget` (of `RunConfig`): see `Budget`.

    Args:
        num_to_keep: how many of the best of each trial stay; None keeps all.
        checkpoint_score_attribute: the metric that ranks them, nested as "eval/auc"; None ranks by recency. "max-auc"
            and "min-loss" are auc and loss with their order, unless the results have a metric of that very name.
        checkpoint_score_order: "max" or "min".
        checkpoint_frequency: class trainables save every so many iterations; 0: not by themselves; "auto": when what
            would be lost, by the interruptions that the run has seen, costs more than a save.
        checkpoint_at_end: class trainables save when they end; None is False.
        _checkpoint_keep_all_ranks: what each worker of a trainer saves stays in `rank_<i>/`; else it is merged, and of
            files with the same name the lowest rank's stays.
        _checkpoint_upload_from_workers: with `upload_dir` (of `SyncConfig`, or a `storage_path` elsewhere) each worker
            copies what it saved there itself, beside its training; else the run does, from where the checkpoint lies.
        keep: policies of `trainables.store.retention`; a checkpoint stays when one of them, or `num_to_keep`, keeps it.
            None: no more than that.
        publish: "background" (a report does not wait for the disk) or "blocking".

    Raises InvalidSettingError (a ValueError).

    >>> CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="loss", checkpoint_score_order="min").score
    ('loss', 'min')
    """

    num_to_keep: int | None = setting(
        _at_least(1, "None (all are kept), or a whole number >= 1 (the best so many, and the latest beside them)")
    )
    checkpoint_frequency: int | str = setting(_frequency, 0)
    checkpoint_at_end: bool | None = setting(partial(check.one_of, accepted=(None, True, False)))
    _checkpoint_keep_all_ranks: bool = setting(_flag_or_none, False)
    _checkpoint_upload_from_workers: bool = setting(_flag_or_none, False)
    keep: Sequence[Any] | None = setting(optional(_policies))
    publish: str = setting(partial(check.one_of, accepted=("background", "blocking")), "background")


@checked_names
@dataclass(repr=False)
class CheckpointStrategy(_RankedConfig):
    """Retention of the first generation's `Trainer.run`: exactly the best `num_to_keep` stay when the run has ended.

    Args:
        num_to_keep: how many stay; None keeps all, 0 leaves none on disk.
        checkpoint_score_attribute: the metric that ranks them; "_timestamp" (the default) and None: recency.
        checkpoint_score_order: "max" or "min".

    Example:
        >>> CheckpointStrategy(num_to_keep=2, checkpoint_score_attribute="min-loss").score
        ('loss', 'min')
    """

    num_to_keep: int | None = setting(
        _at_least(0, "None (all are kept), 0 (none stays on disk), or a whole number >= 1 (the best so many)")
    )
    checkpoint_score_attribute: str | None = setting(check.text_or_none, RECENCY)
    checkpoint_frequency: ClassVar[int] = 0
    checkpoint_at_end: ClassVar[bool] = False
    publish: ClassVar[str] = "background"
    _checkpoint_keep_all_ranks: ClassVar[bool] = False
    _checkpoint_upload_from_workers: ClassVar[bool] = False


@checked_names
@dataclass(frozen=True)
class Budget:
    """How much disk all checkpoints of an experiment may take.

    Args:
        bytes: a number, or a text like "50GB".
        top_k: the best checkpoint of each of the best `top_k` trials is never removed for it.

    Example:
        >>> Budget("50GB", top_k=3).bytes
        50000000000
    """

    bytes: int | str
    top_k: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "bytes", parse_bytes(self.bytes, name="Budget: bytes"))
        object.__setattr__(self, "top_k", check.whole_number("Budget: top_k", self.top_k, least=0))

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
