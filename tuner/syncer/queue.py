"""What has to happen to the checkpoints of one replica, and in which order. Pure: no I/O, no clock.

Told of what retention keeps and forgets, of what the replica's journal holds and of how steps ended; says which step
comes next. A checkpoint is copied in two steps, payload and manifest, and the manifest waits until the journal over
there holds the result that it belongs to (design rule R2). A newer one supersedes an older one that still waits and is
not kept any more; one that has begun is brought to its end. What is forgotten is removed once a newer one is complete.
While those who saved a checkpoint bring their parts of it there themselves, it is held: neither copied nor removed.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from pathlib import Path

from trainables.net.backoff import BackOff
from trainables.wire import CheckpointRef
from tuner.syncer.trial_lane import Order, QueueStep, StepKind, TrialLane, WaitingRemoval, WaitingUpload

REFUSALS = 3
"""A removal that was refused so often is not waited for at the end."""


class Queue:
    """The order of steps of one replica. Cost per call does not depend on how many trials there are.

    Args:
        removes: the replica can delete; without, what is forgotten stays there.
    """

    def __init__(self, *, removes: bool = True) -> None:
        self.backlog_count = self.backlog_bytes = 0
        """Of all checkpoints that are to come and not complete there."""
        self.error: str | None = None
        """Why the last step failed; None once one succeeded."""
        self._removes = removes
        self._lanes: dict[str, TrialLane] = {}
        self._active: set[str] = set()
        self._ready: dict[str, None] = {}
        self._waits_for_journal: list[tuple[int, str]] = []
        self._waits_for_time: list[tuple[float, str]] = []
        self._journal = 0
        self._gate = BackOff()

    # --- what is wanted -----------------------------------------------------------------------------

    def known(self, trial: str, present: Iterable[Order]) -> None:
        """These checkpoints of a trial are complete there already."""
        self._lane(trial).present.update(present)

    def unknown(self, ref: CheckpointRef) -> None:
        """What was taken for complete there is not."""
        self._lane(ref.trial_id).present.discard(ref.order)

    def add(self, ref: CheckpointRef, path: Path, size: int, *, seq: int, now: float, tried: bool = False) -> None:
        """Copy a published checkpoint; its manifest goes after the fact `seq`. One that is there is left out.

        `tried`: a part of it may be there, of somebody who was killed over it.
        """
        lane = self._lane(ref.trial_id)
        lane.ended = False
        if ref.order not in lane.present and ref.order not in lane.uploads:
            lane.uploads[ref.order] = WaitingUpload(ref, path, size, seq, now, tried=tried)
            self.backlog_bytes += size
            self.backlog_count += 1
        self._look_at(ref.trial_id)

    def hold(self, ref: CheckpointRef) -> None:
        """Those who save it copy it themselves from now on; it may come to be added, or forgotten."""
        lane = self._lane(ref.trial_id)
        lane.ended = False
        lane.held.add(ref.order)
        lane.parts.add(ref.order)

    def release(self, ref: CheckpointRef) -> bool:
        """They do so no more; False: it was not held."""
        lane = self._lanes.get(ref.trial_id)
        if lane is None or ref.order not in lane.held:
            return False
        lane.held.discard(ref.order)
        self._look_at(ref.trial_id)
        return True

    def release_all(self, trial: str) -> None:
        """Of that trial nothing is held any more."""
        lane = self._lanes.get(trial)
        if lane is not None and lane.held:
            lane.held.clear()
            self._look_at(trial)

    def forget(self, ref: CheckpointRef, path: Path, *, seq: int, ended: bool = False) -> None:
        """Retention let go of it, and the fact `seq` says so.

        `ended`: its trial is over and all of its checkpoints may be older; it goes when everything else is there.
        """
        lane = self._lane(ref.trial_id)
        upload = lane.uploads.get(ref.order)
        busy = lane.running is not None and lane.running.ref.order == ref.order
        if upload is not None and not upload.sent and not busy:
            self._drop(lane, ref.order)  # superseded
        elif upload is not None:
            upload.forgotten = True
        touched = upload is None or upload.sent or upload.tried or ref.order in lane.parts
        if self._removes and (touched or busy):
            lane.removals[ref.order] = WaitingRemoval(ref, path, seq, ended)
        self._look_at(ref.trial_id)

    def end(self, trial: str) -> None:
        """The trial is over, for good: what it has forgotten may be newer than all that it kept."""
        lane = self._lanes.get(trial)
        if lane is not None:
            lane.ended = True
            for removal in lane.removals.values():
                removal.ended = True
            self._look_at(trial)

    def wants(self, ref: CheckpointRef) -> bool:
        """It is to be copied, and nobody has let go of it."""
        upload = self._lane(ref.trial_id).uploads.get(ref.order)
        return upload is not None and not upload.forgotten

    def abandon(self, ref: CheckpointRef) -> None:
        """There is nothing to copy any more: it is damaged, or was never whole."""
        lane = self._lane(ref.trial_id)
        self._drop(lane, ref.order)
        self._look_at(ref.trial_id)

    # --- what happened ------------------------------------------------------------------------------

    def journal_at(self, seq: int) -> None:
        """The replica's journal holds every fact up to this one."""
        self._journal = seq
        while self._waits_for_journal and self._waits_for_journal[0][0] <= seq:
            trial = heapq.heappop(self._waits_for_journal)[1]
            if trial in self._lanes:
                self._lanes[trial].asked = 0
                self._look_at(trial)

    def done(self, step: QueueStep) -> None:
        lane = self._lanes[step.ref.trial_id]
        lane.running = None
        lane.back_off.succeeded()
        self.succeeded()
        order = step.ref.order
        if step.kind is StepKind.PAYLOAD and order in lane.uploads:
            lane.uploads[order].sent = True
        elif step.kind is StepKind.MANIFEST:
            self._drop(lane, order)
            lane.parts.discard(order)
            lane.present.add(order)
        elif step.kind is StepKind.REMOVE:
            del lane.removals[order]
            lane.present.discard(order)
            lane.parts.discard(order)
        self._look_at(step.ref.trial_id)

    def failed(self, step: QueueStep, error: str, now: float, *, transient: bool) -> None:
        """A step failed and is tried again: after a pause of the whole replica if that may pass, else of its trial."""
        lane = self._lanes[step.ref.trial_id]
        lane.running = None
        self.error = error
        upload = lane.uploads.get(step.ref.order)
        if step.kind is StepKind.PAYLOAD and upload is not None:
            upload.tried = True
            if upload.forgotten:
                self._drop(lane, step.ref.order)  # it need not be brought to its end: what arrived of it goes
        if transient:
            self.unreachable(now)
        else:
            lane.back_off.failed(now)
        self._look_at(step.ref.trial_id)

    def unreachable(self, now: float) -> None:
        """Something that may pass went wrong: nothing is started for a while, longer each time."""
        if not self.blocked(now):  # what failed side by side counts once
            self._gate.failed(now)

    def succeeded(self) -> None:
        """The replica answers."""
        self._gate.succeeded()
        self.error = None

    # --- what comes next ----------------------------------------------------------------------------

    def next(self, now: float) -> QueueStep | None:
        """The next step, which runs from now on until `done` or `failed`; None: nothing can be done now."""
        if self.blocked(now):
            return None
        while self._waits_for_time and self._waits_for_time[0][0] <= now:
            self._ready[heapq.heappop(self._waits_for_time)[1]] = None
        while self._ready:
            trial = next(iter(self._ready))
            del self._ready[trial]
            lane = self._lanes.get(trial)
            if lane is None:
                continue
            if lane.running is not None:
                continue  # looked at again when that is over
            if lane.back_off.until > now:
                heapq.heappush(self._waits_for_time, (lane.back_off.until, trial))
                continue
            step, waits_for = lane.next_step(self._journal)
            if waits_for is not None and lane.asked != waits_for:
                lane.asked = waits_for
                heapq.heappush(self._waits_for_journal, (waits_for, trial))
            if step is not None:
                lane.running = step
                return step
        return None

    def due(self, now: float) -> float | None:
        """When `next` may have something without anything happening before; None: not by itself."""
        if self.blocked(now):
            return self._gate.until
        return self._waits_for_time[0][0] if self._waits_for_time else None

    def blocked(self, now: float) -> bool:
        """The replica did not answer a while ago: nothing is started."""
        return now < self._gate.until

    @property
    def wants_journal(self) -> bool:
        """Some step waits for nothing but the journal."""
        return bool(self._waits_for_journal)

    @property
    def empty(self) -> bool:
        """Nothing is to be done, and nothing runs."""
        return not self._active

    @property
    def only_refused(self) -> bool:
        """Nothing is left but removals that were refused again and again."""
        left = [self._lanes[trial] for trial in self._active]
        return all(not lane.uploads and lane.running is None and lane.back_off.failures >= REFUSALS for lane in left)

    def holds(self, ref: CheckpointRef) -> bool:
        """It is complete there."""
        lane = self._lanes.get(ref.trial_id)
        return lane is not None and ref.order in lane.present

    def backlog(self, trial: str, now: float) -> tuple[int, float]:
        """(bytes, age in seconds of the oldest) of what is to come of a trial, and is not held.

        Who holds one may wait for the answer to a later report, which waits until this is less.
        """
        lane = self._lanes.get(trial)
        uploads = [] if lane is None else [one for order, one in lane.uploads.items() if order not in lane.held]
        if not uploads:
            return 0, 0.0
        return sum(upload.bytes for upload in uploads), now - min(upload.since for upload in uploads)

    def missing(self) -> list[CheckpointRef]:
        """Checkpoints that are not complete there, and were to be."""
        return [upload.ref for lane in self._lanes.values() for upload in lane.uploads.values()]

    def removals(self) -> list[CheckpointRef]:
        """Checkpoints that are to go from there, and did not yet."""
        return [removal.ref for lane in self._lanes.values() for removal in lane.removals.values()]

    # --- within ---------------------------------------------------------------------------------------

    def _lane(self, trial: str) -> TrialLane:
        return self._lanes.setdefault(trial, TrialLane())

    def _look_at(self, trial: str) -> None:
        """Something about the trial is another: `next` looks at it."""
        lane = self._lanes[trial]
        if not lane.idle:
            self._active.add(trial)
            self._ready[trial] = None
            return
        self._active.discard(trial)
        if lane.ended and not lane.held:
            del self._lanes[trial]  # a finished trial costs nothing

    def _drop(self, lane: TrialLane, order: Order) -> None:
        upload = lane.uploads.pop(order, None)
        if upload is not None:
            self.backlog_bytes -= upload.bytes
            self.backlog_count -= 1
