"""What a start does: every resume word, with every standing of what is here and in the replica."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tuner.error import ExperimentDamagedError, ExperimentDivergedError, ExperimentExistsError, ResumeError, TuneError
from tuner.opening.decide import Action, StartPlan, decide
from tuner.opening.settings import Settings
from tuner.opening.survey import LocalStanding, RemoteStanding, StartStanding
from tuner.spec import Spec
from tuner.syncer.relation import Relation

ROOT, URI = Path("/results/e"), "s3://bucket/runs/e"
EXISTS, RESUME, DIVERGED = ExperimentExistsError, ResumeError, ExperimentDivergedError

# (is there one here?, how the replica stands to it; None: there is no replica)
STANDINGS: dict[str, tuple[bool, Relation | None]] = {
    "nothing, no replica": (False, None),
    "nothing": (False, Relation.ABSENT),
    "only there": (False, Relation.NEWER),
    "only here, no replica": (True, None),
    "only here": (True, Relation.ABSENT),
    "the same, or older there": (True, Relation.OLDER),
    "newer there": (True, Relation.NEWER),
    "diverged": (True, Relation.DIVERGED),
}
Outcome = Action | type[TuneError]
N, R, F, P, C = Action.NEW, Action.RESUME, Action.FETCH, Action.REPLACE, Action.RESTORE

TABLE: dict[str, list[Outcome]] = {
    "False": [N, N, EXISTS, EXISTS, EXISTS, EXISTS, EXISTS, EXISTS],
    "overwrite": [N, N, N, P, P, P, P, P],
    "LOCAL": [RESUME, RESUME, RESUME, R, R, R, R, R],
    "REMOTE": [RESUME, RESUME, F, RESUME, RESUME, R, F, F],
    "AUTO": [N, N, F, R, R, R, F, DIVERGED],
    "PROMPT": [N, N, F, R, R, R, F, DIVERGED],
}
RESTORED: dict[str, list[Outcome]] = {
    "False": [C, C, EXISTS, EXISTS, EXISTS, EXISTS, EXISTS, EXISTS],
    **{word: [C, C, *TABLE[word][2:]] for word in ("LOCAL", "REMOTE", "AUTO", "PROMPT")},
}
SUFFIXES = ("", "+ERRORED", "+RESTART_ERRORED", "+ERRORED_ONLY", "+RESTART_ERRORED_ONLY")


def settings_of(word: str, **more: Any) -> Settings:
    resume = {"False": False, "overwrite": None}.get(word, word)
    return Settings.of(
        Spec(trainable=lambda config: None, name="e", resume=resume, overwrite=word == "overwrite", **more)
    )


def standing_of(name: str, *, restores: bool = False, told: bool = True, **more: Any) -> StartStanding:
    here, relation = STANDINGS[name]
    remote = None if relation is None else RemoteStanding(URI, relation, told=told, **more)
    return StartStanding(LocalStanding(ROOT, exists=here, told=told), remote, restores)


def outcome(plan: StartPlan) -> Outcome:
    assert (plan.action is Action.REFUSE) == (plan.refusal is not None)
    return type(plan.refusal) if plan.refusal is not None else plan.action


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("standing", STANDINGS)
@pytest.mark.parametrize("word", TABLE)
def test_what_a_start_does(word: str, standing: str, suffix: str) -> None:
    if suffix and word in ("False", "overwrite"):
        suffix = ""  # there is no such word
    plan = decide(settings_of(word + suffix), standing_of(standing))
    assert outcome(plan) == TABLE[word][list(STANDINGS).index(standing)]
    here = STANDINGS[standing][0]
    asked = word == "PROMPT" and plan.action in (R, F)
    assert plan.asks == ((str(ROOT) if here else URI) if asked else "")
    assert plan.voids_remote == (word == "LOCAL" and standing in ("newer there", "diverged"))
    assert plan.sets_aside == (word == "REMOTE" and standing == "diverged")


@pytest.mark.parametrize("standing", STANDINGS)
@pytest.mark.parametrize("word", RESTORED)
def test_what_a_start_with_restore_does(word: str, standing: str) -> None:
    plan = decide(settings_of(word), standing_of(standing, restores=True))
    assert outcome(plan) == RESTORED[word][list(STANDINGS).index(standing)]


@pytest.mark.parametrize("standing", STANDINGS)
def test_an_experiment_that_never_had_a_result_is_replaced(standing: str) -> None:
    plan = decide(settings_of("False"), standing_of(standing, told=False))
    assert plan.action is (Action.REPLACE if STANDINGS[standing][0] else Action.NEW)


@pytest.mark.parametrize("word", [word for word in TABLE if word != "False"])
def test_checkpoints_without_an_experiment_are_left_alone(word: str) -> None:
    expected = {"overwrite": Action.NEW, "REMOTE": ResumeError}.get(word, ExperimentDamagedError)
    assert outcome(decide(settings_of(word), standing_of("nothing", orphans=True))) == expected


def test_checkpoints_without_an_experiment_are_left_alone_by_a_restore_too() -> None:
    standing = replace(standing_of("nothing", orphans=True), restores=True)
    assert outcome(decide(settings_of("False"), standing)) is ExperimentDamagedError


@pytest.mark.parametrize("word", ["AUTO", "REMOTE", "PROMPT"])
@pytest.mark.parametrize("standing", ["only there", "newer there"])
def test_a_replica_without_a_journal_is_not_fetched(word: str, standing: str) -> None:
    plan = decide(settings_of(word), standing_of(standing, has_journal=False))
    assert isinstance(plan.refusal, ExperimentDamagedError) and "no journal any more" in str(plan.refusal)


@pytest.mark.parametrize(("standing", "place"), [("only there", URI), ("newer there", URI), ("only here", str(ROOT))])
def test_another_trainable_is_refused_with_the_place_that_has_one(standing: str, place: str) -> None:
    here, relation = STANDINGS[standing]
    other = {"trainable": "another"}
    local = LocalStanding(ROOT, exists=here, description=other)
    remote = None if relation is None else RemoteStanding(URI, relation, description=other)
    plan = decide(settings_of("AUTO"), StartStanding(local, remote))
    assert isinstance(plan.refusal, ResumeError)
    assert str(plan.refusal).startswith(f"{place} was run with the trainable 'another'")


def test_a_foreign_directory_is_left_alone() -> None:
    plan = decide(settings_of("AUTO"), StartStanding(LocalStanding(ROOT, foreign=["thesis.tex"])))
    assert isinstance(plan.refusal, ExperimentDamagedError) and "thesis.tex" in str(plan.refusal)
