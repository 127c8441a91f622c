"""What lies on the disks of other hosts at a start: brought here, left there, or deleted because nobody needs it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tuner as tune
from tests.tuner.opening.harness import Opening, ran
from trainables.wire import CheckpointRef
from tuner.executors.remote_hosts import ExperimentPlace, Uploading
from tuner.experiment import events as ev
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.reader import load_state
from tuner.experiment.state import ExperimentState
from tuner.opening.apply import OwnedExperiment
from tuner.opening.other_hosts import gather, join


def ref(number: int, *, trial: str = "ab_00000", attempt: int = 1) -> CheckpointRef:
    return CheckpointRef(trial, f"checkpoint_{number:06d}", 1, attempt, number, number)


class Hosts:
    """Two nodes of which is known what lies there; notes what is asked of them."""

    experiment = "ab"

    def __init__(self, *found: tuple[str, str, CheckpointRef], uploads: bool = False, fails: Any = None) -> None:
        self.found = [(*each, "digest") for each in found]
        self.uploads, self._fails = uploads, fails
        self.brought: list[str] = []
        self.dropped: list[str] = []
        self.place: ExperimentPlace | None = None
        self.told: dict[str, Any] = {}

    def take_place(self, place: ExperimentPlace, **told: Any) -> None:
        self.place, self.told = place, told

    def uploader(self, home: Any) -> Any:
        return ("through hosts", home)

    def bring(self, host: str, dirname: str, ref: CheckpointRef, digest: str) -> str | None:
        self.brought.append(f"{host}:{dirname}/{ref.name}")
        return self._fails

    def drop(self, host: str, dirname: str, ref: CheckpointRef) -> None:
        if isinstance(self._fails, Exception):
            raise self._fails
        self.dropped.append(f"{host}:{dirname}/{ref.name}")


def state_of(root: Path, *facts: ev.AnyFact) -> ExperimentState:
    """One trial that has run once and saved its first checkpoint, and what happened after that."""
    state = ExperimentState(root)
    raw = msgspec.Raw(b"{}")
    for fact in (
        ev.GenerationStarted(1),
        ev.TrialCreated("ab_00000", 0, raw, name="t", dirname="t"),
        ev.AttemptStarted("ab_00000", 1, 1, 0.0),
        ev.ResultReported("ab_00000", 1, 1, raw, saves=True),
        ev.CheckpointPublished(ref(1), 10, "digest", 0.0),
        *facts,
    ):
        state.apply(fact)
    return state


def nowhere(trial: Any, ref: Any) -> bool:
    return False


ENDED = ev.TrialEnded("ab_00000", "TERMINATED", 0.0)
FORGOTTEN = ev.CheckpointForgotten(ref(2))
SECOND = ev.CheckpointPublished(ref(2), 10, "digest", 0.0)
SECOND_RESULT = ev.ResultReported("ab_00000", 1, 2, msgspec.Raw(b"{}"), saves=True)


@pytest.mark.parametrize(
    ("found", "facts", "does"),
    [
        (ref(1), (), "brings"),  # known, and not here
        (ref(2), (), "brings"),  # newer than what is known, of the same life
        (ref(1), (ENDED,), "brings"),  # kept, whatever became of the trial
        (ref(2), (ENDED,), "drops"),
        (ref(2), (SECOND_RESULT, SECOND, FORGOTTEN), "drops"),
        (ref(2, attempt=2), (), "drops"),  # of an attempt that the journal does not know
        (ref(3, trial="ab_00001"), (), "drops"),  # a trial that there is not
        (ref(1, trial="cd_00000"), (), "leaves"),  # another experiment's
    ],
)
def test_what_becomes_of_a_checkpoint_on_another_host(
    found: CheckpointRef, facts: tuple[Any, ...], does: str, tmp_path: Path
) -> None:
    hosts = Hosts(("a", "t", found))
    assert gather(hosts, state_of(tmp_path, *facts), nowhere) == []
    key = f"a:t/{found.name}"
    assert (hosts.brought, hosts.dropped) == ([key] * (does == "brings"), [key] * (does == "drops"))


def test_what_is_here_or_in_the_replica_is_not_brought(tmp_path: Path) -> None:
    state = state_of(tmp_path)
    hosts = Hosts(("a", "t", ref(1)))
    gather(hosts, state, lambda trial, ref: True)
    assert hosts.brought == hosts.dropped == []
    hosts = Hosts(("a", "t", ref(2)))
    gather(hosts, state, lambda trial, ref: True)
    assert hosts.brought == ["a:t/checkpoint_000002"], "a replica knows nothing of what no driver has heard of"
    (state.trials[0].directory / "checkpoint_000001").mkdir(parents=True)
    hosts = Hosts(("a", "t", ref(1)))
    gather(hosts, state, nowhere)
    assert hosts.brought == hosts.dropped == []


@pytest.mark.parametrize(
    ("found", "fails", "note"),
    [
        (ref(1), "the host does not answer", "checkpoint_000001 could not be brought here: the host does not"),
        (ref(9, attempt=7), OSError("timed out"), "checkpoint_000009, which nobody needs, stays on a node"),
        (ref(9, attempt=7), KeyError("a"), None),  # the node is gone, and what it had with it
    ],
)  # fmt: skip
def test_a_host_that_does_not_answer_is_said_and_keeps_nobody_from_going_on(
    found: CheckpointRef, fails: Any, note: str | None, tmp_path: Path
) -> None:
    notes = gather(Hosts(("a", "t", found), fails=fails), state_of(tmp_path), nowhere)
    assert [note in said for said in notes] == [True] if note else notes == []


# --- joining -----------------------------------------------------------------------------------------------------


def joined(hosts: Hosts, owned: OwnedExperiment) -> Any:
    return join(hosts, owned, load_state(owned.paths), lambda line: None)


def opened(results: Path, place: Path | str | None, **settings: Any) -> OwnedExperiment:
    copies = tune.SyncConfig(upload_dir=None if place is None else str(place))
    owned = Opening(results, None, **{"sync_config": copies, **settings}).start()
    assert owned is not None
    return owned


def test_hosts_are_told_where_the_experiment_lies_and_which_owners_came_before(tmp_path: Path) -> None:
    ran(tmp_path)
    owned = opened(tmp_path, None, resume="AUTO")
    hosts = Hosts()
    assert joined(hosts, owned) is None and hosts.place is not None
    assert hosts.place.root == owned.paths.root and hosts.place.id == owned.ownership.id
    assert hosts.place.experiment == owned.description["id"] and len(hosts.place.older) == 1
    assert hosts.place.record.read_text().count(hosts.place.id), "who reads that id there sees this very directory"
    assert hosts.told["upload_to"] is None and hosts.told["sync"]["syncer"] == "auto"


@pytest.mark.parametrize(
    ("place", "uploads", "themselves", "through"),
    [
        (None, True, False, False),
        ("directory", True, False, True),  # which may be this host's alone
        ("directory", False, False, False),
        ("memory://other-hosts/runs", True, False, True),  # which is in this process
    ],
)
def test_which_places_hosts_copy_to_themselves(
    place: str | None, uploads: bool, themselves: bool, through: bool, tmp_path: Path
) -> None:
    owned = opened(tmp_path / "here", str(tmp_path / place) if place == "directory" else place)
    hosts = Hosts(uploads=uploads)
    replica = join(hosts, owned, ExperimentState(owned.paths.root), lambda line: None)
    assert (hosts.told["upload_to"] is not None) == themselves
    assert (replica is not None) == (place is not None)
    if replica is not None:
        assert isinstance(replica.connection.uploader, tuple) == through


class Apart:
    """An uploader that works beside the driver, as one to an address of its own does."""

    beside = True

    def __init__(self, uploader: Any) -> None:
        self._uploader = uploader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._uploader, name)


@pytest.mark.parametrize(
    ("address", "told", "needed"),
    [("s3://bucket/runs", True, True), ("host:/runs", True, False), ("/mnt/runs", False, False)],
)
def test_an_address_of_its_own_is_copied_to_by_the_hosts(
    address: str, told: bool, needed: bool, tmp_path: Path
) -> None:
    owned = opened(tmp_path / "here", tmp_path / "there")
    assert owned.replica is not None
    replica = owned.replica.through(Apart)
    copies = tune.SyncConfig(upload_dir=address)
    start = dataclasses.replace(owned.start, settings=owned.start.settings.holding(sync_config=copies))
    owned = dataclasses.replace(owned, replica=replica, start=start)
    hosts = Hosts(uploads=told)
    join(hosts, owned, ExperimentState(owned.paths.root), lambda line: None)
    upload_to: Uploading | None = hosts.told["upload_to"]
    assert (upload_to is not None) == told
    assert upload_to is None or (upload_to.needed, upload_to.arguments["place"]) == (needed, address)


@pytest.mark.parametrize("copies", [False, True])
def test_a_syncer_brings_checkpoints_here_where_it_does_not_copy_them_elsewhere(copies: bool, tmp_path: Path) -> None:
    owned = opened(tmp_path / "here", tmp_path / "there" if copies else None)
    given = tune.SyncConfig(upload_dir=owned.spec.sync_config.upload_dir, syncer="cp -a {source}/. {target}")
    start = dataclasses.replace(owned.start, settings=owned.start.settings.holding(sync_config=given))
    owned = dataclasses.replace(owned, start=start)
    hosts = Hosts()
    join(hosts, owned, ExperimentState(owned.paths.root), lambda line: None)
    assert hosts.told["sync"]["syncer"] == ("auto" if copies else "cp -a {source}/. {target}")


# --- nodes that come while trials run --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "kept"),
    [
        (ref(1), True),  # known
        (ref(2), True),  # of the attempt that runs just now
        (ref(2, attempt=2), False),
        (ref(1, trial="ab_00009"), False),  # ours, of a trial that there is not
        (ref(1, trial="cd_00000"), True),  # another experiment's
    ],
)
def test_what_a_later_node_has_is_kept_where_somebody_may_need_it(
    found: CheckpointRef, kept: bool, tmp_path: Path
) -> None:
    owned = opened(tmp_path, None)
    description = dataclasses.replace(owned.start.description, plain={**owned.description, "id": "ab"})
    owned = dataclasses.replace(owned, start=dataclasses.replace(owned.start, description=description))
    hosts = Hosts()
    join(hosts, owned, state_of(owned.paths.root), lambda line: None)
    keeps: Callable[[str, CheckpointRef], bool] = hosts.told["keeps"]
    assert keeps("t", found) == kept


def test_what_overwrite_replaces_is_deleted_on_the_nodes_once_it_cannot_come_back(tmp_path: Path) -> None:
    ran(tmp_path)
    (old,) = load_state(ExperimentPaths(tmp_path / "e")).trials
    (record,) = old.checkpoints
    owned = opened(tmp_path, None, overwrite=True)
    copy = ref(1, trial="elsewhere_00000")
    hosts = Hosts(("a", old.dirname, record.ref), ("b", "somebody's", record.ref), ("a", old.dirname, copy))
    join(hosts, owned, ExperimentState(owned.paths.root), lambda line: None)
    keeps = hosts.told["keeps"]
    assert keeps(old.dirname, record.ref), "until the first trial has started it may come back"
    assert hosts.dropped == []
    owned.undo.settle()
    owned.undo.wait_elsewhere()
    assert hosts.dropped == [f"a:{old.dirname}/{record.ref.name}"], "a copy that somebody made stays"
    assert not keeps(old.dirname, record.ref) and keeps("somebody's", record.ref)
