"""Checkpoints of a running experiment: what attempts start from, and what goes, journaled before it is deleted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tuner.driver.harness import DriverHarness, Says, plugin_set
from trainables import wire
from trainables.checkpoint_config import Budget, CheckpointConfig
from trainables.wire import CheckpointRef
from tuner.driver.checkpoints import TrialCheckpoints
from tuner.error import OwnedElsewhereError
from tuner.experiment import events as ev
from tuner.experiment.trial import Trial
from tuner.retention.rules import BUDGET
from tuner.schedulers.base import Decision, Directive, Exploit
from tuner.syncer.sink import Problem, ReplicaSink, Then

ERRED = wire.AttemptErrored("ValueError", "no", "")


def checkpoints_of(harness: DriverHarness) -> TrialCheckpoints:
    return harness.loop._parts.checkpoints


def names(trial: Trial) -> list[str]:
    return [record.ref.name for record in trial.checkpoints]


def on_disk(trial: Trial) -> list[str]:
    return sorted(path.name for path in trial.directory.glob("checkpoint_*"))


def save(harness: DriverHarness, trial: Trial, *, text: str = "weights", **metrics: Any) -> None:
    """A result with a checkpoint that is on the disk."""
    iteration = trial.iteration + 1
    published = harness.publish(trial, iteration, text=text)
    harness.report(trial, saving=published, **metrics)


@pytest.fixture
def keeps_one(tmp_path: Path) -> DriverHarness:
    return DriverHarness(tmp_path / "e", keep=CheckpointConfig(num_to_keep=1), max_failures=9).turn()


def test_forgotten_is_on_the_disk_before_anything_is_deleted(
    keeps_one: DriverHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness, trial = keeps_one, keeps_one.trial()
    save(harness, trial)
    deleter, journal, durable = harness.loop._retention.deleter, harness.journal, list[bool]()
    submit = deleter.submit

    def watched(ref: Any, path: Path) -> None:
        seq = next(seq for seq, fact in enumerate(harness.facts, 1) if isinstance(fact, ev.CheckpointForgotten))
        durable.append(journal.durable_seq >= seq and path.is_dir())
        submit(ref, path)

    monkeypatch.setattr(deleter, "submit", watched)
    save(harness, trial)
    assert durable == [True]
    assert on_disk(trial) == names(trial) == ["checkpoint_000002"]
    forgotten, deleted = [
        fact for fact in harness.facts if "Forgotten" in type(fact).__name__ or isinstance(fact, ev.CheckpointDeleted)
    ]
    assert forgotten.ref == deleted.ref and trial.forgotten == []


def test_what_the_attempt_started_from_stays_until_it_has_one_of_its_own(keeps_one: DriverHarness) -> None:
    harness, trial = keeps_one, keeps_one.trial()
    save(harness, trial)
    harness.exit(trial, ERRED)
    assert harness.executor.launched[-1].job.start_iteration == 1
    assert on_disk(trial) == ["checkpoint_000001"]
    save(harness, trial)
    assert on_disk(trial) == ["checkpoint_000002"]


def test_what_a_trial_reads_stays_until_it_has_closed_it(keeps_one: DriverHarness) -> None:
    harness, trial = keeps_one, keeps_one.trial()
    save(harness, trial)
    first = trial.checkpoints[0].ref
    harness.say(trial, wire.CheckpointOpened(first))
    save(harness, trial)
    assert on_disk(trial) == ["checkpoint_000001", "checkpoint_000002"]
    harness.say(trial, wire.CheckpointClosed(first))
    assert on_disk(trial) == ["checkpoint_000002"]
    harness.say(trial, wire.CheckpointClosed(first))  # twice is no harm
    assert names(trial) == ["checkpoint_000002"]


def test_what_a_dead_trial_read_is_let_go_of(keeps_one: DriverHarness) -> None:
    harness, trial = keeps_one, keeps_one.trial()
    save(harness, trial)
    harness.say(trial, wire.CheckpointOpened(trial.checkpoints[0].ref))
    save(harness, trial)
    harness.exit(trial, status=-9, next_turn=False)
    assert on_disk(trial) == ["checkpoint_000002"]


class TakenOver:
    """An owner of which another driver has taken the experiment."""

    def check(self) -> None:
        raise OwnedElsewhereError("generation 2 has it")


def test_who_was_taken_over_deletes_nothing(keeps_one: DriverHarness) -> None:
    harness, trial = keeps_one, keeps_one.trial()
    save(harness, trial)
    checkpoints_of(harness)._ownership = TakenOver()  # type: ignore[assignment]
    with pytest.raises(OwnedElsewhereError):
        save(harness, trial)
    assert len(on_disk(trial)) == 2


# --- a later life ---------------------------------------------------------------------------------------------


def later_life(tmp_path: Path, *facts: ev.AnyFact, **settings: Any) -> DriverHarness:
    """A driver that goes on after two saves of a trial, and what else is journaled of it."""
    before = DriverHarness(tmp_path / "before", max_failures=9).turn()
    for _ in range(2):
        before.report(before.trial(), saves=True)
    told = [*before.facts, ev.AttemptEnded("ab_00000", 1, "halted"), *facts]
    return DriverHarness(tmp_path / "e", facts=told, max_failures=9, **settings)


def test_deletions_that_were_decided_before_and_are_not_known_to_be_done_are_done(tmp_path: Path) -> None:
    forgotten = CheckpointRef("ab_00000", "checkpoint_000001", 1, 1, 1, 1)
    harness = later_life(tmp_path, ev.CheckpointForgotten(forgotten))
    left = harness.trial().directory / "checkpoint_000001"
    left.mkdir(parents=True)
    harness.turn()
    assert not left.exists() and ev.CheckpointDeleted(forgotten) in harness.facts


def test_what_was_saved_before_counts_in_the_budget(tmp_path: Path) -> None:
    harness = later_life(tmp_path, budget=Budget(25)).turn()
    harness.report(harness.trial(), saves=True)  # the third of ten bytes
    gone = [(fact.ref.name, fact.why) for fact in harness.facts if isinstance(fact, ev.CheckpointForgotten)]
    assert gone == [("checkpoint_000001", BUDGET)]


def test_what_is_set_aside_takes_no_room_in_the_budget(tmp_path: Path) -> None:
    harness = later_life(tmp_path, budget=Budget(25)).turn()
    checkpoints_of(harness).set_aside(harness.trial().checkpoints[0], "a file is short")
    harness.report(harness.trial(), saves=True)
    assert not [fact for fact in harness.facts if isinstance(fact, ev.CheckpointForgotten)]


# --- donors and clones -----------------------------------------------------------------------------------------


def cloning(tmp_path: Path) -> tuple[DriverHarness, Trial, Trial]:
    """Two trials, of which the first runs as a clone of the second's checkpoint of iteration 1."""
    says = Says(Decision.PAUSE)
    plugins = plugin_set(scheduler=says, num_samples=2)
    harness = DriverHarness(tmp_path / "e", plugins, keep=CheckpointConfig(num_to_keep=1), max_failures=9).turn()
    clone, donor = harness.state.trials
    save(harness, clone)
    harness.exit(clone, next_turn=False)
    save(harness, donor)
    says.ordered.append(Directive(clone.trial_id, Exploit(donor.trial_id, {"x": 9})))
    harness.report(donor)
    harness.turn()
    assert clone.started_from is not None and clone.started_from.trial_id == donor.trial_id
    return harness, clone, donor


