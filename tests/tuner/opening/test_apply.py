"""A start on real directories: what is looked at stays as it is, and what was done is taken back."""

from __future__ import annotations

import re
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tests.tuner.opening.harness import CLOCK, Opening, files, ran, train
from tuner.clock import VirtualClock
from tuner.executors import InlineExecutor
from tuner.opening.apply import apply
from tuner.opening.decide import Action
from tuner.syncer.relation import Relation


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "place"


def prepare_standing(standing: str, tmp_path: Path, place: Path) -> None:
    if standing == "nothing":
        return
    ran(tmp_path / "here", place)
    if standing == "only there":
        shutil.rmtree(tmp_path / "here")
    if standing in ("newer there", "diverged"):
        shutil.copytree(tmp_path / "here", tmp_path / "kept")
        ran(tmp_path / "here", place, num_samples=2, resume=True)
        shutil.rmtree(tmp_path / "here")
        (tmp_path / "kept").rename(tmp_path / "here")
    if standing == "diverged":
        ran(tmp_path / "here", num_samples=3, resume=True)


@pytest.mark.parametrize(
    ("standing", "settings", "action", "relation"),
    [
        ("nothing", {}, Action.NEW, Relation.ABSENT),
        ("the same", {"resume": "AUTO"}, Action.RESUME, Relation.OLDER),
        ("the same", {"overwrite": True}, Action.REPLACE, Relation.NEWER),
        ("only there", {"resume": "AUTO"}, Action.FETCH, Relation.NEWER),
        ("newer there", {"resume": "AUTO"}, Action.FETCH, Relation.NEWER),
        ("diverged", {"resume": "REMOTE"}, Action.FETCH, Relation.DIVERGED),
        ("diverged", {"resume": "LOCAL"}, Action.RESUME, Relation.DIVERGED),
    ],
)
def test_a_start_that_fails_before_its_first_trial_is_taken_back(
    tmp_path: Path, place: Path, standing: str, settings: dict[str, Any], action: Action, relation: Relation
) -> None:
    prepare_standing(standing, tmp_path, place)
    here = tmp_path / "here"
    before = files(here) if here.exists() else {}
    opening = Opening(here, place, **settings)
    with ExitStack() as scratch:
        prepared = opening.look(scratch)
        assert prepared.plan.action is action
        assert prepared.standing.remote is not None and prepared.standing.remote.relation is relation
        owned = apply(prepared, opening.connection, clock=CLOCK, inline=True)
    assert owned is not None and owned.replica is not None
    assert owned.replica.fetched == (action is Action.FETCH)
    assert (owned.contents is not None) == prepared.plan.resumes
    with pytest.raises(RuntimeError, match="the run failed"), owned.life:
        raise RuntimeError("the run failed")
    after = files(here) if here.exists() else {}
    if standing == "newer there":
        assert after.keys() >= before.keys()  # what continues it may stay: the next start finds it
    else:
        kept = {name: data for name, data in after.items() if ".set-aside" not in name and ".taking-over" not in name}
        assert kept == before
    assert Opening(here, place, **settings).start() is not None


@pytest.mark.parametrize("settings", [{"resume": "AUTO"}, {"overwrite": True}])
def test_what_another_driver_did_meanwhile_is_looked_at_again(
    tmp_path: Path, place: Path, settings: dict[str, Any]
) -> None:
    ran(tmp_path, place)
    opening = Opening(tmp_path, place, **settings)
    before: list[dict[str, bytes]] = []

    def meanwhile() -> None:
        ran(tmp_path, place, num_samples=2, resume=True)
        before.append(files(tmp_path / "e"))

    assert opening.start(meanwhile) is None
    assert [files(tmp_path / "e")] == before
    assert opening.start() is not None


def test_a_driver_that_was_seen_and_has_ended_with_results_since_is_looked_at_again(tmp_path: Path) -> None:
    """It had the last generation when it was looked at, and it has it still."""
    spec = {"name": "e", "storage_path": tmp_path, "executor": "inline", "verbose": 0}
    seen: list[Any] = []

    class Meanwhile(tune.Callback):
        def on_trial_start(self, *args: Any, **more: Any) -> None:
            opening, scratch = Opening(tmp_path, None), ExitStack()
            seen.append((opening, opening.look(scratch)))

    tune.run(train, callbacks=[Meanwhile()], **spec)
    before = files(tmp_path)
    opening, prepared = seen[0]
    assert prepared.plan.action is Action.REPLACE  # without a result it would make room
    assert apply(prepared, None, clock=CLOCK, inline=True) is None
    assert files(tmp_path) == before
    with pytest.raises(tune.error.ExperimentExistsError):
        opening.start()


class StandsStill(InlineExecutor):
    """A run without a name is called after the time, which is always the same here."""

    clock = VirtualClock()


@pytest.mark.timeout(60)
def test_a_run_without_a_name_that_the_replica_refuses_does_not_try_for_ever(tmp_path: Path, place: Path) -> None:
    ran(tmp_path / "here", place, name=None, executor=StandsStill())
    with pytest.raises(tune.error.ExperimentExistsError, match=re.escape(str(place))):
        ran(tmp_path / "there", place, name=None, executor=StandsStill())


def test_looking_leaves_nothing(tmp_path: Path, place: Path) -> None:
    ran(tmp_path / "there", place)
    shutil.rmtree(tmp_path / "there")
    opening = Opening(tmp_path / "here", place, resume="AUTO")
    with ExitStack() as scratch:
        prepared = opening.look(scratch)
        assert prepared.note.startswith("resuming from ") and prepared.before["name"] == "e"
        assert prepared.staged is not None and prepared.staged.experiment_json.exists()
    assert not (tmp_path / "here").exists()


def test_a_restored_experiment_is_laid_under_the_new_name_and_taken_back(tmp_path: Path) -> None:
    ran(tmp_path / "old")
    before = files(tmp_path / "old")
    owned = Opening(tmp_path / "new", None, name="n", restore=tmp_path / "old" / "e").start()
    assert owned is not None and owned.description["inherited_from"] == "e"
    assert owned.start.note == f"continuing {tmp_path / 'old' / 'e'} as {tmp_path / 'new' / 'n'}"
    with pytest.raises(RuntimeError, match="failed"), owned.life:
        raise RuntimeError("failed")
    assert not (tmp_path / "new").exists()
    assert files(tmp_path / "old") == before
