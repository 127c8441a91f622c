"""Retention policies as people type and read them: `latest:3`, `best:2:min-loss`, `pareto:acc,min-latency`.

Both ways: what `rule_of` says of a policy, `policy_of` reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trainables.checkpoint_config import literal_score, parse_score_attr
from trainables.config import RECENCY, CheckpointConfig, ScoreOrder
from trainables.store import retention
from trainables.validation import nearest_name
from tuner.error import SettingError

FORMS = (
    "all, latest:3, earliest:1, best:2:auc (or best:2:min-loss), every:10 (iterations), every:600s, pinned:10,100, "
    "pareto:acc,min-latency (pareto:acc,min-latency:5 for at most 5)"
)
"""What is accepted, for messages and help."""

BUDGET, ANEW = "checkpoint_budget", "it is from before the trial started anew"
"""Rules by which a checkpoint goes, beside the policies."""


def policy_of(text: str) -> retention.RetentionPolicy:
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


def rule_of(policy: retention.RetentionPolicy) -> str:
    """A policy as text; of a user's own its class."""
    match policy:
        case retention.All():
            return "all"
        case retention.Latest(n):
            return f"latest:{n}"
        case retention.Earliest(n):
            return f"earliest:{n}"
        case retention.Best(n, metric, order, literal):
            return f"best:{n}:{_attribute(metric, order) if literal is None else f'{order}-{metric}'}"
        case retention.EveryN(n):
            return f"every:{n}"
        case retention.EveryT(span):
            return f"every:{span:g}s"
        case retention.Pinned(which) if not callable(which):
            return f"pinned:{','.join(map(str, sorted(which)))}"
        case retention.Pareto(metrics, limit):
            names = ",".join(_attribute(name, order) for name, order in metrics.items())
            return f"pareto:{names}" + ("" if limit is None else f":{limit}")
        case retention.AnyOf(policies):
            return " or ".join(map(rule_of, policies)) or "none"
    return type(policy).__name__.lower() if isinstance(policy, retention.Pinned) else type(policy).__name__


def parts_of(policy: retention.RetentionPolicy) -> tuple[retention.RetentionPolicy, ...]:
    """The policies that a union is made of, each alone."""
    if isinstance(policy, retention.AnyOf):
        return tuple(part for each in policy.policies for part in parts_of(each))
    return (policy,)


def policy_of_settings(settings: Mapping[str, Any]) -> tuple[retention.RetentionPolicy, list[str]]:
    """What an experiment keeps, from its `experiment.json`, and the rules that cannot be told from there.

    These are policies of a user's own, and functions.
    """
    rules = settings.get("retention")
    if rules is None:  # written before it was kept
        count, attribute = settings.get("num_to_keep"), settings.get("checkpoint_score_attribute")
        order = "min" if settings.get("checkpoint_score_order") == "min" else "max"
        return retention.policy_for(CheckpointConfig(count, attribute if attribute != RECENCY else None, order)), []
    known: list[retention.RetentionPolicy] = []
    others: list[str] = []
    for rule in rules:
        try:
            known.append(policy_of(rule))
        except SettingError:
            others.append(rule)
    return retention.AnyOf(tuple(known)), others


def _attribute(metric: str, order: str) -> str:
    return f"min-{metric}" if order == "min" else f"max-{metric}" if metric.startswith(("min-", "max-")) else metric


def _all(rest: str) -> retention.RetentionPolicy:
    if rest:
        raise ValueError(f"{rest!r} is too much")
    return retention.All()


def _best(rest: str) -> retention.RetentionPolicy:
    number, colon, attribute = rest.partition(":")
    if not colon:
        raise ValueError("by which metric?")
    metric, order = parse_score_attr(attribute, name="metric")
    return retention.Best(int(number), metric, order, literal_score(attribute, order))


def _every(rest: str) -> retention.RetentionPolicy:
    return retention.EveryT(float(rest[:-1])) if rest.endswith("s") else retention.EveryN(int(rest))


def _pareto(rest: str) -> retention.RetentionPolicy:
    names, _, limit = rest.rpartition(":") if rest.rpartition(":")[2].isdigit() else (rest, "", "")
    metrics: dict[str, ScoreOrder] = dict(parse_score_attr(name, name="metric") for name in names.split(","))
    return retention.Pareto(metrics, int(limit) if limit else None)


_MAKERS: dict[str, Callable[[str], retention.RetentionPolicy]] = {
    "all": _all,
    "latest": lambda rest: retention.Latest(int(rest)),
    "earliest": lambda rest: retention.Earliest(int(rest)),
    "best": _best,
    "every": _every,
    "pinned": lambda rest: retention.Pinned([int(number) for number in rest.split(",")]),
    "pareto": _pareto,
}