def test_f05_a_donors_checkpoint_stays_until_the_clone_has_its_own(tmp_path: Path) -> None:
    harness, clone, donor = cloning(tmp_path)
    save(harness, donor)
    assert on_disk(donor) == ["checkpoint_000001", "checkpoint_000003"]
    harness.exit(clone, ERRED)  # before its first save: it begins there again
    assert harness.executor.launched[-1].job.checkpoint == donor.checkpoints[0].ref
    assert len(on_disk(donor)) == 2
    save(harness, clone)
    assert on_disk(donor) == ["checkpoint_000003"]


def test_a_clone_that_ends_without_a_save_gives_the_donors_checkpoint_back(tmp_path: Path) -> None:
    harness, clone, donor = cloning(tmp_path)
    save(harness, donor)
    harness.exit(clone)
    assert clone.status == "TERMINATED" and on_disk(donor) == ["checkpoint_000003"]


def test_t13_a_clone_whose_donors_checkpoint_is_gone_starts_anew_and_it_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    harness, clone, donor = cloning(tmp_path)
    caplog.clear()
    harness.exit(clone, ERRED, next_turn=False)
    checkpoints_of(harness).set_aside(donor.checkpoints[0], "a file is short")
    harness.turn()
    job = harness.executor.launched[-1].job
    assert (job.trial_id, job.checkpoint, job.config) == (clone.trial_id, None, {"x": 9})
    assert f"{clone.name} was to go on from checkpoint checkpoint_000001 of {donor.name}, which is gone" in caplog.text


