"""Resume: what the words mean, and the join of the journal with what lies on the disks."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tuner.experiment.facts import TRIAL, attempt, created, published, ref, result, saved, state_of
from trainables.store.manifest import Manifest, Published
from trainables.wire import CheckpointRef
from tuner.error import SettingError
from tuner.experiment import events as ev
from tuner.experiment.reason import Reason, ReasonKind
from tuner.experiment.resume import Base, Errored, Resume, candidates, parse, reconcile, start_of
from tuner.experiment.state import ExperimentState

ROOT = Path("/results/e")
NOW = 1000.0
FAILED = ev.TrialEnded(TRIAL, "ERROR", 9.0, ev.ErrorInfo("ValueError", "no"))


# --- the words ------------------------------------------------------------------------------------------------------

SUFFIXES = {
    "": (Errored.SHOW, False),
    "+ERRORED": (Errored.CONTINUE, False),
    "+RESTART_ERRORED": (Errored.RESTART, False),
    "+ERRORED_ONLY": (Errored.CONTINUE, True),
    "+RESTART_ERRORED_ONLY": (Errored.RESTART, True),
}


@pytest.mark.parametrize("base", ["LOCAL", "REMOTE", "AUTO", "PROMPT"])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_word_is_where_to_look_and_what_becomes_of_errored_trials(base: str, suffix: str) -> None:
    assert parse(base + suffix) == Resume(Base(base), *SUFFIXES[suffix])
    assert parse(parse(base + suffix)) == parse(base + suffix)


@pytest.mark.parametrize(
    ("word", "means"),
    [
        (None, Resume(Base.NEW)),
        (False, Resume(Base.NEW)),
        (True, Resume(Base.LOCAL)),
        ("ERRORED_ONLY", Resume(Base.LOCAL, Errored.CONTINUE, only_errored=True)),
    ],
)
def test_words_of_their_own(word: Any, means: Resume) -> None:
    assert parse(word) == means


@given(
    st.text(max_size=30)
    | st.integers()
    | st.sampled_from(["auto", "NEW", "AUTO+", "AUTO+ERRORED+ERRORED", "+ERRORED", ""])
)
def test_anything_else_is_refused_with_what_is_accepted(word: Any) -> None:
    if word in {base + suffix for base, suffix in itertools.product(["LOCAL", "REMOTE", "AUTO", "PROMPT"], SUFFIXES)}:
        return
    with pytest.raises(SettingError, match="AUTO"):
        parse(word)


@pytest.mark.parametrize(
    ("word", "near"),
    [("AUT0", "'AUTO'"), ("auto", "'AUTO'"), ("AUTO+ERORED", "'AUTO+ERRORED'"), ("REMOT", "'REMOTE'"), ("yes", None)],
)
def test_a_misspelt_word_has_the_nearest(word: str, near: str | None) -> None:
    said = "; accepted are False" if near is None else f"; did you mean {near}? Accepted are False"
    with pytest.raises(SettingError, match=re.escape(f"resume={word!r} is not accepted{said}")):
        parse(word)


# --- the join -------------------------------------------------------------------------------------------------------


def found(of: CheckpointRef, **metrics: Any) -> Published:
    """A complete checkpoint on a disk."""
    told = msgspec.Raw(msgspec.json.encode({"training_iteration": of.iteration, **metrics}))
    manifest = Manifest(
        format=1, name=of.name, trial_id=of.trial_id, generation=of.generation, attempt=of.attempt, index=of.index,
        iteration=of.iteration, created=1e9, metrics=told, files=[],
    )  # fmt: skip
    return Published(manifest=manifest, digest=f"digest {of.iteration}", path=ROOT / "train_ab_00000" / of.name)


def joined(
    state: ExperimentState, *here: Published, resume: Any = "AUTO", **more: Any
) -> tuple[list[ev.AnyFact], list[str]]:
    return reconcile(state, listed=lambda directory: here, resume=parse(resume), now=NOW, **more)


def running(*facts: ev.AnyFact) -> ExperimentState:
    return state_of(ROOT, created(), attempt(), *facts)


def test_a_trial_that_ran_goes_on_from_what_is_there() -> None:
    state = running(*saved(1))
    facts, notes = joined(state, found(ref(1)))
    assert facts == [ev.AttemptEnded(TRIAL, 1, "halted")] and notes == []
    assert state.trials[0].status == "PAUSED", "the facts are applied already"


def test_what_it_published_and_nobody_wrote_down_is_adopted_in_order() -> None:
    state = running(*saved(1), result(2, saves=True))
    facts, _ = joined(state, found(ref(3), loss=0.1), found(ref(2), loss=0.2), found(ref(1)))
    assert [fact.ref.iteration for fact in facts if isinstance(fact, ev.CheckpointPublished)] == [2, 3]
    (trial,) = state.trials
    assert (trial.iteration, trial.last_result["loss"]) == (3, 0.1), "its manifest tells the result"


@pytest.mark.parametrize(
    ("of", "fetched", "adopted"),
    [
        (ref(2), False, True),
        (ref(2, number=2), False, False),  # an attempt that never was
        (ref(2, generation=2), False, False),
        (ref(2, trial="somebody_0"), False, False),
        (ref(2), True, True),  # of its last attempt
    ],
)
def test_only_what_belongs_to_its_life_is_adopted(of: CheckpointRef, fetched: bool, adopted: bool) -> None:
    facts, _ = joined(running(*saved(1)), found(ref(1)), found(of), fetched=fetched)
    assert bool([fact for fact in facts if isinstance(fact, ev.CheckpointPublished)]) == adopted


def test_beside_a_history_from_elsewhere_what_an_earlier_attempt_published_may_be_void() -> None:
    earlier = [*saved(1), ev.AttemptEnded(TRIAL, 1, "failed"), attempt(2, checkpoint=ref(1), iteration=1)]
    for fetched, count in ((False, 1), (True, 0)):
        facts, _ = joined(running(*earlier), found(ref(1)), found(ref(2)), fetched=fetched)
        assert len([fact for fact in facts if isinstance(fact, ev.CheckpointPublished)]) == count


def test_what_was_let_go_of_is_not_adopted_again() -> None:
    state = running(*saved(1), *saved(2), ev.CheckpointForgotten(ref(1)))
    facts, _ = joined(state, found(ref(1)), found(ref(2)))
    assert [type(fact) for fact in facts] == [ev.AttemptEnded]


@pytest.mark.parametrize("elsewhere", [False, True])
def test_what_is_gone_is_set_aside_unless_a_replica_has_it(elsewhere: bool) -> None:
    state = running(*saved(1), *saved(2))
    facts, notes = joined(state, found(ref(1)), elsewhere=lambda trial, of: elsewhere)
    gone = [fact.ref for fact in facts if isinstance(fact, ev.CheckpointSetAside)]
    assert gone == ([] if elsewhere else [ref(2)])
    assert len(notes) == len(gone) and all("is missing or incomplete on disk" in note for note in notes)


def test_what_a_replica_still_has_counts_again_where_everything_newer_is_lost() -> None:
    let_go = lambda trial: [found(ref(1)), found(ref(2))]  # noqa: E731
    state = running(*saved(1), *saved(2), *saved(3), ev.CheckpointForgotten(ref(1)), ev.CheckpointForgotten(ref(2)))
    joined(state, let_go=let_go)
    assert [record.iteration for record in state.trials[0].checkpoints] == [2], "the newest of them"
    state = running(*saved(1), *saved(2), *saved(3), ev.CheckpointForgotten(ref(1)), ev.CheckpointForgotten(ref(2)))
    joined(state, found(ref(3)), let_go=let_go)
    assert [record.iteration for record in state.trials[0].checkpoints] == [3], "nothing newer is lost"


# --- ends -----------------------------------------------------------------------------------------------------------

WHY = Reason(ReasonKind.CRITERION, "DictStopper", 2)


@pytest.mark.parametrize(
    ("facts", "here", "ends"),
    [
        ([result(2, then="stop", reason=WHY)], [], True),
        ([result(2, then="stop", saves=True, reason=WHY)], [], False),  # its last save is missing
        ([result(2, then="stop", saves=True, reason=WHY)], [found(ref(2))], True),
        ([result(2, then="stop", saves=True, reason=WHY), published(2)], [], False),  # it is gone
        ([result(2, then="pause", saves=True), published(2)], [found(ref(2))], False),
        ([result(2)], [], False),
    ],
)
def test_an_end_that_was_decided_before_the_kill_is_written_down(
    facts: list[ev.AnyFact], here: list[Published], ends: bool
) -> None:
    state = running(*facts)
    *_, last = joined(state, *here)[0]
    if ends:
        assert last == ev.TrialEnded(TRIAL, "TERMINATED", NOW, reason=WHY)
    else:
        assert last == ev.AttemptEnded(TRIAL, 1, "halted")


@pytest.mark.parametrize(
    ("resume", "disk", "reopened"),
    [
        ("AUTO", False, None),
        ("AUTO", True, False),  # its work was lost to a full disk
        ("AUTO+ERRORED", False, False),
        ("AUTO+RESTART_ERRORED", False, True),
        ("AUTO+RESTART_ERRORED_ONLY", False, True),
    ],
)
def test_what_becomes_of_a_trial_that_failed(resume: str, disk: bool, reopened: bool | None) -> None:
    failed = ev.TrialEnded(TRIAL, "ERROR", 9.0, ev.ErrorInfo("OSError", "no", disk=disk))
    facts, _ = joined(running(*saved(1), failed), found(ref(1)), resume=resume)
    assert facts == ([] if reopened is None else [ev.TrialReopened(TRIAL, anew=reopened)])


def test_those_that_did_not_fail_are_left_as_they_are_where_only_failed_ones_run() -> None:
    state = running(result(1, saves=True))
    facts, notes = joined(state, found(ref(1)), resume="AUTO+ERRORED_ONLY")
    assert facts == [ev.AttemptEnded(TRIAL, 1, "halted")] and notes == []
    assert state.trials[0].checkpoints == [], "nobody looks"


@pytest.mark.parametrize(
    ("here", "elsewhere", "status", "kept"),
    [([1, 2], False, "TERMINATED", [1, 2]), ([2], False, "TERMINATED", [2]), ([1], False, "PAUSED", [1]),
     ([], True, "TERMINATED", [1, 2])],
)  # fmt: skip
def test_of_a_history_from_a_replica_a_trial_has_ended_only_if_its_newest_checkpoint_arrived(
    here: list[int], elsewhere: bool, status: str, kept: list[int]
) -> None:
    state = running(*saved(1), *saved(2), ev.TrialEnded(TRIAL, "TERMINATED", 9.0))
    on_disk = [found(ref(number)) for number in here]
    _, notes = joined(state, *on_disk, fetched=True, elsewhere=lambda trial, of: elsewhere)
    (trial,) = state.trials
    assert [record.iteration for record in trial.checkpoints] == kept
    assert (trial.status == "TERMINATED") == (status == "TERMINATED")
    assert bool(notes) == (len(kept) < 2)


def test_a_trial_that_has_ended_is_not_looked_at_here() -> None:
    state = running(*saved(1), ev.TrialEnded(TRIAL, "TERMINATED", 9.0))

    def looked(directory: Path) -> list[Published]:
        raise AssertionError("nobody asked for it")

    assert reconcile(state, listed=looked, resume=parse("AUTO"), now=NOW) == ([], [])


# --- where an attempt starts ----------------------------------------------------------------------------------------


def test_the_newest_of_its_own_is_the_first_candidate() -> None:
    (trial,) = running(*saved(1), *saved(3), *saved(2)).trials
    assert [record.iteration for record in candidates(trial)] == [3, 2, 1]


@pytest.mark.parametrize(("spent", "seconds"), [(7.5, 7.5), (None, 0.0), ("long", 0.0)])
def test_an_attempt_starts_with_the_counts_of_its_checkpoint_and_a_clone_with_its_own(
    spent: Any, seconds: float
) -> None:
    metrics = {} if spent is None else {"time_total_s": spent}
    (trial,) = running(*saved(4, **metrics)).trials
    (record,) = trial.checkpoints
    assert start_of(trial, record) == (ref(4), 4, seconds)
    assert start_of(trial, None) == (None, 0, 0.0)
    state = running(*saved(4, time_total_s=99.0))
    state.apply(created(1))
    clone = state.trials[1]
    clone.clone_iteration = 2
    clone.__dict__["last_result"] = metrics
    assert start_of(clone, state.trials[0].checkpoints[0]) == (ref(4), 2, seconds)
