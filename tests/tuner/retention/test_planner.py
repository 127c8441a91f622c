"""What may go of a trial: policies, and what R3 protects beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainables.config import CheckpointConfig, CheckpointStrategy
from trainables.store.retention import Best, EveryN, Latest, Order, policy_for
from trainables.wire import CheckpointRef
from tuner.retention import Ending, RetentionPlanner, TrialRetention


@dataclass(frozen=True)
class Saved:
    """A record as the manager sees it."""

    ref: CheckpointRef
    metrics: dict[str, Any] = field(default_factory=dict)
    bytes: int = 1
    saved_at: float = 0.0

    @property
    def order(self) -> Order:
        return self.ref.order

    @property
    def iteration(self) -> int:
        return self.ref.iteration


def save(index: int, *, trial: str = "t", **metrics: Any) -> Saved:
    return Saved(CheckpointRef(trial, f"checkpoint_{index:06d}", 1, 1, index, index), metrics)


def left(records: Sequence[Saved], forgotten: Sequence[CheckpointRef]) -> list[int]:
    return [record.iteration for record in records if record.ref not in forgotten]


BEST_ONE = CheckpointConfig(num_to_keep=1, checkpoint_score_attribute="m")


@pytest.mark.parametrize("ending", list(Ending))
@pytest.mark.parametrize(
    "config",
    [
        BEST_ONE,
        CheckpointConfig(num_to_keep=1, checkpoint_score_attribute="min-m"),
        CheckpointConfig(num_to_keep=3),
        CheckpointConfig(keep=[EveryN(100)]),
        CheckpointConfig(keep=[Best(1, "m")]),
        CheckpointConfig(keep=[EveryN(7), Latest(1)], num_to_keep=1),
        CheckpointStrategy(num_to_keep=0),
        CheckpointStrategy(1, "m"),
    ],
)
def test_d06_no_setting_removes_the_latest_of_a_trial_that_can_run(config: Any, ending: Ending) -> None:
    records = [save(index, m=score) for index, score in enumerate([5, 9, 1, 7, 0], start=1)]
    gone = TrialRetention(config).forget(records, ending)
    if ending is Ending.ENDED and isinstance(config, CheckpointStrategy):
        assert 5 not in left(records, gone)
    else:
        assert 5 in left(records, gone)


def test_r3_exactly_the_best_n_stay_under_a_strategy_after_a_good_end() -> None:
    records = [save(index, loss=loss) for index, loss in enumerate([2, 4, 1, 3], start=1)]
    retention = TrialRetention(CheckpointStrategy(2, "loss", "min"))
    assert left(records, retention.forget(records, Ending.UNFINISHED)) == [1, 3, 4]
    assert left(records, retention.forget(records, Ending.ERRORED)) == [1, 3, 4]
    assert left(records, retention.forget(records, Ending.ENDED)) == [1, 3]
    none = TrialRetention(CheckpointStrategy(0))
    assert left(records, none.forget(records, Ending.UNFINISHED)) == [4]
    assert left(records, none.forget(records, Ending.ENDED)) == []


def test_r3_what_is_in_use_stays_beside_the_best_n() -> None:
    records = [save(index, m=score) for index, score in enumerate([1, 2, 9, 3, 4], start=1)]
    retention = TrialRetention(BEST_ONE)
    gone = retention.forget(records, Ending.UNFINISHED, in_use={(1, 1, 2)})
    assert left(records, gone) == [2, 3, 5]
    assert gone == [records[0].ref, records[3].ref]  # oldest first
    later = [record for record in records if record.ref not in gone]
    assert left(later, retention.forget(later, Ending.UNFINISHED)) == [3, 5]


def test_f10_best_and_newest_are_both_there() -> None:
    records: list[Saved] = []
    retention = TrialRetention(BEST_ONE)
    for iteration in range(1, 51):
        records.append(save(iteration, m=0.9 if iteration == 3 else 0.1))
        gone = retention.forget(records, Ending.UNFINISHED)
        records = [record for record in records if record.ref not in gone]
        assert len(records) <= 2
    assert [record.iteration for record in records] == [3, 50]
    assert [record.iteration for record in retention.ranking.best(records)] == [3]


def test_d21_what_is_set_aside_does_not_push_out_a_complete_one() -> None:
    records = [save(index, m=index) for index in range(1, 5)]
    retention = TrialRetention(CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="m"))
    complete = [records[0], records[2]]  # 2 and 4 turned out broken, and are no records any more
    assert retention.forget(complete, Ending.UNFINISHED) == []


def test_order_of_records_does_not_matter() -> None:
    records = [save(index, m=index % 3) for index in range(1, 8)]
    retention = TrialRetention(BEST_ONE)
    assert retention.forget(records[::-1], Ending.UNFINISHED) == retention.forget(records, Ending.UNFINISHED)


def test_nothing_saved_and_everything_kept_forget_nothing() -> None:
    assert TrialRetention(BEST_ONE).forget([], Ending.ENDED) == []
    assert TrialRetention(CheckpointConfig()).forget([save(1), save(2)], Ending.ENDED) == []


@given(
    st.lists(st.one_of(st.none(), st.integers(-3, 3), st.just(float("nan"))), min_size=1, max_size=10),
    st.sampled_from(list(Ending)),
    st.sampled_from([BEST_ONE, CheckpointConfig(num_to_keep=2), CheckpointStrategy(2, "m"), CheckpointStrategy(0)]),
    st.sets(st.integers(1, 10)),
)
def test_r3_what_stays_is_what_the_policy_names_the_latest_and_what_is_in_use(
    scores: list[Any], ending: Ending, config: Any, used: set[int]
) -> None:
    records = [save(index, m=score) for index, score in enumerate(scores, start=1)]
    gone = {ref.order for ref in TrialRetention(config).forget(records, ending, {(1, 1, index) for index in used})}
    named = set(policy_for(config).keep(records))
    for record in records:
        is_latest = record is records[-1]
        latest_counts = not (isinstance(config, CheckpointStrategy) and ending is Ending.ENDED)
        stays = record.order in named or record.iteration in used or (is_latest and latest_counts)
        assert (record.order not in gone) == stays


def test_d02_a_mistyped_attribute_is_one_notice_at_the_first_checkpoint_with_the_nearest_key() -> None:
    planner = RetentionPlanner(CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="max-acuracy"))
    (notice,) = planner.observe(save(1, loss=1.0, accuracy=0.5, training_iteration=1))
    assert "'acuracy'" in notice
    assert "Reported, nearest first: accuracy, " in notice
    assert "loss" in notice
    assert [planner.observe(save(i, trial=f"t{i}", accuracy=0.5)) for i in range(2, 50)] == [[]] * 48


def test_a_metric_called_like_a_prefix_and_another_one_is_a_notice_only_where_its_order_surprises() -> None:
    acc, auc = {"min-acc": 0.5}, {"max-auc": 0.5}
    planner = RetentionPlanner(CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="min-acc"))
    (notice,) = planner.observe(save(1, **acc))
    assert "'min-acc' names a reported metric, and higher is better, because checkpoint_score_order='max'" in notice
    assert planner.observe(save(2, **acc)) == []
    assert RetentionPlanner(CheckpointConfig(2, "max-auc")).observe(save(1, **auc)) == []
    assert RetentionPlanner(CheckpointConfig(2, "min-acc")).observe(save(1, acc=0.5)) == []
    (absent,) = RetentionPlanner(CheckpointConfig(2, "max-acc", "min")).observe(save(1, acc=0.5))
    assert "'max-acc' is not in the result" in absent and "nearest first: acc" in absent


def test_f11_a_metric_that_is_there_sometimes_is_one_notice() -> None:
    planner, retention = RetentionPlanner(BEST_ONE), TrialRetention(BEST_ONE)
    records: list[Saved] = []
    notices = []
    for iteration in range(1, 11):
        record = save(iteration, m=iteration) if iteration % 3 == 0 else save(iteration, loss=0.1)
        notices += planner.observe(record)
        records.append(record)
        gone = retention.forget(records, Ending.UNFINISHED)
        records = [each for each in records if each.ref not in gone]
    assert [record.iteration for record in records] == [9, 10]
    assert len(notices) == 1
    assert "iteration 1" in notices[0] and "loss" in notices[0]


@pytest.mark.parametrize("value", [None, "high", True, [1]])
def test_a_score_that_is_no_number_is_a_notice_of_its_own(value: Any) -> None:
    planner = RetentionPlanner(BEST_ONE)
    (absent,) = planner.observe(save(1))
    assert "is not in the result" in absent
    (notice,) = planner.observe(save(2, m=value))
    assert "no number" in notice and repr(value) in notice
    assert planner.observe(save(3, m=value)) == []


@pytest.mark.parametrize("config", [CheckpointConfig(num_to_keep=2), CheckpointStrategy(2)])
def test_recency_needs_no_metric_and_warns_of_none(config: Any) -> None:
    assert RetentionPlanner(config).observe(save(1)) == []


def test_metrics_of_given_policies_are_looked_at_too() -> None:
    planner = RetentionPlanner(CheckpointConfig(keep=[Best(1, "a"), EveryN(3) | Best(2, "b")]))
    assert len(planner.observe(save(1, b=1))) == 1


@pytest.mark.parametrize(
    ("status", "ending"),
    [
        ("PENDING", Ending.UNFINISHED),
        ("RUNNING", Ending.UNFINISHED),
        ("PAUSED", Ending.UNFINISHED),
        ("ERROR", Ending.ERRORED),
        ("TERMINATED", Ending.ENDED),
    ],
)
def test_how_a_status_counts(status: str, ending: Ending) -> None:
    assert Ending.of(status) is ending