# --- what is broken -----------------------------------------------------------------------------------------------


def test_a_damaged_checkpoint_is_found_before_a_trial_gets_it_and_not_counted_any_more(tmp_path: Path) -> None:
    harness = DriverHarness(tmp_path / "e", keep=CheckpointConfig(num_to_keep=2), max_failures=9).turn()
    trial = harness.trial()
    save(harness, trial)
    save(harness, trial)
    (trial.directory / "checkpoint_000002" / "weights").write_text("WEIGHTS")
    harness.exit(trial, ERRED)
    assert harness.executor.launched[-1].job.start_iteration == 1
    assert names(trial) == ["checkpoint_000001"]
    save(harness, trial)
    assert len(names(trial)) == 2, "the damaged one takes no place of a sound one"


def test_what_was_published_and_never_told_is_found_after_the_death(tmp_path: Path) -> None:
    harness = DriverHarness(tmp_path / "e", max_failures=9).turn()
    trial = harness.trial()
    ref = harness.ref(trial, 1)
    harness.report(trial, saving=harness.publish(trial, 1), told=False)
    assert names(trial) == []
    harness.exit(trial, status=-9)
    assert [record.ref for record in trial.checkpoints] == [ref]
    assert harness.executor.launched[-1].job.checkpoint == ref
    harness.exit(trial, status=-9)
    assert [record.ref for record in trial.checkpoints] == [ref], "and not again"


# --- the budget ----------------------------------------------------------------------------------------------------


def test_a_class_saves_that_is_over_the_budget_is_undone_with_its_cause(tmp_path: Path) -> None:
    harness = DriverHarness(tmp_path / "e", budget=Budget(2000), class_api=True, checkpoint_frequency=1).turn()
    trial = harness.trial()
    save(harness, trial, text="x" * 3000)
    forgotten = [fact for fact in harness.facts if isinstance(fact, ev.CheckpointForgotten)]
    assert [fact.why for fact in forgotten] == [BUDGET]
    (failed,) = [fact for fact in harness.facts if isinstance(fact, ev.PublishFailed)]
    assert "budget" in failed.error and names(trial) == on_disk(trial) == []


# --- a replica ------------------------------------------------------------------------------------------------------


class Copies(ReplicaSink):
    """A replica that holds what the test says, and brings it when it is told to."""

    place = "held://"

    def __init__(self) -> None:
        self.held: set[str] = set()
        self.wanted: list[tuple[str, Then]] = []
        self.told: list[str] = []
        self.arriving: list[ev.CheckpointCopied] = []

    def holds(self, trial: Trial, record: Any) -> bool:
        return record.ref.name in self.held

    def fetch(self, trial: Trial, record: Any, then: Then) -> None:
        self.wanted.append((record.ref.name, then))

    def forgotten(self, trial: Trial, ref: Any, seq: int) -> None:
        self.told.append(ref.name)

    def finished(self) -> list[ev.CheckpointCopied]:
        arriving, self.arriving = self.arriving, []
        self.held |= {fact.ref.name for fact in arriving}
        return arriving


