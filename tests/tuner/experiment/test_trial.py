"""One trial, as the facts about it add up: what users read of it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tuner.experiment.facts import (
    TRIAL,
    attempt,
    created,
    published,
    raw,
    ref,
    result,
    saved,
    state_of,
    trial_of,
)
from trainables import tagged
from tuner.experiment import events as ev
from tuner.experiment.forks import evaluated_at
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial

FAILED = ev.AttemptEnded(TRIAL, 1, "failed")


# --- results --------------------------------------------------------------------------------------------------------


@given(st.lists(st.one_of(st.floats(allow_nan=False, allow_infinity=False, width=32), st.just(math.nan)), min_size=1))
def test_the_summary_is_that_of_the_numbers(values: list[float]) -> None:
    facts = [ev.ResultReported(TRIAL, 1, n, result_of({"loss": value})) for n, value in enumerate(values, start=1)]
    trial = trial_of(attempt(), *facts)
    numbers = [value for value in values if not math.isnan(value)]
    if not numbers:
        assert "loss" not in trial.metric_analysis
        return
    found = trial.metric_analysis["loss"]
    assert (found["min"], found["max"]) == (min(numbers), max(numbers))
    assert found["avg"] == pytest.approx(math.fsum(numbers) / len(numbers), rel=1e-6, abs=1e-6 * max(map(abs, numbers)))


def result_of(metrics: dict[str, Any]) -> Any:
    return msgspec.Raw(tagged.dumps(metrics))


def test_a_metric_that_was_infinite_once_is_known_to_the_history_only() -> None:
    facts = [
        ev.ResultReported(TRIAL, 1, n, result_of({"loss": loss})) for n, loss in ((1, 1.0), (2, math.inf), (3, 2.0))
    ]
    trial = trial_of(attempt(), *facts)
    assert trial.unsummed_metrics == {"loss"} and trial.metric_analysis == {}


def test_a_trial_that_has_ended_says_the_same_in_fewer_bytes() -> None:
    facts = [attempt(), *saved(1, loss=3.0), result(2, loss=1.0)]
    trial, ended = trial_of(*facts), trial_of(*facts, ev.TrialEnded(TRIAL, "TERMINATED", 9.0))
    assert ended.last_result == trial.last_result and ended.metric_analysis == trial.metric_analysis
    assert ended.checkpoints[0].metrics == trial.checkpoints[0].metrics
    assert "last_result" not in ended.__dict__, "it is read again when it is asked for"


@pytest.mark.parametrize(("timestamp", "heard"), [(7.0, 7.0), (None, 0.0), ("late", 0.0), (float("inf"), 0.0)])
def test_when_it_was_last_heard_of_is_what_its_result_says_if_that_is_a_time(timestamp: Any, heard: float) -> None:
    trial = trial_of(attempt(), ev.ResultReported(TRIAL, 1, 1, result_of({"timestamp": timestamp})))
    assert trial.last_heard_of == heard
    assert trial_of().last_heard_of == 0.0


# --- what it goes on from -------------------------------------------------------------------------------------------


def test_its_own_checkpoints_are_those_of_the_life_that_stands() -> None:
    before = [attempt(), *saved(1), FAILED]
    trial = trial_of(*before, attempt(2, checkpoint=ref(1), iteration=1))
    assert [record.iteration for record in trial.own_checkpoints] == [1]
    trial = trial_of(*before, ev.RolledBack(TRIAL, 2, 0), attempt(2))  # anew
    assert trial.own_checkpoints == trial.ranked_checkpoints == [] and len(trial.checkpoints) == 1
    assert trial.latest_checkpoint is not None and trial_of().latest_checkpoint is None


def exploited(iteration: int, number: int, **config: Any) -> list[ev.AnyFact]:
    """The trial goes on from another one's checkpoint."""
    donor = ref(9, trial="ab_00001")
    start = attempt(number, checkpoint=donor, iteration=iteration)
    return [ev.Exploited(TRIAL, donor, raw(config), iteration), start]


def test_what_a_clone_changed_counts_as_searched() -> None:
    """Not only what the search proposed, as of a function that explores."""
    donor, tuples = ref(9, trial="ab_00001"), {"$": "tuple", "v": [1, 2]}
    first, later = {"x": 1, "lr": 0.1, "opt": {"name": "sgd"}, "size": None, "k": 0}, {"lr": 0.2, "size": tuples}
    begun = ev.TrialCreated("ab_00000", 0, raw(first), evaluated=raw({"x": 1}), name="t", dirname="t", trainable="t")
    state = state_of(Path("/results/e"), begun, attempt())
    assert state.trials[0].evaluated_params == {"x": 1}
    state.apply(ev.Exploited(TRIAL, donor, raw(first | later), 2))
    state.apply(ev.Exploited(TRIAL, donor, raw(first | later | {"x": 2, "opt": {"name": "adam"}}), 3))
    trial = state.trials[0]
    assert trial.evaluated_params == {"x": 2, "lr": 0.2, "opt/name": "adam", "size": (1, 2)}
    assert evaluated_at(trial, 3) == {"x": 1, "lr": 0.2, "opt/name": "sgd", "size": (1, 2)}
    assert evaluated_at(trial, 2) == {"x": 1, "lr": 0.1, "opt/name": "sgd", "size": None}


