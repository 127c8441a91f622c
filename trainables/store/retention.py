"""Retention policies: small pure objects that say which checkpoints of a trial stay, and compose.

A policy sees the trial's checkpoints, oldest first, and names those that it wants to keep. It does no I/O and reads
no clock; that the latest of an unfinished trial and whatever is in use stay too is not a policy's business but the
business of whoever applies it (`tuner.retention`, R3). After Orbax's `preservation_policy.py`.

Recency is the save order (generation, attempt, index), never a name and never a time of a file.
"""

from __future__ import annotations

import abc
import heapq
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field, fields
from typing import Any, Protocol, TypeVar

from trainables.checkpoint_config import RECENCY, CheckpointConfig, CheckpointStrategy, ScoreOrder
from trainables.errors import InvalidSettingError
from trainables.metrics import MISSING, lookup, score_of
from trainables.quick_dataclass import dataclass
from trainables.store.pareto_front import Order as Order
from trainables.store.pareto_front import Point, front_of, negated
from trainables.validation import invalid, one_of, seconds, whole_number


class CheckpointView(Protocol):
    """One complete checkpoint, as policies see it; whatever has these four may be given to them."""

    @property
    def order(self) -> Order: ...

    @property
    def iteration(self) -> int: ...

    @property
    def metrics(self) -> Mapping[str, Any]:
        """The result that it belongs to; read only by what ranks."""

    @property
    def saved_at(self) -> float:
        """When it was saved, in seconds; only `EveryT` looks at it."""


V = TypeVar("V", bound=CheckpointView)


@dataclass(frozen=True, slots=True)
class Kept:
    """A `CheckpointView` of plain values."""

    order: Order
    iteration: int
    metrics: Mapping[str, Any] = field(default_factory=dict)
    saved_at: float = 0.0


RankKey = tuple[int, float, Order]
"""Compares like the checkpoints do: greater is better."""


def rank_key(score: float | None, order: ScoreOrder, saved: Order) -> RankKey:
    """Where a checkpoint ranks: a number above NaN, NaN above no score at all; of equals the earlier is better."""
    earlier = negated(saved)
    if score is None:
        return (0, 0.0, earlier)
    if math.isnan(score):
        return (1, 0.0, earlier)
    return (2, score if order == "max" else -score, earlier)