def copied(harness: DriverHarness, copies: Copies, trial: Trial, *iterations: int) -> None:
    copies.arriving += [
        ev.CheckpointCopied(record.ref, copies.place) for record in trial.checkpoints if record.iteration in iterations
    ]
    harness.loop.dispatch(())


@pytest.fixture
def copies() -> Copies:
    return Copies()


def with_replica(tmp_path: Path, copies: Copies, **more: Any) -> DriverHarness:
    return DriverHarness(tmp_path / "e", copies=copies, max_failures=9, **{"hosts": None, **more}).turn()


def test_what_retention_lets_go_of_goes_from_the_replica_too(tmp_path: Path, copies: Copies) -> None:
    harness = with_replica(tmp_path, copies, keep=CheckpointConfig(num_to_keep=1))
    trial = harness.trial()
    save(harness, trial)
    save(harness, trial)
    assert copies.told == ["checkpoint_000001"]


@pytest.mark.parametrize(
    ("keep_local", "here"),
    [("all", [1, 2, 3]), (1, [3]), (2, [2, 3]), (9, [1, 2, 3])],
)
def test_what_the_replica_holds_is_given_up_here_down_to_keep_local(
    keep_local: int | str, here: list[int], tmp_path: Path, copies: Copies
) -> None:
    harness = with_replica(tmp_path, copies, keep_local=keep_local)
    trial = harness.trial()
    for _ in range(3):
        save(harness, trial)
    assert len(on_disk(trial)) == 3, "nothing goes before it is copied"
    copied(harness, copies, trial, 1, 2, 3)
    assert on_disk(trial) == [f"checkpoint_{number:06d}" for number in here]
    assert len(trial.checkpoints) == 3 and [record.here for record in trial.checkpoints].count(True) == len(here)


def test_what_a_trial_reads_is_given_up_here_once_it_has_closed_it(tmp_path: Path, copies: Copies) -> None:
    harness = with_replica(tmp_path, copies, keep_local=1)
    trial = harness.trial()
    save(harness, trial)
    save(harness, trial)
    first = trial.checkpoints[0].ref
    harness.say(trial, wire.CheckpointOpened(first))
    copied(harness, copies, trial, 1)
    assert len(on_disk(trial)) == 2
    harness.say(trial, wire.CheckpointClosed(first))
    assert on_disk(trial) == ["checkpoint_000002"]