ANEW = ev.TrialReopened(TRIAL, anew=True)
ENDED = ev.TrialEnded(TRIAL, "ERROR", 900.0)


@pytest.mark.parametrize(
    ("facts", "ranked"),
    [
        ([], [1, 2]),
        ([*exploited(2, 2), published(3, number=2)], [1, 2, 3]),
        ([*exploited(2, 2), published(3, number=2), *exploited(3, 3), published(4, number=3)], [1, 2, 3, 4]),
        ([FAILED, attempt(2, checkpoint=ref(2), iteration=2), published(3, number=2)], [1, 2, 3]),
        ([ENDED, ev.TrialReopened(TRIAL), attempt(2, checkpoint=ref(2), iteration=2)], [1, 2]),
        ([ENDED, ANEW], []),
        ([ENDED, ANEW, attempt(2), published(1, number=2)], [1]),
        ([ENDED, ANEW, attempt(2), published(1, number=2), *exploited(1, 3), published(2, number=3)], [1, 2]),
        ([*exploited(2, 2), published(3, number=2), ENDED, ANEW, attempt(3), published(1, number=3)], [1]),
        ([ENDED, ANEW, attempt(1, generation=2), published(1, generation=2)], [1]),
    ],
)
def test_the_best_is_of_all_saves_since_it_last_started_anew(facts: list[ev.AnyFact], ranked: list[int]) -> None:
    state = state_of(Path("/results/e"), created(), created(1), attempt(), *saved(1), *saved(2), *facts)
    again = ExperimentState.from_snapshot(Path("/results/e"), state.snapshot({}))
    for trial in (state.trials[0], again.trials[0]):
        assert [record.iteration for record in trial.ranked_checkpoints] == ranked


def test_a_snapshot_that_does_not_say_when_a_trial_started_anew_is_read() -> None:
    state = state_of(Path("/results/e"), created(), attempt(), *saved(1), ENDED, ANEW, attempt(2), *saved(1))
    body = json.loads(state.snapshot({}))
    del body["trials"][0]["ranked_since"]
    (trial,) = ExperimentState.from_snapshot(Path("/results/e"), json.dumps(body).encode()).trials
    assert trial.ranked_since == (1, 2)


@pytest.mark.parametrize(
    ("facts", "known"),
    [
        # To a checkpoint, which knows the results before it.
        ([*saved(2), result(3, loss=9.0), FAILED, ev.RolledBack(TRIAL, 2, 2)], {"min": 5.0, "max": 5.0, "avg": 5.0}),
        ([*saved(2), result(3, loss=9.0), ENDED, ev.TrialReopened(TRIAL), ev.RolledBack(TRIAL, 2, 2)], {"avg": 5.0}),
        # To where it became a clone, without a save of that iteration.
        ([result(2), *exploited(2, 2), result(3, number=2, loss=9.0), ev.RolledBack(TRIAL, 3, 2)], None),
        ([ev.RolledBack(TRIAL, 2, 0)], None),
    ],
)
def test_results_before_a_rollback_count_or_are_left_to_the_history(
    facts: list[ev.AnyFact], known: dict[str, float] | None
) -> None:
    trial = state_of(Path("/results/e"), created(), created(1), attempt(), *saved(1, loss=5.0), *facts).trials[0]
    found = trial.metric_analysis.get("loss")
    assert found == known if known is None else (found or {}).items() >= known.items()
    assert ("loss" in trial.unsummed_metrics) == (known is None and trial.iteration > 0)


@pytest.mark.parametrize(
    ("facts", "stopped", "behind"),
    [
        ([result(1)], False, False),
        ([result(1, then="stop")], True, False),
        ([result(1, then="stop", saves=True)], False, True),
        ([result(1, then="stop", saves=True), published(1)], True, False),
        ([result(1, then="pause", saves=True), published(1)], False, False),
        ([result(1, then="pause", saves=True)], False, True),
        ([*saved(1), result(2, then="stop"), FAILED, ev.RolledBack(TRIAL, 2, 1)], False, True),
    ],
)
def test_whether_it_is_at_an_end_that_was_decided(facts: list[ev.AnyFact], stopped: bool, behind: bool) -> None:
    trial = trial_of(attempt(), *facts)
    assert (trial.is_stopped, trial.is_behind) == (stopped, behind)


