"""Retention policies as people type and read them: `latest:3`, `best:2:min-loss`, `pareto:acc,min-latency`.

Both ways: what `rule_of` says of a policy, `policy_of` reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trainables.checkpoint_config import parse_score_attr
from trainables.config import RECENCY, CheckpointConfig, ScoreOrder
from trainables.store.retention import (
    All,
    AnyOf,
    Best,
    Earliest,
    EveryN,
    EveryT,
    Latest,
    Pareto,
    Pinned,
    RetentionPolicy,
    policy_for,
)
from trainables.validation import nearest_name
from tuner.error import SettingError

FORMS = (
    "all, latest:3, earliest:1, best:2:auc (or best:2:min-loss), every:10 (iterations), every:600s, pinned:10,100, "
    "pareto:acc,min-latency (pareto:acc,min-latency:5 for at most 5)"
)
"""What is accepted, for messages and help."""

BUDGET, ANEW = "checkpoint_budget", "it was of the trial's life before"
"""Rules by which a checkpoint goes, beside the policies."""


def policy_of(text: str) -> RetentionPolicy:
    """The policy that a text means. Raises SettingError with all forms.

    >>> policy_of("best:2:min-loss")
    Best(n=2, metric='loss', order='min')
    """
    name, _, rest = text.partition(":")
    make = _MAKERS.get(name)
    if make is None:
        near = nearest_name(name, _MAKERS)
        raise SettingError(
            f"policy {text!r} is not known{f'; did you mean {near}?' if near else '.'} Accepted: {FORMS}"
        )
    try:
        return make(rest)
    except (ValueError, TypeError) as error:
        raise SettingError(f"policy {text!r} is not accepted ({error}). Accepted: {FORMS}") from error


def rule_of(policy: RetentionPolicy) -> str:
    """A policy as text; of a user's own its class."""
    match policy:
        case All():
            return "all"
        case Latest(n):
            return f"latest:{n}"
        case Earliest(n):
            return f"earliest:{n}"
        case Best(n, metric, order):
            return f"best:{n}:{_attribute(metric, order)}"
        case EveryN(n):
            return f"every:{n}"
        case EveryT(span):
            return f"every:{span:g}s"
        case Pinned(which) if not callable(which):
            return f"pinned:{','.join(map(str, sorted(which)))}"
        case Pareto(metrics, limit):
            names = ",".join(_attribute(name, order) for name, order in metrics.items())
            return f"pareto:{names}" + ("" if limit is None else f":{limit}")
        case AnyOf(policies):
            return " or ".join(map(rule_of, policies)) or "none"
    return type(policy).__name__.lower() if isinstance(policy, Pinned) else type(policy).__name__


def parts_of(policy: RetentionPolicy) -> tuple[RetentionPolicy, ...]:
    """The policies that a union is made of, each alone."""
    if isinstance(policy, AnyOf):
        return tuple(part for each in policy.policies for part in parts_of(each))
    return (policy,)


def policy_of_settings(settings: Mapping[str, Any]) -> tuple[RetentionPolicy, list[str]]:
    """What an experiment keeps, from its `experiment.json`, and the rules that cannot be told from there.

    These are policies of a user's own, and functions.
    """
    rules = settings.get("retention")
    if rules is None:  # written before it was kept
        count, attribute = settings.get("num_to_keep"), settings.get("checkpoint_score_attribute")
        order = "min" if settings.get("checkpoint_score_order") == "min" else "max"
        return policy_for(CheckpointConfig(count, attribute if attribute != RECENCY else None, order)), []
    known: list[RetentionPolicy] = []
    others: list[str] = []
    for rule in rules:
        try:
            known.append(policy_of(rule))
        except SettingError:
            others.append(rule)
    return AnyOf(tuple(known)), others


def _attribute(metric: str, order: str) -> str:
    return f"min-{metric}" if order == "min" else f"max-{metric}" if metric.startswith(("min-", "max-")) else metric


def _all(rest: str) -> RetentionPolicy:
    if rest:
        raise ValueError(f"{rest!r} is too much")
    return All()


def _best(rest: str) -> RetentionPolicy:
    number, colon, attribute = rest.partition(":")
    if not colon:
        raise ValueError("by which metric?")
    metric, order = parse_score_attr(attribute, name="metric")
    return Best(int(number), metric, order)


def _every(rest: str) -> RetentionPolicy:
    return EveryT(float(rest[:-1])) if rest.endswith("s") else EveryN(int(rest))


def _pareto(rest: str) -> RetentionPolicy:
    names, _, limit = rest.rpartition(":") if rest.rpartition(":")[2].isdigit() else (rest, "", "")
    metrics: dict[str, ScoreOrder] = dict(parse_score_attr(name, name="metric") for name in names.split(","))
    return Pareto(metrics, int(limit) if limit else None)


_MAKERS: dict[str, Callable[[str], RetentionPolicy]] = {
    "all": _all,
    "latest": lambda rest: Latest(int(rest)),
    "earliest": lambda rest: Earliest(int(rest)),
    "best": _best,
    "every": _every,
    "pinned": lambda rest: Pinned([int(number) for number in rest.split(",")]),
    "pareto": _pareto,
}