@dataclass(frozen=True, slots=True)
class Ranking:
    """What "best" means for a trial's checkpoints.

    Args:
        count: how many are "the best"; None: all.
        metric: what ranks them; None: recency.
        order: "max" or "min"; with recency, "max" means that newer is better.
        literal: the metric and order that count instead where a checkpoint has such a metric: "max-auc" may be a name.
    """

    count: int | None = None
    metric: str | None = None
    order: ScoreOrder = "max"
    literal: tuple[str, ScoreOrder] | None = field(default=None, compare=False, repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The metrics that may rank, the one that comes first where it is reported first."""
        literal = () if self.literal is None else self.literal[:1]
        return (*literal, *([] if self.metric is None else [self.metric]))

    def _key(self, checkpoint: CheckpointView) -> RankKey:
        """Compares checkpoints: greater is better."""
        if self.metric is None:
            return (0, 0.0, checkpoint.order if self.order == "max" else negated(checkpoint.order))
        return rank_key(score_of(checkpoint.metrics, self.metric), self.order, checkpoint.order)

    def best(self, checkpoints: Iterable[V]) -> list[V]:
        """The best `count`, worst to best."""
        given, ranking = list(checkpoints), self
        if self.literal is not None and any(lookup(each.metrics, self.literal[0]) is not MISSING for each in given):
            ranking = Ranking(self.count, *self.literal)
        if self.count is None:
            return sorted(given, key=ranking._key)
        return heapq.nlargest(self.count, given, key=ranking._key)[::-1]


class RetentionPolicy(abc.ABC):
    """Names the checkpoints to keep. Pure: the same checkpoints give the same answer.

    What it kept it must keep again when only kept ones are left: retention runs after every save, and what is
    not kept once is gone.
    """

    __slots__ = ()

    @abc.abstractmethod
    def keep(self, checkpoints: Sequence[CheckpointView]) -> Collection[Order]:
        """The orders of those to keep, of a trial's checkpoints, oldest first."""

    def __or__(self, other: RetentionPolicy) -> AnyOf:
        """What either of two policies keeps."""
        return AnyOf((self, other))


@dataclass(frozen=True, slots=True)
class All(RetentionPolicy):
    """Keeps everything."""

    def keep(self, checkpoints: Sequence[CheckpointView]) -> Collection[Order]:
        return [checkpoint.order for checkpoint in checkpoints]


@dataclass(frozen=True, slots=True)
class _Counting(RetentionPolicy):
    """Of a number, which is at least 1."""

    n: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", whole_number(f"{type(self).__name__}: n", self.n, least=1))


@dataclass(frozen=True, slots=True)
class Latest(_Counting):
    """Keeps the `n` newest."""

    def keep(self, checkpoints: Sequence[CheckpointView]) -> Collection[Order]:
        return [checkpoint.order for checkpoint in Ranking(self.n).best(checkpoints)]


@dataclass(frozen=True, slots=True)
class Earliest(_Counting):
    """Keeps the `n` oldest."""

    def keep(self, checkpoints: Sequence[CheckpointView]) -> Collection[Order]:
        return [checkpoint.order for checkpoint in Ranking(self.n, order="min").best(checkpoints)]


@dataclass(frozen=True, slots=True)
class Best(_Counting):
    """Keeps the `n` best by a metric; of equal scores the earlier. `literal` is as `Ranking` has it."""

    n: int
    metric: str
    order: ScoreOrder = "max"
    literal: tuple[str, ScoreOrder] | None = field(default=None, compare=False, repr=False)

    def __setstate__(self, state: list[Any]) -> None:
        """Unpickle. Experiments of earlier versions have no `literal`."""
        for each, value in zip(fields(self), [*state, None], strict=False):
            object.__setattr__(self, each.name, value)

    def __post_init__(self) -> None:
        _Counting.__post_init__(self)
        metric: Any = self.metric
        if not isinstance(metric, str) or not metric:
            raise invalid("Best: metric", metric, 'a metric\'s name, as "auc" or "eval/auc"')
        one_of("Best: order", self.order, ("max", "min"))

    def keep(self, checkpoints: Sequence[CheckpointView]) -> Collection[Order]:
        return [checkpoint.order for checkpoint in self.ranking.best(checkpoints)]

    @property
    def ranking(self) -> Ranking:
        """What "best" means."""
        return Ranking(self.n, self.metric, self.order, self.literal)


@dataclass(frozen=True, slots=True)
class EveryN(_Counting):
    """Keeps those whose iteration is a multiple of `n`."""

    n: int

    def keep(self, checkpoints: Sequence[CheckpointView]) -> Collection[Order]:
        return [checkpoint.order for checkpoint in checkpoints if checkpoint.iteration % self.n == 0]


@dataclass(frozen=True, slots=True)
class EveryT(RetentionPolicy):
    """Keeps the first, and then each that was saved at least `seconds` after the one kept before it."""

    seconds: float

    def __post_init__(self) -> None:
        seconds("EveryT: seconds", self.seconds, zero=False)

    def keep(self, checkpoints: Sequence[CheckpointView]) -> Collection[Order]:
        kept: list[Order] = []
        last = -math.inf
        for checkpoint in sorted(checkpoints, key=lambda each: each.order):
            # A clock that was set back must not end the keeping: count anew from there.
            if checkpoint.saved_at - last >= self.seconds or checkpoint.saved_at < last:
                kept.append(checkpoint.order)
                last = checkpoint.saved_at
        return kept


@dataclass(frozen=True, slots=True)
class Pinned(RetentionPolicy):
    """Keeps milestones: the iterations given, or those for which a function of the checkpoint says True.

    >>> Pinned([10, 100]).keep([Kept((1, 1, 1), 10), Kept((1, 1, 2), 11)])
    [(1, 1, 1)]
    """

    which: Collection[int] | Callable[[CheckpointView], bool]

    def __post_init__(self) -> None:
        which = self.which
        if callable(which):
            return
        accepted = "a list of iterations like [10, 100], or a function of a checkpoint that returns a bool"
        if isinstance(which, str | bytes) or not isinstance(which, Iterable):
            raise invalid("Pinned: which", which, accepted)
        try:
            iterations = frozenset(whole_number("Pinned: iteration", item, least=0) for item in which)
        except InvalidSettingError as error:
            raise invalid("Pinned: which", which, accepted) from error
        object.__setattr__(self, "which", iterations)

    def keep(self, checkpoints: Sequence[CheckpointView]) -> Collection[Order]:
        which = self.which
        if callable(which):
            return [checkpoint.order for checkpoint in checkpoints if which(checkpoint)]
        return [checkpoint.order for checkpoint in checkpoints if checkpoint.iteration in which]


@dataclass(frozen=True, slots=True)
class Pareto(RetentionPolicy):
    """Keeps the Pareto front of several metrics: those that no other beats in one without losing in another.

    Of equals in all metrics the earliest counts. In each metric NaN is worse than any number, and none at all still
    worse.

    Args:
        metrics: name -> "max" or "min".
        limit: at most so many, the most crowded of the front left out first, its ends last; None: the whole front.
            Crowding is that of NSGA-II (Deb et al. 2002, section III-B).

    >>> front = Pareto({"acc": "max", "latency": "min"})
    >>> seen = [(0.9, 30), (0.8, 10), (0.7, 20)]
    >>> front.keep([Kept((1, 1, i), i, {"acc": acc, "latency": ms}) for i, (acc, ms) in enumerate(seen, start=1)])
    [(1, 1, 1), (1, 1, 2)]
    """

    metrics: Mapping[str, ScoreOrder] = field(hash=False)
    limit: int | None = None

    def __post_init__(self) -> None:
        given: Any = self.metrics
        names_are_texts = isinstance(given, Mapping) and all(isinstance(name, str) and name for name in given)
        if not given or not names_are_texts:
            raise invalid("Pareto: metrics", given, 'a dict like {"acc": "max", "latency": "min"}')
        for name, order in given.items():
            one_of(f"Pareto: metrics[{name!r}]", order, ("max", "min"))
        object.__setattr__(self, "metrics", dict(given))
        if self.limit is not None:
            object.__setattr__(self, "limit", whole_number("Pareto: limit", self.limit, least=1))

    def keep(self, checkpoints: Sequence[CheckpointView]) -> Collection[Order]:
        return sorted(negated(order) for _, order in front_of(map(self._point, checkpoints), self.limit))

    def _point(self, checkpoint: CheckpointView) -> Point:
        ranks = (
            rank_key(score_of(checkpoint.metrics, name), order, checkpoint.order)
            for name, order in self.metrics.items()
        )
        return tuple(rank[:2] for rank in ranks), negated(checkpoint.order)


@dataclass(frozen=True, slots=True)
class AnyOf(RetentionPolicy):
    """Keeps what at least one of several policies keeps; of no policies: nothing."""

    policies: tuple[RetentionPolicy, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "policies", tuple(self.policies))

    def keep(self, checkpoints: Sequence[CheckpointView]) -> Collection[Order]:
        return {order for policy in self.policies for order in policy.keep(checkpoints)}


def policy_for(config: CheckpointConfig | CheckpointStrategy) -> RetentionPolicy:
    """What a config keeps, the latest beside the best N not counted: that is R3's, not a setting's."""
    count, ranking = config.num_to_keep, ranking_for(config)
    more = config.keep if isinstance(config, CheckpointConfig) and config.keep is not None else ()
    if count is None:
        # With `keep` and no number, "all" would make the policies pointless: they alone count.
        return AnyOf(tuple(more)) if more else All()
    counted: RetentionPolicy
    if count == 0:  # only a CheckpointStrategy can say so
        counted = AnyOf()
    elif ranking.metric is not None:
        counted = Best(count, ranking.metric, ranking.order, ranking.literal)
    else:
        counted = Latest(count) if ranking.order == "max" else Earliest(count)
    return AnyOf((*more, counted)) if more else counted


def ranking_for(config: CheckpointConfig | CheckpointStrategy) -> Ranking:
    """What `best_checkpoints` means under a config: its number and attribute, else those of a `Best` in `keep`."""
    metric, order = config.score
    if metric == RECENCY:
        metric = None
    if isinstance(config, CheckpointConfig) and config.num_to_keep is None and metric is None:
        for policy in config.keep or ():
            if isinstance(policy, Best):
                return policy.ranking
    return Ranking(config.num_to_keep, metric, order, config.literal_score)


def ranking_metrics(policy: RetentionPolicy) -> list[tuple[str, ...]]:
    """The metrics that a policy ranks by, each by the names that it may have; the first that is reported counts."""
    if isinstance(policy, Best):
        return [policy.ranking.names]
    if isinstance(policy, Pareto):
        return [(name,) for name in policy.metrics]
    if isinstance(policy, AnyOf):
        return [names for each in policy.policies for names in ranking_metrics(each)]
    return []