def test_what_a_dead_driver_gave_up_here_and_did_not_delete_goes_with_the_next(
    tmp_path: Path, copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = with_replica(tmp_path, copies, keep_local=1)
    trial = harness.trial()
    save(harness, trial)
    save(harness, trial)
    with monkeypatch.context() as killed:
        killed.setattr(harness.loop._retention.deleter, "submit", lambda ref, path: None)
        copied(harness, copies, trial, 1, 2)
    assert [record.here for record in trial.checkpoints] == [False, True] and len(on_disk(trial)) == 2
    checkpoints_of(harness).take_over()
    harness.turn()
    assert on_disk(trial) == ["checkpoint_000002"] and len(trial.checkpoints) == 2


def test_what_is_not_copied_yet_stays_here_whatever_keep_local_says(tmp_path: Path, copies: Copies) -> None:
    harness = with_replica(tmp_path, copies, keep_local=1)
    trial = harness.trial()
    for _ in range(3):
        save(harness, trial)
    copied(harness, copies, trial, 2)
    assert on_disk(trial) == ["checkpoint_000001", "checkpoint_000003"]


@pytest.mark.parametrize(
    ("problem", "start", "set_aside"),
    [
        (None, 3, []),
        ("a file is short", 2, ["checkpoint_000003"]),
    ],
)
def test_what_only_the_replica_has_is_brought_here_before_a_trial_starts_from_it(
    problem: Problem, start: int, set_aside: list[str], tmp_path: Path, copies: Copies
) -> None:
    harness = with_replica(tmp_path, copies)
    trial = harness.trial()
    for _ in range(3):
        save(harness, trial)
    copied(harness, copies, trial, 3)
    (trial.directory / "checkpoint_000003").rename(tmp_path / "brought")
    harness.exit(trial, ERRED)
    ((wanted, then),) = copies.wanted
    assert wanted == "checkpoint_000003" and len(harness.executor.launched) == 1
    (tmp_path / "brought").rename(trial.directory / "checkpoint_000003")
    then(problem)
    harness.loop.dispatch(())
    harness.turn()
    assert harness.executor.launched[-1].job.start_iteration == start
    assert [fact.ref.name for fact in harness.facts if isinstance(fact, ev.CheckpointSetAside)] == set_aside


def test_one_that_was_brought_here_by_a_job_that_could_not_say_so_is_checked_and_used(
    tmp_path: Path, copies: Copies
) -> None:
    harness = with_replica(tmp_path, copies)
    trial = harness.trial()
    save(harness, trial)
    copied(harness, copies, trial, 1)
    (trial.directory / "checkpoint_000001").rename(tmp_path / "brought")
    harness.exit(trial, ERRED)
    ((_, then),) = copies.wanted
    (tmp_path / "brought").rename(trial.directory / "checkpoint_000001")
    then(ev.ErrorInfo("OSError", "the connection broke", disk=True))
    harness.loop.dispatch(())
    harness.turn()
    assert harness.executor.launched[-1].job.start_iteration == 1


def test_one_that_was_brought_here_again_is_given_up_again_once_it_is_not_in_use(
    tmp_path: Path, copies: Copies
) -> None:
    harness = with_replica(tmp_path, copies, keep_local=1)
    trial = harness.trial()
    save(harness, trial)
    save(harness, trial)
    copied(harness, copies, trial, 1)
    assert on_disk(trial) == ["checkpoint_000002"] and not trial.checkpoints[0].here
    (trial.directory / "checkpoint_000002" / "weights").write_text("WEIGHTS")
    harness.exit(trial, ERRED)
    ((wanted, then),) = copies.wanted
    assert wanted == "checkpoint_000001"
    (trial.directory / "checkpoint_000001").mkdir()
    then(None)
    harness.loop.dispatch(())
    harness.turn()
    save(harness, trial)
    copied(harness, copies, trial, 2)
    assert not (trial.directory / "checkpoint_000001").exists()


class Hosts:
    """Other hosts, which have the checkpoints that the test names, and copy them themselves if so."""

    def __init__(self, *held: str, uploads: bool = False) -> None:
        self.held, self.uploads = held, uploads

    def expect(self, attempts: float) -> None:
        pass

    def holds(self, path: Path) -> bool:
        return path.name in self.held


@pytest.mark.parametrize(
    ("hosts", "held", "fetched", "start"),
    [
        (Hosts("checkpoint_000002"), set(), [], 2),
        (Hosts(uploads=True), {"checkpoint_000002"}, [], 2),  # the host that gets it brings it there
        (Hosts(uploads=False), {"checkpoint_000002"}, ["checkpoint_000002"], None),
        (Hosts("checkpoint_000001"), set(), [], 1),  # the host that had the newest is gone
    ],
)
def test_where_an_attempt_gets_a_checkpoint_that_is_not_on_this_disk(
    hosts: Hosts, held: set[str], fetched: list[str], start: int | None, tmp_path: Path, copies: Copies
) -> None:
    harness = with_replica(tmp_path, copies, hosts=hosts)
    trial = harness.trial()
    harness.report(trial, saves=True)
    harness.report(trial, saves=True)
    copies.held = held
    harness.exit(trial, ERRED)
    assert [name for name, _ in copies.wanted] == fetched
    assert [launch.job.start_iteration for launch in harness.executor.launched[1:]] == ([start] if start else [])
    problems = [fact.problem for fact in harness.facts if isinstance(fact, ev.CheckpointSetAside)]
    assert problems == (["the host that had it is gone"] if start == 1 else [])


def test_one_that_went_with_its_host_is_not_to_be_copied_any_more(tmp_path: Path, copies: Copies) -> None:
    harness = with_replica(tmp_path, copies, hosts=Hosts("checkpoint_000001"))
    trial = harness.trial()
    harness.report(trial, saves=True)
    harness.report(trial, saves=True)
    harness.exit(trial, ERRED)
    assert copies.told == ["checkpoint_000002"] and names(trial) == ["checkpoint_000001"]


def test_while_only_its_host_has_the_newest_the_one_of_the_replica_stays(tmp_path: Path, copies: Copies) -> None:
    harness = with_replica(tmp_path, copies, hosts=Hosts(uploads=True), keep=CheckpointConfig(num_to_keep=1))
    trial = harness.trial()
    harness.report(trial, saves=True)
    copied(harness, copies, trial, 1)
    harness.report(trial, saves=True)
    assert names(trial) == ["checkpoint_000001", "checkpoint_000002"], "the host may die"
    copied(harness, copies, trial, 2)
    assert names(trial) == ["checkpoint_000002"]


# --- the end of the run ----------------------------------------------------------------------------------------------


class Slow(Copies):
    """Has everything after a few looks; each takes a second of the clock."""

    def __init__(self, clock: Any, arrives_after: float) -> None:
        super().__init__()
        self._clock, self._arrives_after = clock, arrives_after
        self.released = self.closes = False

    def closing(self) -> None:
        self.closes = True

    def wait(self, until: float | None) -> None:
        self._clock.advance(1.0)

    @property
    def complete(self) -> bool:
        return bool(self._clock.monotonic() >= self._arrives_after)

    @property
    def missing(self) -> list[str]:
        return [] if self.complete else ["checkpoint_000001 of train_ab_00000"]

    def release(self) -> None:
        self.released = True


@pytest.mark.parametrize(
    ("arrives_after", "until", "hurry_at", "missing", "takes"),
    [
        (3.0, 60.0, 99.0, 0, 3.0),
        (99.0, 10.0, 99.0, 1, 10.0),  # a preemption's grace time
        (99.0, 60.0, 2.0, 1, 2.0),  # Ctrl-C
    ],
)
def test_the_rest_is_waited_for_as_long_as_there_is_time(
    arrives_after: float, until: float, hurry_at: float, missing: int, takes: float, tmp_path: Path
) -> None:
    harness = DriverHarness(tmp_path / "e")
    began = harness.clock.monotonic()
    slow = Slow(harness.clock, began + arrives_after)
    checkpoints = checkpoints_of(harness)
    checkpoints._copies = slow
    left = checkpoints.copy_rest(
        harness.clock,
        lambda: harness.clock.monotonic() >= began + until,
        lambda: harness.clock.monotonic() >= began + hurry_at,
    )
    assert len(left) == missing and harness.clock.monotonic() - began == takes
    assert slow.closes and slow.released


class Arriving(Copies):
    """Everything arrives while the end of the run waits for it."""

    closes = False

    def closing(self) -> None:
        self.closes = True

    @property
    def complete(self) -> bool:
        return self.closes and not self.arriving


def test_what_arrives_at_the_end_is_journaled_and_so_is_what_goes_here_for_it(tmp_path: Path) -> None:
    copies = Arriving()
    harness = with_replica(tmp_path, copies, keep_local=1)
    trial = harness.trial()
    save(harness, trial)
    save(harness, trial)
    copies.arriving = [ev.CheckpointCopied(record.ref, copies.place) for record in trial.checkpoints]
    assert harness.loop.copy_rest(lambda: False) == []
    harness.loop.finish("finished")
    assert [record.copies for record in trial.checkpoints] == [[copies.place]] * 2
    first = trial.checkpoints[0].ref
    assert on_disk(trial) == ["checkpoint_000002"]
    told = [fact for fact in harness.facts if isinstance(fact, (ev.LocalCopyDropped, ev.CheckpointDeleted))]
    assert told == [ev.LocalCopyDropped(first), ev.CheckpointDeleted(first)]
