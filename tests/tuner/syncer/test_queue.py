"""The order of steps on a replica: pure, so whole runs are played in it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainables.net.backoff import LONGEST_PAUSE_S, pause_s
from trainables.wire import CheckpointRef
from tuner.syncer.queue import Queue
from tuner.syncer.trial_lane import QueueStep, StepKind

DIRECTORY = Path("/results")


def ref(index: int, trial: str = "t") -> CheckpointRef:
    return CheckpointRef(trial, f"checkpoint_{index:06d}", 1, 1, index, index)


def add(queue: Queue, index: int, *, trial: str = "t", seq: int = 0, now: float = 0.0, size: int = 10) -> None:
    queue.add(ref(index, trial), DIRECTORY / trial / f"checkpoint_{index:06d}", size, seq=seq, now=now)


def forget(queue: Queue, index: int, *, trial: str = "t", seq: int = 0, ended: bool = False) -> None:
    queue.forget(ref(index, trial), DIRECTORY / trial / f"checkpoint_{index:06d}", seq=seq, ended=ended)


def take(queue: Queue, now: float = 0.0) -> QueueStep:
    step = queue.next(now)
    assert step is not None
    return step


def test_no_pause_is_longer_than_the_longest_however_long_an_outage_lasts() -> None:
    assert pause_s(1) == 0.5
    assert pause_s(100) == pause_s(100_000) == LONGEST_PAUSE_S


def test_payload_then_manifest_and_the_manifest_waits_for_the_journal() -> None:
    queue = Queue()
    add(queue, 1, seq=7)
    step = take(queue)
    assert step.kind is StepKind.PAYLOAD and not queue.wants_journal
    assert queue.next(0.0) is None  # it runs
    queue.done(step)
    assert queue.next(0.0) is None and queue.wants_journal
    queue.journal_at(6)
    assert queue.next(0.0) is None
    queue.journal_at(7)
    step = take(queue)
    assert step.kind is StepKind.MANIFEST and not queue.holds(ref(1))
    queue.done(step)
    assert queue.holds(ref(1)) and queue.empty and queue.backlog_bytes == 0


def test_while_a_manifest_waits_for_the_journal_what_comes_may_supersede_what_waits() -> None:
    queue = Queue()
    add(queue, 1, seq=5)
    queue.done(take(queue))
    for index in (2, 3, 4):
        add(queue, index, seq=5 + index)
        if index > 2:
            forget(queue, index - 1, seq=5 + index)
    assert queue.next(0.0) is None and queue.wants_journal
    queue.journal_at(9)
    seen = []
    while (step := queue.next(0.0)) is not None:
        seen.append((step.kind, step.ref.index))
        queue.done(step)
    assert seen == [(StepKind.MANIFEST, 1), (StepKind.PAYLOAD, 4), (StepKind.MANIFEST, 4)]


def test_a_newer_one_supersedes_an_older_one_only_while_that_waits_and_is_not_kept() -> None:
    queue = Queue()
    for index in (1, 2, 3, 4):
        add(queue, index)
    first = take(queue)
    assert first.ref.index == 4  # the newest is what a resume wants
    forget(queue, 1)  # waits, and is not kept: never sent
    forget(queue, 4)  # runs: is brought to its end
    queue.done(first)
    seen = []
    while (step := queue.next(0.0)) is not None:
        seen.append((step.kind, step.ref.index))
        queue.done(step)
    assert (StepKind.MANIFEST, 4) in seen
    assert all(index != 1 for _, index in seen)
    assert {index for kind, index in seen if kind is StepKind.MANIFEST} == {2, 3, 4}
    assert (StepKind.REMOVE, 4) not in seen and queue.removals() == [ref(4)]  # nothing newer is there yet


def test_the_last_complete_one_goes_only_when_a_newer_one_is_there() -> None:
    queue = Queue()
    queue.known("t", [ref(1).order])
    add(queue, 2)
    forget(queue, 1)
    payload = take(queue)
    assert payload.kind is StepKind.PAYLOAD
    queue.failed(payload, "reset", 0.0, transient=True)
    payload = take(queue, 100.0)
    assert payload.kind is StepKind.PAYLOAD
    queue.done(payload)
    manifest = take(queue)
    assert manifest.kind is StepKind.MANIFEST
    queue.done(manifest)
    assert take(queue).kind is StepKind.REMOVE


def test_of_an_ended_trial_the_newest_may_go_when_all_that_is_kept_is_there() -> None:
    queue = Queue()
    queue.known("t", [ref(9).order])
    add(queue, 3)  # the best, older than the latest
    forget(queue, 9, ended=True)
    kinds = []
    while (step := queue.next(0.0)) is not None:
        kinds.append((step.kind, step.ref.index))
        queue.done(step)
    assert kinds == [(StepKind.PAYLOAD, 3), (StepKind.MANIFEST, 3), (StepKind.REMOVE, 9)]


def test_a_removal_waits_until_the_journal_that_unreferences_is_there() -> None:
    queue = Queue()
    queue.known("t", [ref(1).order, ref(2).order])
    forget(queue, 1, seq=4)
    assert queue.next(0.0) is None and queue.wants_journal
    queue.journal_at(4)
    assert take(queue).kind is StepKind.REMOVE


def test_without_deletion_nothing_is_removed() -> None:
    queue = Queue(removes=False)
    queue.known("t", [ref(1).order, ref(2).order])
    forget(queue, 1)
    assert queue.next(0.0) is None and queue.empty


def test_what_may_pass_pauses_the_whole_replica_and_longer_each_time() -> None:
    queue = Queue()
    add(queue, 1, trial="a")
    add(queue, 1, trial="b")
    now = 0.0
    pauses = []
    for _ in range(12):
        step = take(queue, now)
        queue.failed(step, "503", now, transient=True)
        due = queue.due(now)
        assert due is not None and queue.next(due - 0.01) is None
        pauses.append(due - now)
        now = due
    assert pauses == [pause_s(count) for count in range(1, 13)] and pauses[-1] == LONGEST_PAUSE_S
    queue.done(take(queue, now))
    assert not queue.blocked(now) and queue.error is None


def test_what_does_not_pass_pauses_its_own_trial_only() -> None:
    queue = Queue()
    add(queue, 1, trial="a")
    add(queue, 1, trial="b")
    bad = take(queue)
    queue.failed(bad, "unreadable", 0.0, transient=False)
    assert take(queue).ref.trial_id != bad.ref.trial_id
    assert queue.next(0.0) is None
    assert take(queue, queue.due(0.0) or 0.0).ref == bad.ref


def test_the_backlog_counts_bytes_and_age_of_what_is_not_complete() -> None:
    queue = Queue()
    add(queue, 1, now=10.0, size=5)
    add(queue, 2, now=20.0, size=7)
    assert queue.backlog("t", 30.0) == (12, 20.0) and queue.backlog_bytes == 12
    forget(queue, 1)
    assert queue.backlog("t", 30.0) == (7, 10.0)
    assert queue.backlog("another", 30.0) == (0, 0.0)
    queue.hold(ref(2))
    assert queue.backlog("t", 30.0) == (0, 0.0) and queue.backlog_bytes == 7
    queue.release(ref(2))
    assert queue.backlog("t", 30.0) == (7, 10.0)


def test_ended_trials_leave_nothing_behind() -> None:
    queue = Queue()
    for number in range(1000):
        trial = f"t{number}"
        add(queue, 1, trial=trial)
        queue.done(take(queue))
        queue.done(take(queue))
        queue.end(trial)
    assert not queue._lanes and not queue._active


def test_a_step_costs_the_same_with_many_trials() -> None:
    """Counted in what is looked at, not in time."""
    looked = []

    class Counting(Queue):
        def _step(self, lane, trial):  # type: ignore[no-untyped-def]
            looked.append(trial)
            return super()._step(lane, trial)

    queue = Counting()
    for number in range(20_000):
        add(queue, 1, trial=f"t{number}", seq=number + 1)
    for _ in range(20_000):
        queue.done(take(queue))
    while queue.next(0.0) is not None:
        pass
    before = len(looked)
    queue.journal_at(1)
    assert take(queue).kind is StepKind.MANIFEST
    assert len(looked) - before <= 2


@given(
    seed=st.integers(0, 2**32 - 1),
    keep=st.integers(1, 3),
    failures=st.sampled_from([0.0, 0.2, 0.6]),
    workers=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_any_run_leaves_exactly_what_is_kept_and_is_never_without(
    seed: int, keep: int, failures: float, workers: float
) -> None:
    """Best-N by a random score and the latest: whatever fails and however slow it is, R2 holds at every instant.

    `workers`: of so many saves those who made them bring parts themselves, before or after they are added.
    """
    random_ = random.Random(seed)
    queue = Queue()
    scores: dict[int, float] = {}
    kept: list[int] = []
    there: set[int] = set()
    partly: set[int] = set()
    held: set[int] = set()
    brought: set[int] = set()
    running: list[QueueStep] = []
    seq, now, had = 0, 0.0, False
    saves = random_.randrange(1, 25)
    index = 0
    while True:
        now += random_.random()
        if index < saves and random_.random() < 0.4:
            index += 1
            seq += 1
            scores[index] = random_.random()
            kept.append(index)
            if random_.random() < workers:
                queue.hold(ref(index))
                held.add(index)
                brought.add(index)
                if random_.random() < 0.2:
                    held.discard(index)
                    assert queue.release(ref(index))
            add(queue, index, seq=seq, now=now)
            stay = {*sorted(kept, key=scores.__getitem__)[-keep:], index}
            for gone in [one for one in kept if one not in stay]:
                seq += 1
                kept.remove(gone)
                forget(queue, gone, seq=seq)
        elif random_.random() < 0.3:
            queue.journal_at(random_.randrange(seq + 1))
        elif held and (index == saves or random_.random() < 0.3):
            done = random_.choice(sorted(held))
            held.discard(done)
            assert queue.release(ref(done))
            assert not queue.release(ref(done))
        elif running and random_.random() < 0.6:
            step = running.pop(random_.randrange(len(running)))
            if random_.random() < failures:
                queue.failed(step, "x", now, transient=random_.random() < 0.5)
            else:
                if step.kind is StepKind.PAYLOAD:
                    partly.add(step.ref.index)
                elif step.kind is StepKind.MANIFEST:
                    assert step.ref.index in partly
                    there.add(step.ref.index)
                    had = True
                else:
                    there.discard(step.ref.index)
                    brought.discard(step.ref.index)
                queue.done(step)
        else:
            started = queue.next(now)
            if started is not None:
                assert started.ref.index not in held
                if started.kind is not StepKind.REMOVE:
                    assert started.ref.index in kept or started.ref.index in {r.index for r in queue.removals()}
                running.append(started)
        assert there or not had
        if index == saves:
            queue.journal_at(seq)
            if queue.empty and not running and not held:
                break
            now += 1000.0  # pauses pass
    assert there == set(kept)
    assert brought <= there


@pytest.mark.parametrize("count", [1, 2, 7, 8, 50])
def test_pauses_grow_to_a_minute(count: int) -> None:
    assert pause_s(count) == min(0.5 * 2 ** (count - 1), 60.0)


def test_what_was_let_go_of_is_not_tried_again_and_what_arrived_of_it_goes() -> None:
    queue = Queue()
    add(queue, 1)
    step = take(queue)
    forget(queue, 1)  # while it is under way
    queue.failed(step, "the process that syncs ended", 0.0, transient=True)
    now = queue.due(0.0) or 0.0
    removal = take(queue, now)
    assert (removal.kind, removal.ref.index) == (StepKind.REMOVE, 1) and queue.backlog_count == 0
    queue.done(removal)
    assert queue.empty

    add(queue, 2, now=now)
    step = take(queue, now)
    queue.failed(step, "reset", now, transient=True)
    forget(queue, 2)  # before it is tried again
    removal = take(queue, queue.due(now) or now)
    assert (removal.kind, removal.ref.index) == (StepKind.REMOVE, 2) and queue.missing() == []


def test_what_an_older_owner_brought_a_part_of_goes_when_a_newer_one_supersedes_it() -> None:
    queue = Queue()
    queue.add(ref(1), DIRECTORY / "t" / ref(1).name, 10, seq=0, now=0.0, tried=True)
    add(queue, 2)
    forget(queue, 1)  # before its turn came in this life
    for kind in (StepKind.REMOVE, StepKind.PAYLOAD, StepKind.MANIFEST):
        step = take(queue)
        assert (step.kind, step.ref) == (kind, ref(1) if kind is StepKind.REMOVE else ref(2))
        queue.done(step)
    assert queue.empty
