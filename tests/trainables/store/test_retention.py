"""The pure policies: section 6 of the design as a table, and as a property against a model written another way."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainables.config import CheckpointConfig, CheckpointStrategy
from trainables.store.retention import (
    All,
    AnyOf,
    Best,
    Earliest,
    EveryN,
    EveryT,
    Kept,
    Latest,
    Order,
    Pareto,
    Pinned,
    RetentionPolicy,
    policy_for,
    ranking_for,
)

nan, inf = math.nan, math.inf
ABSENT = object()


def saves(*scores: Any, first: int = 1) -> list[Kept]:
    """One checkpoint per score, saved one after another."""
    return [
        Kept((1, 1, index), iteration=index, metrics={} if score is ABSENT else {"m": score}, saved_at=float(index))
        for index, score in enumerate(scores, start=first)
    ]


def live(policy: RetentionPolicy, history: Sequence[Kept]) -> list[set[Order]]:
    """What is on disk after each save, the latest always among it."""
    disk: list[Kept] = []
    seen = []
    for checkpoint in history:
        disk.append(checkpoint)
        keep = {*policy.keep(disk), checkpoint.order}
        disk = [each for each in disk if each.order in keep]
        seen.append({each.order for each in disk})
    return seen


def iterations(orders: Sequence[Order] | set[Order]) -> list[int]:
    return sorted(order[2] for order in orders)


# --- the model: "better" between two, and counting who is beaten by fewer than N ----------------------


def model_better(a: Kept, b: Kept, order: str) -> bool:
    """Does `a` rank above `b`? Straight from the rows of section 6, without keys or sorting."""

    def number(kept: Kept) -> bool:
        value = kept.metrics.get("m")
        return isinstance(value, int | float) and not isinstance(value, bool)

    if number(a) != number(b):
        return number(a)  # absent, or not a number: below every scored checkpoint
    if number(a):
        x, y = a.metrics["m"], b.metrics["m"]
        if (x != x) != (y != y):
            return bool(y != y)  # NaN is worse than any number
        if x == x and x != y:
            return bool(x > y) if order == "max" else bool(x < y)
    return a.order < b.order  # equal scores: the earlier wins


def model_best(history: Sequence[Kept], count: int, order: str) -> set[Order]:
    return {
        one.order
        for one in history
        if sum(model_better(other, one, order) for other in history if other is not one) < count
    }


values = st.one_of(
    st.sampled_from([nan, inf, -inf, 0.0, -0.0, 1, 1.0, 2, -1, None, True, False, "high", ABSENT, [1]]),
    st.floats(),
    st.integers(-3, 3),
)
lives = st.lists(st.tuples(values, st.sampled_from(["save", "attempt", "generation"])), min_size=1, max_size=14)


def history_of(steps: list[tuple[Any, str]]) -> list[Kept]:
    generation, attempt, index = 1, 1, 0
    made = []
    for value, before in steps:
        if before == "attempt":
            attempt, index = attempt + 1, 0
        elif before == "generation":
            generation, attempt, index = generation + 1, 1, 0
        index += 1
        metrics = {} if value is ABSENT else {"m": value}
        made.append(Kept((generation, attempt, index), iteration=index, metrics=metrics, saved_at=-float(len(made))))
    return made


@given(lives, st.integers(1, 5), st.sampled_from(["max", "min"]))
def test_what_is_on_disk_after_every_save_is_the_best_n_and_the_latest(
    steps: list[tuple[Any, str]], count: int, order: str
) -> None:
    history = history_of(steps)
    config = CheckpointConfig(num_to_keep=count, checkpoint_score_attribute="m", checkpoint_score_order=order)
    for number, on_disk in enumerate(live(policy_for(config), history), start=1):
        assert on_disk == model_best(history[:number], count, order) | {history[number - 1].order}
    best = ranking_for(config).best(history)
    assert {each.order for each in best} == model_best(history, count, order)
    assert all(model_better(better, worse, order) for worse, better in itertools.pairwise(best))


@given(lives, st.integers(1, 5))
def test_without_an_attribute_the_newest_n_stay(steps: list[tuple[Any, str]], count: int) -> None:
    history = history_of(steps)
    config = CheckpointConfig(num_to_keep=count)
    for number, on_disk in enumerate(live(policy_for(config), history), start=1):
        assert on_disk == {each.order for each in history[max(0, number - count) : number]}
    assert ranking_for(config).best(history) == history[-count:]


@given(lives)
def test_without_a_number_all_stay(steps: list[tuple[Any, str]]) -> None:
    history = history_of(steps)
    config = CheckpointConfig(checkpoint_score_attribute="m")
    assert live(policy_for(config), history)[-1] == {each.order for each in history}
    assert len(ranking_for(config).best(history)) == len(history)


POLICIES = st.recursive(
    st.one_of(
        st.builds(All),
        st.builds(Latest, st.integers(1, 4)),
        st.builds(Earliest, st.integers(1, 4)),
        st.builds(Best, st.integers(1, 4), st.just("m"), st.sampled_from(["max", "min"])),
        st.builds(EveryN, st.integers(1, 4)),
        st.builds(EveryT, st.floats(0.5, 4)),
        st.builds(Pinned, st.lists(st.integers(0, 14))),
        st.builds(
            Pareto,
            st.sampled_from([{"m": "max"}, {"m": "min"}, {"m": "max", "n": "min"}]),
            st.sampled_from([None, 1, 2, 3]),
        ),
    ),
    lambda inner: st.builds(AnyOf, st.lists(inner, max_size=3).map(tuple)),
    max_leaves=4,
)


@given(lives, POLICIES)
def test_what_a_policy_kept_it_keeps_again_when_the_rest_is_gone(steps: list[tuple[Any, str]], policy: Any) -> None:
    history = history_of(steps)
    kept = set(policy.keep(history))
    assert kept <= {each.order for each in history}
    assert set(policy.keep([each for each in history if each.order in kept])) == kept


@given(lives, POLICIES, POLICIES)
def test_a_union_keeps_what_either_keeps(steps: list[tuple[Any, str]], one: Any, other: Any) -> None:
    history = history_of(steps)
    assert set((one | other).keep(history)) == {*one.keep(history), *other.keep(history)}


# --- the rows -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["max", "min"])
def test_f06_the_best_set_is_the_same_for_every_order_of_arrival(order: str) -> None:
    scores = [nan, 1, inf, nan, -inf, 3, None]
    policy = policy_for(CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="m", checkpoint_score_order=order))
    wanted = {inf, 3} if order == "max" else {-inf, 1}
    for arrangement in itertools.permutations(scores):
        history = saves(*arrangement)
        kept = live(policy, history)[-1]
        assert history[-1].order in kept
        best = {each.metrics["m"] for each in history if each.order in kept - {history[-1].order}}
        if history[-1].order in policy.keep(history):
            best.add(history[-1].metrics["m"])
        assert best == wanted
        assert len(kept) == (2 if arrangement[-1] in wanted else 3)


@pytest.mark.parametrize("order", ["max", "min"])
def test_f06_best_is_never_nan_while_there_is_a_number(order: str) -> None:
    config = CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="m", checkpoint_score_order=order)
    worst = -inf if order == "max" else inf
    assert [each.metrics["m"] for each in ranking_for(config).best(saves(nan, worst, nan))][-1] == worst
    assert [each.iteration for each in ranking_for(config).best(saves(nan, nan, nan))] == [2, 1]


def test_f06_d04_a_nan_never_evicts_a_number() -> None:
    assert iterations(live(Best(2, "m"), saves(1, 2, nan, nan))[-1]) == [1, 2, 4]


@pytest.mark.parametrize("order", ["max", "min"])
def test_equal_scores_keep_the_earlier(order: str) -> None:
    config = CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="m", checkpoint_score_order=order)
    assert iterations(live(policy_for(config), saves(5, 5, 5, 5))[-1]) == [1, 2, 4]
    assert [each.iteration for each in ranking_for(config).best(saves(5, 5, 5, 5))] == [2, 1]


def test_f07_min_keeps_the_same_steps_as_max_of_the_negated() -> None:
    numbers = [0.4, 0.1, nan, 0.9, -inf, 0.1, 0.3, inf, 0.2]
    by_min = CheckpointConfig(num_to_keep=3, checkpoint_score_attribute="m", checkpoint_score_order="min")
    by_prefix = CheckpointConfig(num_to_keep=3, checkpoint_score_attribute="min-m")
    by_max = CheckpointConfig(num_to_keep=3, checkpoint_score_attribute="max-m")
    negated = saves(*[-number for number in numbers])
    assert live(policy_for(by_min), saves(*numbers)) == live(policy_for(by_max), negated)
    assert live(policy_for(by_prefix), saves(*numbers)) == live(policy_for(by_max), negated)


@pytest.mark.parametrize(
    "times", [lambda i: 0.0, lambda i: -float(i), lambda i: 4e9 - i], ids=["equal", "back", "future"]
)
def test_f08_d05_order_is_the_save_index_and_no_time(times: Callable[[int], float]) -> None:
    steps = [900, 1000, 2000, 9900, 10000, 10100]
    history = [Kept((1, 1, index), step, saved_at=times(index)) for index, step in enumerate(steps, start=1)]
    assert [each.iteration for each in ranking_for(CheckpointConfig(num_to_keep=2)).best(reversed(history))] == [
        10000,
        10100,
    ]
    assert live(Latest(2), history)[-1] == {(1, 1, 5), (1, 1, 6)}


def test_f08_a_later_attempt_and_generation_is_newer_whatever_its_iteration() -> None:
    history = [Kept((1, 1, 9), 90), Kept((1, 2, 1), 40), Kept((2, 1, 1), 30)]
    assert Latest(1).keep(history) == [(2, 1, 1)]


@pytest.mark.parametrize(("keep", "at_most"), [(None, 99), (1, 2), (2, 3), (5, 6)])
def test_f09_the_count_is_the_documented_one_after_every_save(keep: int | None, at_most: int) -> None:
    history = saves(*[3, 1, 2, 5, 4, 0, 7, 7, 6])
    config = CheckpointConfig(num_to_keep=keep, checkpoint_score_attribute="m")
    for number, on_disk in enumerate(live(policy_for(config), history), start=1):
        assert len(on_disk) == (
            number if keep is None else len(model_best(history[:number], keep, "max") | {(1, 1, number)})
        )
        assert len(on_disk) <= at_most
    by_recency = policy_for(CheckpointConfig(num_to_keep=keep))
    for number, on_disk in enumerate(live(by_recency, history), start=1):
        assert len(on_disk) == (number if keep is None else min(number, keep))


def test_f09_zero_of_the_first_generation_keeps_none() -> None:
    assert not policy_for(CheckpointStrategy(num_to_keep=0)).keep(saves(1, 2))
    assert ranking_for(CheckpointStrategy(num_to_keep=0)).best(saves(1, 2)) == []


def test_f10_best_and_latest_are_both_there() -> None:
    scores = [0.1] * 50
    scores[2] = 0.9
    config = CheckpointConfig(num_to_keep=1, checkpoint_score_attribute="m")
    assert iterations(live(policy_for(config), saves(*scores))[-1]) == [3, 50]
    assert [each.iteration for each in ranking_for(config).best(saves(*scores))] == [3]


def test_f11_d03_what_has_no_score_ranks_below_every_scored_one() -> None:
    scores = [ABSENT, ABSENT, 5, ABSENT, ABSENT, 4, ABSENT, ABSENT, nan, ABSENT]
    for order in ("max", "min"):
        config = CheckpointConfig(num_to_keep=3, checkpoint_score_attribute="m", checkpoint_score_order=order)
        assert iterations(live(policy_for(config), saves(*scores))[-1]) == [3, 6, 9, 10]


def test_f12_a_nested_metric_scores() -> None:
    history = [Kept((1, 1, i), i, {"evaluation": {"reward": value}}) for i, value in enumerate([1, 9, 3], start=1)]
    for name in ("evaluation/reward", "max-evaluation/reward", "evaluation.reward"):
        config = CheckpointConfig(num_to_keep=1, checkpoint_score_attribute=name)
        assert policy_for(config).keep(history) == [(1, 1, 2)]


def test_d01_the_prefix_is_no_part_of_the_name() -> None:
    config = CheckpointConfig(num_to_keep=1, checkpoint_score_attribute="max-m")
    assert policy_for(config) == Best(1, "m", "max")


@pytest.mark.parametrize(
    ("attribute", "order", "reported", "best"),
    [
        ("max-m", "max", ["m"], 2),
        ("max-m", "max", ["max-m"], 2),
        ("min-m", "min", ["min-m"], 3),
        ("min-m", "max", ["m"], 3),
        ("min-m", "max", ["min-m"], 2),  # the lowest accuracy of a batch: higher is better
        ("max-m", "min", ["max-m"], 3),  # the highest loss of a batch: lower is better
        ("max-max-m", "max", ["max-m"], 2),
        ("min-max-m", "max", ["max-m"], 3),
        ("max-m", "max", ["m", "max-m"], 3),  # here -m; as it is spelled comes first
        ("max-m", "max", [], 1),
    ],
)
def test_a_metric_may_be_called_like_a_prefix_and_another_one(
    attribute: str, order: str, reported: list[str], best: int
) -> None:
    history = []
    for index, value in enumerate([5, 9, 1, 4], start=1):
        metrics = {name: -value if len(reported) > 1 and name != "m" else value for name in reported}
        history.append(Kept((1, 1, index), index, {**metrics, "other": 1}))
    config = CheckpointConfig(num_to_keep=1, checkpoint_score_attribute=attribute, checkpoint_score_order=order)
    assert policy_for(config).keep(history) == [(1, 1, best)]
    assert [each.iteration for each in ranking_for(config).best(history)] == [best]
    assert [each.iteration for each in ranking_for(CheckpointConfig(keep=[policy_for(config)])).best(history)] == [best]


def test_the_example_of_the_first_generation() -> None:
    config = CheckpointStrategy(num_to_keep=2, checkpoint_score_attribute="loss", checkpoint_score_order="min")
    history = [Kept((1, 1, index), index, {"loss": loss}) for index, loss in enumerate([2, 4, 1, 3], start=1)]
    assert iterations(set(policy_for(config).keep(history))) == [1, 3]
    assert [each.iteration for each in ranking_for(config).best(history)] == [1, 3]


@pytest.mark.parametrize(
    ("config", "policy"),
    [
        (CheckpointConfig(), All()),
        (CheckpointConfig(num_to_keep=2), Latest(2)),
        (CheckpointConfig(num_to_keep=2, checkpoint_score_order="min"), Latest(2)),
        (CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="min-l"), Best(2, "l", "min")),
        (CheckpointConfig(keep=[EveryN(5)]), AnyOf((EveryN(5),))),
        (CheckpointConfig(keep=[EveryN(5)], num_to_keep=2), AnyOf((EveryN(5), Latest(2)))),
        (CheckpointStrategy(), All()),
        (CheckpointStrategy(2), Latest(2)),
        (CheckpointStrategy(2, None), Latest(2)),
        (CheckpointStrategy(2, checkpoint_score_order="min"), Earliest(2)),
        (CheckpointStrategy(2, "loss", "min"), Best(2, "loss", "min")),
    ],
)
def test_what_a_config_means_as_a_policy(config: Any, policy: RetentionPolicy) -> None:
    assert policy_for(config) == policy


def test_policies_given_alone_say_what_best_means() -> None:
    history = saves(3, 9, 5)
    assert [each.iteration for each in ranking_for(CheckpointConfig(keep=[EveryN(9), Best(1, "m")])).best(history)] == [
        2
    ]
    assert [each.iteration for each in ranking_for(CheckpointConfig(keep=[EveryN(9)])).best(history)] == [1, 2, 3]


def test_every_n_keeps_multiples() -> None:
    assert iterations(live(EveryN(4), saves(*range(10)))[-1]) == [4, 8, 10]


def test_every_t_keeps_one_per_span() -> None:
    history = [Kept((1, 1, i), i, saved_at=t) for i, t in enumerate([0, 5, 9, 10, 12, 25, 26], start=1)]
    assert iterations(live(EveryT(10), history)[-1]) == [1, 4, 6, 7]


def test_every_t_goes_on_after_the_clock_was_set_back() -> None:
    history = [Kept((1, 1, i), i, saved_at=t) for i, t in enumerate([1000, 1010, 3, 8, 13], start=1)]
    assert iterations(live(EveryT(10), history)[-1]) == [1, 2, 3, 5]


def test_pinned_keeps_milestones_by_iteration_or_by_a_function() -> None:
    history = saves(0.1, 0.6, 0.2, 0.7, 0.3)
    assert iterations(live(Pinned([1, 3]), history)[-1]) == [1, 3, 5]
    assert iterations(live(Pinned(lambda kept: kept.metrics["m"] > 0.5), history)[-1]) == [2, 4, 5]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Latest(0),
        lambda: Latest(True),
        lambda: Best(0, "m"),
        lambda: Best(1, ""),
        lambda: Best(1, "m", "maximum"),  # type: ignore[arg-type]
        lambda: EveryN(0),
        lambda: EveryT(0),
        lambda: EveryT(nan),
        lambda: Pareto({}),
        lambda: Pareto(["acc"]),  # type: ignore[arg-type]
        lambda: Pareto({"acc": "most"}),  # type: ignore[dict-item]
        lambda: Pareto({"": "max"}),
        lambda: Pareto({"acc": "max"}, limit=0),
        lambda: Pinned("12"),  # type: ignore[arg-type]
        lambda: Pinned([1.5]),  # type: ignore[list-item]
        lambda: Pinned(5),  # type: ignore[arg-type]
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(make: Callable[[], RetentionPolicy]) -> None:
    with pytest.raises(ValueError, match="accepted"):
        make()


# --- Pareto -----------------------------------------------------------------------------------------------

METRICS = {"m": "max", "n": "min"}
pairs = st.lists(st.tuples(values, values), min_size=1, max_size=12)


def two(*scores: tuple[Any, Any]) -> list[Kept]:
    named = [{name: value for name, value in zip("mn", pair, strict=True) if value is not ABSENT} for pair in scores]
    return [Kept((1, 1, index), index, metrics) for index, metrics in enumerate(named, start=1)]


def model_front(history: Sequence[Kept]) -> set[Order]:
    """Straight from the definition, over `model_better`: nobody is nowhere worse, and better somewhere or earlier."""

    def worse(a: Kept, b: Kept, name: str) -> bool:
        """Is a's value below b's? (`model_better` breaks ties by age, so it is asked of twins of one age.)"""
        one, other = (Kept((1, 1, 1), 1, {"m": x.metrics[name]} if name in x.metrics else {}) for x in (a, b))
        return model_better(other, one, METRICS[name])

    def beats(a: Kept, b: Kept) -> bool:
        if any(worse(a, b, name) for name in METRICS):
            return False
        return any(worse(b, a, name) for name in METRICS) or a.order < b.order

    return {one.order for one in history if not any(beats(other, one) for other in history if other is not one)}


@given(pairs)
def test_the_front_is_what_its_definition_says(scores: list[tuple[Any, Any]]) -> None:
    history = two(*scores)
    assert set(Pareto(METRICS).keep(history)) == model_front(history)


@given(pairs)
def test_the_front_on_disk_after_every_save_is_that_of_all_that_was_ever_saved(scores: list[tuple[Any, Any]]) -> None:
    history = two(*scores)
    for index, disk in enumerate(live(Pareto(METRICS), history)):
        assert disk == {*model_front(history[: index + 1]), history[index].order}


@given(pairs, st.integers(1, 4), st.randoms())
def test_a_limit_takes_from_the_front_whatever_order_they_are_looked_at_in(
    scores: list[tuple[Any, Any]], limit: int, draw: Any
) -> None:
    history = two(*scores)
    policy = Pareto(METRICS, limit=limit)
    front = model_front(history)
    kept = set(policy.keep(history))
    assert kept <= front and len(kept) == min(limit, len(front))
    shuffled = list(history)
    draw.shuffle(shuffled)
    assert set(policy.keep(shuffled)) == kept


def test_a_limit_leaves_out_the_most_crowded_and_keeps_the_ends() -> None:
    history = two((1.0, 1.0), (2.0, 2.0), (2.1, 2.1), (6.0, 6.0), (10.0, 10.0))
    assert iterations(set(Pareto(METRICS, limit=3).keep(history))) == [1, 4, 5]


def test_f06_a_point_of_nan_is_on_no_front_while_there_is_another() -> None:
    history = two((nan, nan), (ABSENT, 1.0), (1.0, 1.0), (inf, 5.0))
    assert iterations(set(Pareto(METRICS).keep(history))) == [3, 4]


def test_pareto_beside_others_keeps_what_either_keeps() -> None:
    config = CheckpointConfig(keep=[Pareto({"m": "max", "n": "min"}), EveryN(2)])
    history = two((5, 5), (4, 6), (3, 7), (6, 6))
    assert iterations(set(policy_for(config).keep(history))) == [1, 2, 4]
