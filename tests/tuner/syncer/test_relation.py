"""How a replica's history stands to the one here: by the chain of generations, never by a clock."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tuner.experiment.facts import TRIAL, attempt, created, ref, saved, state_of
from tests.tuner.opening.harness import ran
from trainables.transfer.client import InlineClient
from tuner.experiment import events as ev
from tuner.experiment.journal import JournalContents
from tuner.experiment.journal_format import GenerationLink
from tuner.experiment.paths import ExperimentPaths
from tuner.syncer.relation import Relation, at_rest, compare, relate, unchanged
from tuner.syncer.remote_experiment import RemoteExperiment

ABSENT, OLDER, NEWER, DIVERGED = Relation.ABSENT, Relation.OLDER, Relation.NEWER, Relation.DIVERGED


# --- two chains -----------------------------------------------------------------------------------------------------


def history(*ids: str, last_seq: int = 0) -> JournalContents:
    """Of generations of which only the ids count."""
    fields = GenerationLink.__dataclass_fields__
    links = []
    for number, id in enumerate(ids, start=1):
        values: dict[str, Any] = {"generation": number, "id": id}
        links.append(GenerationLink(**{name: values.get(name, 0) for name in fields}))
    return JournalContents(chain=tuple(links), last_seq=last_seq)


@pytest.mark.parametrize(
    ("here", "there", "relation"),
    [
        ((), (), OLDER),
        (("a",), (), OLDER),
        ((), ("a",), NEWER),
        (("a",), ("a",), OLDER),
        (("a", "b"), ("a",), OLDER),
        (("a",), ("a", "b"), NEWER),
        (("a", "b"), ("a", "c"), DIVERGED),
        (("a",), ("b",), DIVERGED),
        (("a", "b", "c"), ("a", "b"), OLDER),
    ],
)
def test_who_names_the_newest_generation_of_the_other_continues_it(
    here: tuple[str, ...], there: tuple[str, ...], relation: Relation
) -> None:
    assert compare(history(*here), history(*there)) is relation


@pytest.mark.parametrize(("here", "there", "relation"), [(3, 3, OLDER), (4, 3, OLDER), (3, 4, NEWER)])
def test_of_one_generation_who_has_more_of_it_is_newer(here: int, there: int, relation: Relation) -> None:
    assert compare(history("a", last_seq=here), history("a", last_seq=there)) is relation


CHAINS = st.lists(st.sampled_from("abcd"), unique=True, max_size=4)


@given(CHAINS, CHAINS, st.integers(0, 3), st.integers(0, 3))
def test_two_histories_never_continue_each_other(here: list[str], there: list[str], ours: int, theirs: int) -> None:
    first, second = history(*here, last_seq=ours), history(*there, last_seq=theirs)
    told = compare(first, second), compare(second, first)
    assert told.count(NEWER) <= 1
    assert (told[0] is DIVERGED) == (told[1] is DIVERGED)


# --- real ones ------------------------------------------------------------------------------------------------------


Look = Callable[[], Relation]


@pytest.fixture
def look(tmp_path: Path) -> Iterator[Look]:
    """How what lies in `there` stands to what lies in `here`."""
    (tmp_path / "there").mkdir()
    uploader = InlineClient({"place": str(tmp_path / "there")})

    def related() -> Relation:
        incoming = tmp_path / "incoming"
        shutil.rmtree(incoming, ignore_errors=True)
        incoming.mkdir()
        remote = RemoteExperiment(uploader, uploader.uri, "e", timeout_s=10)
        return relate(remote, ExperimentPaths(tmp_path / "here" / "e"), incoming)

    yield related
    uploader.close()


def test_a_history_is_told_apart_from_another_by_what_both_hold(tmp_path: Path, look: Look) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    assert look() is ABSENT
    ran(here, there)
    assert look() is OLDER
    shutil.copytree(here, tmp_path / "kept")
    ran(here, num_samples=2, resume=True)
    assert look() is OLDER, "what is here goes on"
    shutil.rmtree(here)
    assert look() is NEWER, "there is nothing here"
    shutil.copytree(tmp_path / "kept", here)
    ran(here, there, num_samples=2, resume=True)
    shutil.rmtree(here)
    shutil.copytree(tmp_path / "kept", here)
    assert look() is NEWER
    ran(here, num_samples=3, resume=True)
    assert look() is DIVERGED


def test_another_experiment_of_that_name_has_nothing_in_common(tmp_path: Path, look: Look) -> None:
    ran(tmp_path / "elsewhere", tmp_path / "there")
    ran(tmp_path / "here")
    assert look() is DIVERGED


def test_where_the_names_tell_that_all_is_here_no_journal_is_fetched(tmp_path: Path, look: Look) -> None:
    ran(tmp_path / "here", tmp_path / "there")
    assert look() is OLDER
    assert list((tmp_path / "incoming").iterdir()) == []


# --- trials at rest -------------------------------------------------------------------------------------------------

ENDED = ev.TrialEnded(TRIAL, "TERMINATED", 9.0)
LIFE = (created(), attempt(), *saved(1), ENDED)


def contents_of(root: Path, snapshot: tuple[ev.AnyFact, ...], *since: ev.AnyFact) -> JournalContents:
    bodies = [(seq, ev.encode(fact)) for seq, fact in enumerate(since, start=len(snapshot) + 1)]
    return JournalContents(snapshot=state_of(root, *snapshot).snapshot({}), bodies=bodies)


@pytest.mark.parametrize(
    ("snapshot", "since", "whole", "rests"),
    [
        (LIFE, (), ["checkpoint_000001"], True),
        (LIFE, (ev.CheckpointCopied(ref(1), "s3://b/e"),), ["checkpoint_000001"], True),  # a copy is no life
        (LIFE, (), [], False),  # its checkpoint did not arrive: it may go on
        (LIFE, (ev.CheckpointForgotten(ref(1)),), ["checkpoint_000001"], False),
        (LIFE, (ev.TrialReopened(TRIAL),), ["checkpoint_000001"], False),
        (LIFE[:-1], (), ["checkpoint_000001"], False),
        (LIFE[:-1], (ENDED,), ["checkpoint_000001"], False),  # the snapshot does not know that it has ended
        (LIFE, (ev.Idle(), created(1)), ["checkpoint_000001"], True),  # another one's
    ],
)
def test_a_trial_rests_where_no_fact_speaks_of_it_since_its_end(
    snapshot: tuple[ev.AnyFact, ...], since: tuple[ev.AnyFact, ...], whole: list[str], rests: bool, tmp_path: Path
) -> None:
    found = at_rest(contents_of(tmp_path, snapshot, *since), tmp_path, {"train_ab_00000": whole})
    assert found == ({"train_ab_00000"} if rests else set())


def test_a_trial_is_unchanged_where_both_histories_say_that_it_ended_so(tmp_path: Path) -> None:
    ours = contents_of(tmp_path, LIFE)
    assert unchanged(ours, contents_of(tmp_path, LIFE), tmp_path) == {"train_ab_00000"}
    longer = (*LIFE[:-1], *saved(2), ENDED)
    assert unchanged(ours, contents_of(tmp_path, longer), tmp_path) == set()
    assert unchanged(ours, contents_of(tmp_path, LIFE, ev.TrialReopened(TRIAL)), tmp_path) == set()
    assert unchanged(ours, JournalContents(), tmp_path) == set()
