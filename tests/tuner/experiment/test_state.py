"""What facts add up to: the same whether they are applied one by one, or go on from a snapshot of them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.tuner.experiment.facts import TRIAL, attempt, created, life, published, raw, ref, result, saved, state_of
from tuner.error import ExperimentDamagedError
from tuner.experiment import events as ev
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial

ROOT = Path("/results/e")
LIVES = given(st.integers(0, 10_000), st.integers(5, 60))


def seen(state: ExperimentState) -> dict[str, Any]:
    """All that anybody can ask it. Numbers of saves tell which came first, and nothing else."""
    snapshot = json.loads(state.snapshot({"searcher": "hash"}))
    records = [record for trial in snapshot["trials"] for record in trial.get("checkpoints", ())]
    for place, record in enumerate(sorted(records, key=lambda record: record["number"])):
        record["number"] = place
    return {
        "snapshot": snapshot,
        "counts": state.counts,
        "borrowed": state.borrowed,
        "totals": (state.checkpoint_count, state.checkpoint_bytes),
        "directories": [trial.directory for trial in state.trials],
        "results": [(trial.last_result, trial.metric_analysis, trial.unsummed_metrics) for trial in state.trials],
    }


@LIVES
@example(541, 32)  # a clone's only checkpoint is set aside as damaged: it needs the donor's again
def test_a_snapshot_of_any_prefix_goes_on_to_the_same_state(seed: int, length: int) -> None:
    facts = life(random.Random(seed), length)
    cut = random.Random(seed + 1).randrange(len(facts))
    whole = state_of(ROOT, *facts)
    again = ExperimentState.from_snapshot(ROOT, state_of(ROOT, *facts[:cut]).snapshot({}))
    for fact in facts[cut:]:
        again.apply(fact)
    assert seen(again) == seen(whole)


@LIVES
def test_the_totals_are_those_of_the_trials(seed: int, length: int) -> None:
    state = state_of(ROOT, *life(random.Random(seed), length))
    statuses = [trial.status for trial in state.trials]
    assert state.counts == {status: statuses.count(status) for status in state.counts}
    records = [record for trial in state.trials for record in trial.checkpoints]
    assert (state.checkpoint_count, state.checkpoint_bytes) == (len(records), 10 * len(records))
    for trial in state.trials:
        orders = [record.order for record in trial.checkpoints]
        assert orders == sorted(set(orders)) and not {ref.order for ref in trial.forgotten} & set(orders)
        assert trial.iteration >= max((record.iteration for record in trial.own_checkpoints), default=0) or trial.clones


@LIVES
def test_facts_are_read_back_as_they_were_written(seed: int, length: int) -> None:
    facts = life(random.Random(seed), length)
    assert [ev.encode(ev.decode(ev.encode(fact))) for fact in facts] == [ev.encode(fact) for fact in facts]
    assert seen(state_of(ROOT, *(ev.decode(ev.encode(fact)) for fact in facts))) == seen(state_of(ROOT, *facts))


def test_every_kind_of_fact_is_applied() -> None:
    lives = [fact for seed in range(40) for fact in life(random.Random(seed), 60)]
    others = {ev.Reallocated, ev.SettingChanged, ev.SearchEnded, ev.Idle, ev.RunEnded}
    assert {type(fact) for fact in lives} | others == set(get_args(ev.AnyFact))


# --- facts that fit to nothing ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fact",
    [
        attempt(trial="nobody"),
        result(1, trial="nobody"),
        published(1, trial="nobody"),
        ev.CheckpointForgotten(ref(1, trial="nobody")),
        ev.TrialEnded("nobody", "ERROR", 0.0),
        ev.TrialReopened("nobody"),
        ev.Exploited(TRIAL, ref(1), raw([1]), 1),
        ev.ResultReported(TRIAL, 1, 1, raw(3)),
        ev.TrialCreated("ab_1", 1, raw({}), dirname="../../etc"),
        ev.TrialCreated("ab_1", 1, raw({}), dirname=""),
    ],
)
def test_a_fact_that_fits_to_nothing_is_damage_with_its_kind(fact: ev.AnyFact) -> None:
    state = state_of(ROOT, created())
    with pytest.raises(ExperimentDamagedError) as caught:
        state.apply(fact)
    assert type(fact).__struct_config__.tag in str(caught.value) or "name" in str(caught.value)


def test_a_trial_that_was_never_created_is_named() -> None:
    with pytest.raises(ExperimentDamagedError, match="names trial 'ab_7', which it never created"):
        state_of(ROOT, created()).trial("ab_7")


# --- one by one -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "status"),
    [
        ([], "PENDING"),
        ([attempt()], "RUNNING"),
        ([attempt(), ev.AttemptEnded(TRIAL, 1, "failed")], "PENDING"),
        ([attempt(), ev.AttemptEnded(TRIAL, 1, "paused")], "PENDING"),  # it has nothing to go on from
        ([attempt(), *saved(1), ev.AttemptEnded(TRIAL, 1, "paused")], "PAUSED"),
        ([attempt(), *saved(1), ev.AttemptEnded(TRIAL, 1, "halted")], "PAUSED"),
        ([attempt(), *saved(1), ev.AttemptEnded(TRIAL, 1, "failed")], "PENDING"),
        ([attempt(), ev.TrialEnded(TRIAL, "TERMINATED", 0.0)], "TERMINATED"),
        ([attempt(), ev.TrialEnded(TRIAL, "ERROR", 0.0)], "ERROR"),
        ([attempt(), ev.TrialEnded(TRIAL, "ERROR", 0.0), ev.TrialReopened(TRIAL)], "PENDING"),
    ],
)
def test_the_status_follows_from_the_facts(facts: list[ev.AnyFact], status: str) -> None:
    state = state_of(ROOT, created(), *facts)
    assert state.trials[0].status == status and state.counts[status] == 1


def test_going_back_takes_the_summary_of_the_checkpoint_and_none_where_there_is_none() -> None:
    begun = [created(), attempt(), *saved(1, loss=4.0), result(2, loss=1.0), ev.AttemptEnded(TRIAL, 1, "failed")]
    (trial,) = state_of(ROOT, *begun).trials
    assert trial.metric_analysis["loss"]["min"] == 1.0
    (trial,) = state_of(ROOT, *begun, ev.RolledBack(TRIAL, 2, 1)).trials
    assert (trial.iteration, trial.last_result["loss"]) == (1, 4.0)
    assert trial.metric_analysis["loss"] == {"min": 4.0, "max": 4.0, "avg": 4.0}
    (trial,) = state_of(ROOT, *begun, ev.RolledBack(TRIAL, 2, 0)).trials
    assert (trial.iteration, trial.last_result, trial.metric_analysis) == (0, {}, {})


def test_a_checkpoint_that_was_found_ahead_of_the_results_brings_its_own_and_doubts_the_summary() -> None:
    found = published(3, metrics={"loss": 0.5, "training_iteration": 3})
    (trial,) = state_of(ROOT, created(), attempt(), result(1, loss=4.0), found).trials
    assert (trial.iteration, trial.last_result["loss"], trial.unsummed_metrics) == (3, 0.5, {"loss"})
    found = published(2, metrics={"loss": 0.5, "training_iteration": 2})
    (trial,) = state_of(ROOT, created(), attempt(), result(1, loss=4.0), found).trials
    assert trial.metric_analysis["loss"] == {"min": 0.5, "max": 4.0, "avg": 2.25}, "nothing is between them"


def test_a_clone_borrows_until_it_has_one_of_its_own_or_has_ended() -> None:
    donor = "ab_00001"
    before: list[ev.AnyFact] = [
        created(), created(1), attempt(trial=donor), result(1, trial=donor, saves=True), published(1, trial=donor),
        attempt(), ev.AttemptEnded(TRIAL, 1, "paused"), ev.Exploited(TRIAL, ref(1, trial=donor), raw({"x": 9}), 4),
    ]  # fmt: skip
    lent = {TRIAL: ref(1, trial=donor)}
    state = state_of(ROOT, *before)
    assert state.borrowed == lent and state.trials[0].config == {"x": 9}
    assert state.trials[0].clones[0].changed == {"x": (None, 9)}
    state.apply(attempt(2, checkpoint=ref(1, trial=donor), iteration=4))
    assert state.borrowed == lent
    state.apply(ev.AttemptEnded(TRIAL, 2, "failed"))
    state.apply(attempt(3, checkpoint=ref(1, trial=donor), iteration=4))
    assert state.borrowed == lent, "it died before its first save"
    for fact in (result(5, number=3, saves=True), published(5, number=3)):
        state.apply(fact)
    assert state.borrowed == {}
    ended = state_of(ROOT, *before, ev.TrialEnded(TRIAL, "TERMINATED", 0.0))
    assert ended.borrowed == {}


@pytest.mark.parametrize(
    ("after", "due"),
    [
        ([], 2),
        ([published(2)], 0),
        ([ev.PublishFailed(ref(2), "no space")], 2),  # it is to be saved again
        ([ev.PublishFailed(ref(2), "no space", True)], 0),  # whoever goes on after the error knows
        ([published(2), ev.CheckpointSetAside(ref(2), "short")], 2),
    ],
)
def test_a_save_is_due_until_it_is_on_the_disk(after: list[ev.AnyFact], due: int) -> None:
    (trial,) = state_of(ROOT, created(), attempt(), *saved(1), result(2, saves=True), *after).trials
    assert trial.save_due == due


def test_failures_count_until_a_result_is_new() -> None:
    state = state_of(ROOT, created(), attempt(), result(1), result(2))
    (trial,) = state.trials
    for number in (1, 2):
        state.apply(ev.AttemptEnded(TRIAL, number, "failed"))
        state.apply(attempt(number + 1))
        state.apply(result(1, number=number + 1))  # it had that before
    assert (trial.num_failures, trial.failures_in_row, trial.told) == (2, 2, 2)
    state.apply(result(3, number=3))
    assert (trial.num_failures, trial.failures_in_row) == (2, 0)
    state.apply(ev.AttemptEnded(TRIAL, 3, "lost"))
    assert (trial.num_failures, trial.num_lost) == (2, 1)


def test_a_copy_counts_once_and_what_is_given_up_here_says_so() -> None:
    copied = ev.CheckpointCopied(ref(1), "s3://bucket/e")
    (trial,) = state_of(ROOT, created(), attempt(), *saved(1), copied, copied, ev.LocalCopyDropped(ref(1))).trials
    (record,) = trial.checkpoints
    assert record.copies == ["s3://bucket/e"] and not record.here
    assert trial.status == Trial.RUNNING