def test_an_opened_checkpoint_is_the_one_here_or_the_newest_copy(tmp_path: Path) -> None:
    copies = [ev.CheckpointCopied(ref(1), place) for place in ("s3://old/runs/e", "s3://new/runs/e")]
    (trial,) = state_of(tmp_path, created(), attempt(), *saved(1), *copies).trials
    (record,) = trial.checkpoints
    opened = trial.open_checkpoint(record)
    assert str(opened.uri) == f"s3://new/runs/e/{trial.dirname}/checkpoint_000001"
    trial.__dict__["origin"] = "s3://moved/e"
    assert str(trial.open_checkpoint(record).uri).startswith("s3://moved/e/")
    (trial.directory / "checkpoint_000001").mkdir(parents=True)
    assert trial.open_checkpoint(record).path == str(trial.directory / "checkpoint_000001")


# --- its config -----------------------------------------------------------------------------------------------------


def test_a_config_is_read_once_and_a_large_one_is_given_up_on_request(tmp_path: Path) -> None:
    (trial,) = state_of(tmp_path, created(x=1, layers=[1, 2])).trials
    assert trial.config == {"x": 1, "layers": [1, 2]} and trial.config is trial.config
    before = trial.config
    trial.release()
    assert trial.config is before, "a small one stays"
    assert trial.evaluated_params == {"x": 1, "layers": [1, 2]}


# --- rests ----------------------------------------------------------------------------------------------------------


def test_the_searched_keys_of_a_clone_are_what_it_trains_with() -> None:
    space = {"lr": 0.1, "model": {"width": 8}, "layers": [1, 2]}
    made = msgspec.structs.replace(created(), config=raw(space), evaluated=raw({"lr": 0.1, "model/width": 8}))
    exploit = ev.Exploited(TRIAL, ref(3, trial="ab_00001"), raw({**space, "lr": 0.5, "momentum": 0.9}), 4)
    state = state_of(Path("/results/e"), made, attempt())
    assert state.trials[0].evaluated_params == {"lr": 0.1, "model/width": 8}
    state.apply(exploit)
    assert state.trials[0].evaluated_params == {"lr": 0.5, "model/width": 8, "momentum": 0.9}


def test_rests_are_between_attempts_and_never_before_it_ran() -> None:
    ended = ev.AttemptEnded(TRIAL, 1, "paused", at=150.0)
    trial = trial_of(attempt(), *saved(1), ended)
    (rest,) = trial.rests
    assert (rest.why, rest.since, rest.reached, rest.until) == ("paused", 150.0, 1, None)
    trial = trial_of(attempt(), *saved(1), ended, attempt(2, checkpoint=ref(1), iteration=1))
    assert (trial.rests[0].until, trial.rests[0].iteration) == (200.0, 1)
    trial = trial_of(attempt(), *saved(1), ev.AttemptEnded(TRIAL, 1, "halted"))  # nobody saw when
    assert trial.rests[0].since == 101.0, "when it was last heard of"
    trial = trial_of(attempt(), ev.AttemptEnded(TRIAL, 1, "lost", at=3.0))  # a clock that jumped
    assert trial.rests[0].since == 100.0


# --- a sequence of trials -------------------------------------------------------------------------------------------


def test_trials_are_a_live_view_that_nobody_changes(tmp_path: Path) -> None:
    state = state_of(tmp_path, created())
    trials = state.trials
    assert len(trials) == 1 and trials.get(TRIAL) is trials[0] and trials.get("nobody") is None
    state.apply(created(1))
    assert [trial.index for trial in trials] == [0, 1] and trials[-1].index == 1
    copy = trials[:]
    copy.clear()
    assert len(trials) == 2
    with pytest.raises((TypeError, AttributeError)):
        trials.append(Trial)  # type: ignore[attr-defined]


def test_a_trial_is_named_shown_and_compared_by_itself() -> None:
    trial = trial_of(attempt(), result(3))
    assert str(trial) == "train_ab_00000" and repr(trial) == "Trial(train_ab_00000, RUNNING, iteration 3)"
    assert trial != trial_of(attempt(), result(3)) and trial == trial
    assert trial.path == trial.logdir == trial.local_path == "/results/e/train_ab_00000"


def test_an_error_file_is_there_only_with_the_error(tmp_path: Path) -> None:
    (trial,) = state_of(tmp_path, created(), attempt()).trials
    trial.directory.mkdir()
    (trial.directory / "error.txt").write_text("of an earlier attempt")
    assert trial.error_file is None
    trial.error = ev.ErrorInfo("ValueError", "no")
    assert trial.error_file == str(trial.directory / "error.txt")
